"""What only a GPU shows: ids kept there, compiled code, its memory and its chance."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainables import TOKENIZER, Bigram, Recurrent, data, seeded, text, train

from chainrule.errors import Interrupted, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.engines import torch_batches, torch_step
from chainrule.training.engines.torch_batches import DeviceGatherer, SendingGatherer, torch_gatherer
from chainrule.training.engines.torch_step import Stepper
from chainrule.training.layouts import Size, choose_layout
from chainrule.training.objectives import NextToken
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
    monkeypatch.setattr(torch_batches, "ON_DEVICE", 0)
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


@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_steps_that_are_played_back_give_the_same_gradients(make: Any) -> None:
    """Carried memory included; an epoch's last step, of another shape, is not played."""
    ids, device = text().ids, torch.device("cuda")
    one, other = seeded(make).to(device), seeded(make).to(device)
    layout = choose_layout(ids, TOKENIZER.eos, "stream", one.window, Size(8, 64, 64), 0)
    batches = torch_gatherer(ids, NextToken.of(TOKENIZER, "stream"), device)
    plain, played = Stepper(one, device, Mode()), Stepper(other, device, Mode(recorded=True))
    memories: list[Any] = [[], []]
    epoch = layout.epoch(0)
    for number in range(len(epoch)):
        losses = []
        for which, (stepper, network) in enumerate(((plain, one), (played, other))):
            network.zero_grad()
            loss, after = stepper.gradients(epoch[number], batches, memories[which])
            memories[which] = after if layout.carries else []
            losses.append(loss)
        torch.testing.assert_close(*losses)
        for expected, found in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-6)
    assert played.graph is not None and plain.graph is None


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
