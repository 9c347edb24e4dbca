"""What only a GPU shows: ids kept there, compiled code, its memory and its chance."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainables import TOKENIZER, Bigram, Recurrent, data, seeded, text, train

import chainrule as cr
from chainrule.errors import Interrupted, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.engines import torch_engine, torch_step
from chainrule.training.engines.torch_engine import DeviceGatherer, SendingGatherer, torch_gatherer
from chainrule.training.engines.torch_step import Stepper
from chainrule.training.layouts import Size, choose_layout
from chainrule.training.objectives import NextToken
from chainrule.training.optimisers import make_optimiser
from chainrule.training.run_state import Mode
from stopping import stopping

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # torch 2.11's compiler warns of its own code
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]


def settings(**values: Any) -> TrainingSettings:
    return parse(TrainingSettings, {"batch": 64, "length": 8, "steps": 20, "learning_rate": 0.02, **values})


@pytest.mark.parametrize("context", ["line", "stream"])
def test_batches_are_the_same_wherever_they_are_made(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, device = text().ids, torch.device("cuda")
    layout = choose_layout(ids, TOKENIZER.eos, context, 8, Size(8, 64, 64), 0)
    objective = NextToken.of(TOKENIZER, context)
    kept = torch_gatherer(ids, objective, device)
    monkeypatch.setattr(torch_engine, "ON_DEVICE", 0)
    sent = torch_gatherer(ids, objective, device)
    assert isinstance(kept, DeviceGatherer)
    assert isinstance(sent, SendingGatherer)
    for number in range(layout.count(0)):
        for rows in layout.epoch(0)[number].parts:
            for one, other in zip(kept.batch(rows), sent.batch(rows), strict=True):
                assert one.device.type == "cuda"
                assert torch.equal(one, other)


@pytest.mark.parametrize("compiled", ["yes", "no"])
@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_it_learns(make: Any, context: Any, compiled: str) -> None:
    """Short steps at the end of epochs included: 60 steps are several epochs."""
    trained = train(
        seeded(make),
        settings(steps=60, compile=compiled, device_batch=24),
        data(context, device="cuda"),
    )
    assert trained.state.decisions.bfloat16
    assert trained.state.best_loss is not None
    assert trained.state.best_loss < 1.6 < np.log(10)
    assert all(isinstance(array, np.ndarray) and array.dtype == np.float32 for array in trained.best.values())


@pytest.mark.parametrize("optimiser", ["muon", "adamw", "momentum"])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_steps_that_are_played_back_change_weights_alike(make: Any, optimiser: str) -> None:
    """Carried memory included; an epoch's last step, of another shape, is not played; nor is momentum's update."""
    ids, device = text().ids, torch.device("cuda")
    one, other = seeded(make).to(device), seeded(make).to(device)
    layout = choose_layout(ids, TOKENIZER.eos, "stream", one.window, Size(8, 64, 64), 0)
    batches = torch_gatherer(ids, NextToken.of(TOKENIZER, "stream"), device)
    plain, played = Stepper(one, device, Mode()), Stepper(other, device, Mode(recorded=True))
    optimisers = [make_optimiser(network, settings(optimiser=optimiser)) for network in (one, other)]
    optimisers[1].prepare_capture()
    assert optimisers[1].can_be_captured == (optimiser != "momentum")
    memories: list[Any] = [[], []]
    epoch = layout.epoch(0)
    for number in range(len(epoch)):
        figures, rate = [], 1 / (1 + number)
        for which, stepper in enumerate((plain, played)):
            loss, norm, after = stepper.take(epoch[number], batches, memories[which], optimisers[which], rate)
            memories[which] = after if layout.carries else []
            figures.append(torch.stack([loss, norm]))
        torch.testing.assert_close(*figures, rtol=1e-3, atol=1e-5)
        for expected, found in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert len(played.graphs) == 1 and not plain.graphs


def test_sources_and_targets_are_played_back_in_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run as without graphs, and as on batches that are not filled up."""
    pairs = [(" ".join("abcdefgh"[: 1 + i % 8]), " ".join("abcdefgh"[: 1 + i * 5 % 7])) for i in range(120)]
    sizes = {"layers": 1, "width": 64, "heads": 2, "window": 16, "batch": 64, "steps": 30, "validate_every": 10}
    rest = {"dropout": 0, "attention_dropout": 0, "token_dropout": 0, "precision": "float32", "optimiser": "adamw"}
    runs = []
    for factor in (1e9, 0.0):  # what can be recorded is, then nothing is
        monkeypatch.setattr(torch_step, "_CLEARLY_FASTER", factor)
        lm = cr.train("seq2seq", pairs, valid=pairs[:20], tokenizer="word", device="cuda", **sizes, **rest)
        runs.append([one["validation_loss"] for one in lm.metrics["history"]])
    assert runs[0] == pytest.approx(runs[1], abs=5e-3)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_a_run_goes_on_bit_by_bit(
    make: Any, recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws from the GPU's chance, and memory is in bfloat16."""
    monkeypatch.setattr(torch_step, "_CLEARLY_FASTER", 1e9)  # what can be recorded is
    chosen = settings(device_batch=None if recorded else 24, compile="no", average="ema")
    whole = train(seeded(make, dropout=0.3), chosen, data("stream", device="cuda"))
    assert whole.state.decisions.recorded == recorded
    with monkeypatch.context() as patched:
        stopping(patched, 5, 14, number=signal.SIGTERM)
        for resume in (False, True):
            with pytest.raises(Interrupted):
                again = data("stream", device="cuda", run=tmp_path, resume=resume)
                train(seeded(make, dropout=0.3), chosen, again)
    again = data("stream", device="cuda", run=tmp_path, resume=True)
    resumed = train(seeded(make, dropout=0.3), chosen, again)
    assert whole.state.history == resumed.state.history
    for name in whole.last:
        assert np.array_equal(whole.last[name], resumed.last[name])
        assert np.array_equal(whole.best[name], resumed.best[name])


class Wasteful(Bigram):
    """Takes 1 GB for each token, and needs it in the backward pass."""

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        found = super().loss(inputs_BT, targets_BT, memory)
        waste = torch.ones(inputs_BT.numel(), 1 << 28, device=inputs_BT.device)
        return found._replace(nats=found.nats + 0 * waste[:, 0].sum())


def test_too_little_memory_says_what_fits() -> None:
    with pytest.raises(TrainingError, match=r"tokens at once do not fit .* do: set device_batch=\d+"):
        train(seeded(Wasteful), settings(batch=8 * 256, compile="no"), data(device="cuda"))
