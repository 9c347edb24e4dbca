"""The loop: every token once an epoch, the best weights kept, and what goes wrong is said."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.autodiff.model import TapeModel
from chainrule.autodiff.network import Loss
from chainrule.autodiff.training import Trainer, train_on_tape
from chainrule.errors import SettingsError, TrainingError
from chainrule.neural.designs import count_parameters
from chainrule.training import run
from chainrule.training.state import Place
from listening import Listening

from .twins import data, settings_of, twins

TOY = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 10)


def trainer(design: str = "feedforward", **more: Any) -> Trainer:
    values = {"batch": 16, "length": 4, **more}
    texts = data(**{key: values.pop(key) for key in ("context", "valid", "progress") if key in values})
    _, network = twins(design, **values)
    return Trainer(network, settings_of(design, **values), texts, np.random.default_rng(0))


@pytest.mark.parametrize("context", ["line", "stream"])
def test_mini_batches_are_shuffled_without_replacement(context: Any) -> None:
    """In each epoch every token is a target once, and the batches of lines come in another order."""
    one = trainer(context=context, steps=10**6)
    seen: list[np.ndarray] = []
    for number in range(2):
        epoch = one.train.layout.epoch(number)
        rows = [part for i in range(len(epoch)) for part in epoch[i].parts]
        targets = np.concatenate([one.train.text.batch(part)[1].reshape(-1) for part in rows])
        seen.append(targets[targets >= 0])
    for targets in seen:
        np.testing.assert_array_equal(np.sort(targets), np.sort(one.data.train.ids))
    assert (seen[0].tolist() == seen[1].tolist()) == (context == "stream")


def test_the_best_weights_are_kept_and_patience_ends_a_run() -> None:
    one = trainer(steps=400, validate_every=5, patience=3, optimiser="adam", learning_rate=0.1)
    state = one.run()
    losses = [entry["validation_loss"] for entry in state.history]
    assert state.stopped and state.step < 400
    assert len(losses) == 3 + 1 + int(np.argmin(losses))
    assert one.validation_loss() == pytest.approx(min(losses), abs=1e-9) == pytest.approx(state.best_loss)


def test_progress_is_told_as_torchs_loop_tells_it() -> None:
    listener = Listening()
    told = {"steps": 8, "validate_every": 4, "learning_rate": 0.05, "progress": listener}
    state = trainer(**told).run(lambda: "some text")
    assert listener.tasks == [("training", 8, "steps")]
    assert listener.done == state.step == 8
    assert listener.shown[-1].startswith("loss ") and "  validation " in listener.shown[-1]
    assert listener.shown[-1].endswith(" tokens/s")
    assert listener.notes == []
    trainer(**told, sample_every=2).run(lambda: "some text")
    assert listener.notes == ["step 8 writes: some text"]


def test_a_loss_that_is_no_number_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(steps=10, valid=None)
    loss, calls = one.network.loss, []

    def later(*arguments: Any, **keywords: Any) -> Loss:
        calls.append(1)
        if len(calls) == 4:
            one.network.parameters["head.bias"].out_tensor[:] = np.nan
        return loss(*arguments, **keywords)

    monkeypatch.setattr(one.network, "loss", later)
    with pytest.raises(TrainingError, match=r"step 4 \(epoch 0, batch 3\): Linear is the first module"):
        one.run()


def test_a_validation_that_is_no_number_names_the_step() -> None:
    one = trainer(steps=10, learning_rate=1e-9)
    assert one.data.valid is not None
    one.network.parameters["embedding.weight"].out_tensor[3 + 7] = np.nan  # of a letter that training need not read
    one.train.text.ids = np.where(one.train.text.ids == 3 + 7, 3, one.train.text.ids)
    with pytest.raises(TrainingError, match="step 1: the held-out text: Embedding is the first module"):
        one.run()


def test_a_gradient_that_is_no_number_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(steps=10)
    monkeypatch.setattr(one.optimiser, "step", lambda rate: float("inf"))
    with pytest.raises(TrainingError, match=r"step 1 .*the gradient is not a finite number; set a lower"):
        one.run()


def test_too_little_memory_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(context="stream", steps=10)

    def full(*arguments: Any, **keywords: Any) -> Loss:
        raise MemoryError

    monkeypatch.setattr(one.network, "loss", full)
    with pytest.raises(TrainingError, match=r"step 1 .*: 16 tokens at once do not fit .*set device_batch=8"):
        one.run()


def test_minutes_become_steps_and_rehearsal_leaves_no_trace() -> None:
    """1.2 seconds by a real clock: the machine may be busy, but not ten times slower at once."""
    one = trainer(minutes=0.02, dropout=0.2)
    before = {name: each.out_tensor.copy() for name, each in one.network.parameters.items()}
    drawn = one.chance.bit_generator.state
    decisions = one._decide()
    assert one.chance.bit_generator.state == drawn
    assert all(np.array_equal(before[name], each.out_tensor) for name, each in one.network.parameters.items())
    assert decisions.total >= 1 and decisions.measured["step_seconds"] > 0
    assert one.run().seconds < 12


def test_memory_does_not_grow_from_step_to_step() -> None:
    one = trainer("lstm", batch=512, length=16, hidden=32, steps=10**6)
    epoch = one.train.layout.epoch(0)
    held = []
    for number in range(12):
        one.take_step(epoch[number % len(epoch)], 1.0, Place(number + 1, 0, 0))
        one.memories = []
        if number == 2:
            tracemalloc.start()
        held.append(one.tape.bytes_held)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held[2:] == [held[2]] * 10
    assert left < 200_000  # bytes that were taken since and are still held


@pytest.mark.parametrize("kind", ["feedforward", "elman", "lstm", "gru"])
def test_a_kind_learns_its_text(kind: str) -> None:
    dropouts = {"dropout": 0} if kind == "feedforward" else {"input_dropout": 0, "output_dropout": 0}
    small = {"embedding": 8, "hidden": 16, "layers": 1, "batch": 32, "epochs": 10, "learning_rate": 0.04}
    lm, again = (cr.train(kind, TOY, engine="tape", valid=TOY, **small, **dropouts) for _ in range(2))
    assert isinstance(lm, TapeModel)
    # p(i) = 2/3 and p(cats | i love) = 1/2: at best 3^(1/4) = 1.32
    assert 1.2 < lm.perplexity("i love cats") < 1.6
    sizes = {name: one.out_tensor.shape for name, one in lm.network.parameters.items()}
    assert lm.metrics["parameters"] == count_parameters(sizes, lm.tokenizer.vocab_size)
    assert lm.metrics["tokens_seen"] > 1000 and lm.metrics["validation_nats"] < 0.7
    assert again.surprisals("i love cats").tolist() == lm.surprisals("i love cats").tolist()


def test_word_vectors_are_what_training_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 2 3 4\nc 5 6 7 8\n")
    for tied, scale in ((False, 1), (True, 2)):
        settings = settings_of("feedforward", vectors=str(path), steps=1, learning_rate=1e-12, tied=tied)
        lm = train_on_tape("feedforward", settings, data())
        np.testing.assert_allclose(
            lm.network.table.out_tensor[[3, 5]] * scale, [[1, 2, 3, 4], [5, 6, 7, 8]], atol=1e-5
        )
        assert lm.metrics["vectors_coverage"] == 2 / 8
    with pytest.raises(SettingsError, match=r"its vectors have 4 numbers.*set embedding=4"):
        train_on_tape("feedforward", settings_of("feedforward", vectors=str(path), embedding=5), data())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"optimiser": "muon"}, "optimiser=muon is not for engine=tape, which has sgd or momentum or"),
        ({"average": "ema"}, "average=ema is not for engine=tape, which has none; engine=torch has it"),
        ({"precision": "bfloat16"}, "precision=bfloat16 is not for engine=tape"),
        ({"compile": "yes"}, "compile=yes is not for engine=tape"),
        ({"tensorboard": True}, "tensorboard=true is not for engine=tape, which has false"),
    ],
)
def test_what_only_torch_offers_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        cr.train("gru", TOY, engine="tape", **values)


def test_what_is_refused_is_refused_before_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "encode_parts", lambda *_: pytest.fail("the text was read"))
    with pytest.raises(SettingsError, match="optimiser=muon is not for engine=tape"):
        cr.train("gru", TOY, engine="tape", optimiser="muon")


def test_a_device_that_may_be_chosen_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "choose_device", lambda device: "cuda")
    assert isinstance(cr.train("feedforward", TOY, engine="tape", device="auto", steps=1), TapeModel)


def test_the_device_and_the_run_folder_are_torchs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="engine=tape computes on the CPU, not on cuda: engine=torch can"):
        cr.train("feedforward", TOY, engine="tape", device="cuda")
    for kept in ({"run": tmp_path / "run"}, {"resume": True}):
        with pytest.raises(SettingsError, match="engine=tape keeps no checkpoints: leave out the run folder"):
            cr.train("feedforward", TOY, engine="tape", **kept)
    with pytest.raises(SettingsError, match="vary_length is for a network that carries its memory on"):
        trainer(context="line", vary_length=True)
