"""The loop on the tape: every token once an epoch, the best weights kept, and what goes wrong is said."""

from __future__ import annotations

import json
import re
import signal
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.autodiff.networks.network import TapeLoss, TapeNetwork
from chainrule.autodiff.optim import Optimiser
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.errors import SettingsError, TrainingError
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.config import count_parameters
from chainrule.runs import prepare
from chainrule.runs import train as pipeline
from chainrule.training import loop, planning
from chainrule.training.engines import base
from chainrule.training.engines.tape_engine import TapeEngine
from chainrule.training.examples import texts_of
from chainrule.training.loop import Trained, train_network
from chainrule.training.run_state import Place
from listening import Listening
from stopping import interrupted

from .twins import KINDS, data, settings_of, twins

TOY = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 10)


@dataclass(frozen=True)
class Trainer:
    """A network on the tape, and what it is trained on."""

    engine: TapeEngine
    settings: Any
    data: TrainingData

    @property
    def network(self) -> TapeNetwork:
        return self.engine.network

    @property
    def job(self) -> Any:
        """What the loop works with: texts in batches."""
        return loop.Job(self.engine, self.settings, self.data, texts_of(self.data), None)

    def run(self, sample: Callable[[], str] | None = None) -> Trained:
        return train_network(self.engine, self.settings, self.data, sample=sample)


def trainer(design: str = "feedforward", **more: Any) -> Trainer:
    values = {"batch": 16, "length": 4, **more}
    given = ("context", "valid", "progress", "run", "resume")
    texts = data(**{key: values.pop(key) for key in given if key in values})
    _, network = twins(design, **values)
    settings = settings_of(design, **values)
    return Trainer(TapeEngine(network, settings, np.random.default_rng(0)), settings, texts)


@pytest.mark.parametrize("context", ["line", "stream"])
def test_mini_batches_are_shuffled_without_replacement(context: Any) -> None:
    """In each epoch every token is a target once, and the batches of lines come in another order."""
    one = trainer(context=context, steps=10**6)
    feed = one.job.train
    seen: list[np.ndarray] = []
    for number in range(2):
        epoch = feed.layout.epoch(number)
        rows = [part for i in range(len(epoch)) for part in epoch[i].parts]
        targets = np.concatenate([feed.gatherer.batch(part).targets_BT.reshape(-1) for part in rows])
        seen.append(targets[targets >= 0])
    for targets in seen:
        np.testing.assert_array_equal(np.sort(targets), np.sort(one.data.train.ids))
    assert (seen[0].tolist() == seen[1].tolist()) == (context == "stream")


def test_the_best_weights_are_kept_and_patience_ends_a_run() -> None:
    one = trainer(steps=400, validate_every=5, patience=3, optimiser="adam", learning_rate=0.1)
    trained = one.run()
    losses = [entry["validation_loss"] for entry in trained.state.history]
    assert trained.state.step < 400
    assert len(losses) == 3 + 1 + int(np.argmin(losses))
    found = one.engine.mean_nats(one.job.valid)
    assert found == pytest.approx(min(losses), abs=1e-9) == pytest.approx(trained.state.best_loss)
    for name, parameter in one.network.parameters.items():
        np.testing.assert_array_equal(parameter.out_tensor, trained.best[name])
    assert any(not np.array_equal(trained.best[name], trained.last[name]) for name in trained.best)


def test_progress_is_reported_as_by_the_loop_of_torch() -> None:
    listener = Listening()
    told = {"steps": 8, "validate_every": 4, "learning_rate": 0.05, "progress": listener}
    trained = trainer(**told).run(lambda: "some text")
    assert listener.tasks == [("training", 8, "steps")]
    assert listener.done == trained.state.step == 8
    line = r"loss \d+\.\d{3}  validation \d+\.\d{3}  [\d,]+ tokens/s  \d+\.\d GB"
    assert re.fullmatch(line, listener.shown[-1]), listener.shown
    assert listener.notes == []
    trainer(**told, sample_every=2).run(lambda: "some text")
    assert listener.notes == ["step 8 writes: some text"]


def test_a_loss_that_is_no_number_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(steps=10, valid=None)
    loss, calls = one.network.loss, []

    def later(*arguments: Any, **keywords: Any) -> TapeLoss:
        calls.append(1)
        if len(calls) == 4:
            one.network.parameters["head.bias"].out_tensor[:] = np.nan
        return loss(*arguments, **keywords)

    monkeypatch.setattr(one.network, "loss", later)
    with pytest.raises(TrainingError, match=r"step 4 \(epoch 0, batch 3\): Linear is the first module"):
        one.run()


def test_a_validation_that_is_no_number_names_the_step() -> None:
    one = trainer(steps=10, learning_rate=1e-9, tied=False)
    assert one.data.valid is not None and (one.data.valid.ids == 3 + 7).any()
    one.network.parameters["embedding.weight"].out_tensor[3 + 7] = np.nan  # of a letter that training need not read
    text = one.data.train
    without = replace(text, ids=np.where(text.ids == 3 + 7, 3, text.ids).astype(text.ids.dtype))
    with pytest.raises(TrainingError, match="step 1: the held-out text: Embedding is the first module"):
        replace(one, data=replace(one.data, train=without)).run()


def test_a_gradient_that_is_no_number_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(steps=10)
    monkeypatch.setattr(one.engine.optimiser, "step", lambda rate: float("inf"))
    with pytest.raises(TrainingError, match=r"step 1 .*the gradient is not a finite number; set a lower"):
        one.run()


def test_too_little_memory_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(context="stream", steps=10)

    def full(*arguments: Any, **keywords: Any) -> TapeLoss:
        raise MemoryError

    monkeypatch.setattr(one.network, "loss", full)
    with pytest.raises(TrainingError, match=r"step 1 .*: 16 tokens at once do not fit .*set device_batch=8"):
        one.run()


def test_slow_validations_are_timed_on_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a short run of a slow network would be over before its first step."""
    now, read = [0.0], list[Any]()

    def timed_nats(self: TapeEngine, feed: Any, most_steps: int | None = None) -> float:
        now[0] += 0.5
        read.append(most_steps)
        return 1.0

    monkeypatch.setattr(TapeEngine, "mean_nats", timed_nats)
    monkeypatch.setattr(planning, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    trainer(minutes=0.02).job.autotune.decide()
    assert read == [1, 1]  # of many: the first one is not timed


def test_minutes_are_kept_and_a_trial_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which only steps take time, 10 ms each, and validations, 20 ms."""
    now, step, nats = [0.0], TapeEngine.take_step, TapeEngine.mean_nats

    def timed_step(*arguments: Any) -> None:
        now[0] += 0.01
        step(*arguments)

    def timed_nats(self: TapeEngine, feed: Any, most_steps: int | None = None) -> float:
        share = 1.0 if most_steps is None else most_steps / feed.layout.count(None)
        now[0] += 0.02 * share
        return nats(self, feed, most_steps)

    monkeypatch.setattr(TapeEngine, "take_step", timed_step)
    monkeypatch.setattr(TapeEngine, "mean_nats", timed_nats)
    for module in (planning, base, loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    one = trainer(minutes=0.02, dropout=0.2, optimiser="adam")
    before = {name: each.out_tensor.copy() for name, each in one.network.parameters.items()}
    drawn = one.engine.randomness.bit_generator.state
    decisions = one.job.autotune.decide()
    assert one.engine.randomness.bit_generator.state == drawn
    assert all(np.array_equal(before[name], each.out_tensor) for name, each in one.network.parameters.items())
    assert one.engine.optimiser.arrays() == {} and set(one.engine.optimiser.counts().values()) == {0}
    assert one.engine.memories == [] and one.engine.read_figures() == []
    tokens = one.data.valid.tokens
    assert decisions.measured == {"validation_tokens_per_second": pytest.approx(tokens / 0.02, rel=0.01)}
    assert decisions.total is decisions.validate_every is decisions.validation_tokens is None
    now[0] = 0.0
    trained = one.run()
    # 1.2 seconds: all of them are used, for steps mostly
    assert 90 <= trained.state.step <= 120
    assert 1.18 <= now[0] <= 1.22


def test_memory_does_not_grow_from_step_to_step() -> None:
    one = trainer("lstm", batch=512, length=16, hidden=32, steps=10**6)
    engine, feed = one.engine, one.job.train
    epoch = feed.layout.epoch(0)
    held = []
    for number in range(12):
        engine.take_step(feed, epoch[number % len(epoch)], 1.0, Place(number + 1, 0, 0))
        engine.forget()
        engine.read_figures()
        if number == 2:
            tracemalloc.start()
        held.append(engine.tape.bytes_held)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held[2:] == [held[2]] * 10
    assert left < 200_000  # bytes that were taken since and are still held


@pytest.mark.parametrize("kind", ["feedforward", "elman", "lstm", "gru"])
def test_a_kind_learns_its_text(kind: str) -> None:
    dropouts = {"dropout": 0} if kind == "feedforward" else {"input_dropout": 0, "output_dropout": 0}
    small = {"embedding": 8, "hidden": 16, "layers": 1, "batch": 32, "epochs": 10, "learning_rate": 0.04}
    lm, again = (
        cr.train(kind, TOY, engine="tape", valid=TOY, **small, **dropouts, tokenizer="word") for _ in range(2)
    )
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
    begins = {"engine": "tape", "vectors": str(path)}
    for tied, scale in ((False, 1), (True, 2)):
        settings = settings_of("feedforward", **begins, steps=1, learning_rate=1e-12, tied=tied)
        lm = find_kind("feedforward").train(settings, data())
        assert isinstance(lm, TapeModel)
        np.testing.assert_allclose(
            lm.network.table.out_tensor[[3, 5]] * scale, [[1, 2, 3, 4], [5, 6, 7, 8]], atol=1e-5
        )
        assert lm.metrics["vectors_coverage"] == 2 / 8
    with pytest.raises(SettingsError, match=r"its vectors have 4 numbers.*set embedding=4"):
        find_kind("feedforward").train(settings_of("feedforward", **begins, embedding=5), data())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"average": "ema"}, "average=ema is not for engine=tape, which has none; engine=torch has it"),
        ({"precision": "bfloat16"}, "precision=bfloat16 is not for engine=tape"),
        ({"compile": "yes"}, "compile=yes is not for engine=tape"),
        ({"tensorboard": True}, "tensorboard=true is not for engine=tape, which has false"),
    ],
)
def test_what_only_torch_offers_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        cr.train("gru", TOY, engine="tape", **values, tokenizer="word")


def test_what_is_refused_is_refused_before_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "encode_parts", lambda *_: pytest.fail("the text was read"))
    with pytest.raises(SettingsError, match="average=ema is not for engine=tape"):
        cr.train("gru", TOY, engine="tape", average="ema", tokenizer="word")


def test_a_device_that_may_be_chosen_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "choose_own_device", lambda device: "cuda")
    assert isinstance(
        cr.train("feedforward", TOY, engine="tape", device="auto", steps=1, tokenizer="word"), TapeModel
    )


def test_other_devices_are_torchs() -> None:
    with pytest.raises(SettingsError, match="engine=tape computes on the CPU, not on cuda: engine=torch can"):
        cr.train("feedforward", TOY, engine="tape", device="cuda", tokenizer="word")


def test_rows_of_lines_have_no_length_to_vary() -> None:
    with pytest.raises(SettingsError, match="vary_length is for a network that carries its memory on"):
        trainer(context="line", vary_length=True).run()


# -- run folders ------------------------------------------------------------------------------------------


RESUMED: dict[str, tuple[str, dict[str, Any]]] = {
    "lines": ("feedforward", {"context": "line", "dropout": 0.3, "token_dropout": 0.1}),
    "streams": ("lstm", {"context": "stream", "output_dropout": 0.3, "weight_dropout": 0.2, "device_batch": 8}),
    "learned start": ("learned start", {"context": "stream", "vary_length": True, "input_dropout": 0.2}),
    "gru": ("gru", {"context": "line", "hidden_dropout": 0.3}),
    "transformer": ("transformer", {"context": "stream", "attention_dropout": 0.3, "layer_dropout": 0.2}),
}


OPTIMISERS = ("sgd", "momentum", "rmsprop", "adam", "adamw", "muon")


@pytest.mark.parametrize(  # each with one optimiser, slowly with all; stopped at steps that take turns
    ("name", "optimiser", "at"),
    [
        pytest.param(name, one, (1, 7, 19)[(i + j) % 3], marks=[] if i == j else [pytest.mark.slow])
        for i, name in enumerate(RESUMED)
        for j, one in enumerate(OPTIMISERS)
    ],
)
def test_a_run_that_was_interrupted_goes_on_bit_for_bit(name: str, optimiser: str, at: int, tmp_path: Path) -> None:
    """Weights, the optimiser's moments and counts, what is remembered, the random generator, the best weights."""
    design, own = RESUMED[name]
    values = {"steps": 20, "validate_every": 3, "optimiser": optimiser, "weight_decay": 0.01, **own}
    whole = trainer(design, **values).run()
    with interrupted(at, match=f"stopped after step {at} of 20; go on with: chainrule resume"):
        trainer(design, **values, run=tmp_path).run()
    resumed = trainer(design, **values, run=tmp_path, resume=True).run()
    assert (resumed.state.step, resumed.state.tokens) == (20, whole.state.tokens)
    assert resumed.state.history == whole.state.history
    assert resumed.state.best_loss == whole.state.best_loss
    for expected, found in ((whole.last, resumed.last), (whole.best, resumed.best)):
        assert expected.keys() == found.keys()
        for part in expected:
            np.testing.assert_array_equal(found[part], expected[part], err_msg=part)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_heard_at_the_end_of_a_step(number: int, tmp_path: Path) -> None:
    with interrupted(5, number=number) as stopped:
        trainer(steps=20, run=tmp_path).run()
    assert stopped.value.signal == number
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000005"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_resumed_from_its_run_folder(kind: str, tmp_path: Path) -> None:
    """With all that a kind adds: the weights drawn at the beginning, the last model, its figures."""
    sizes = {"width": 8, "heads": 2, "layers": 1} if kind == "transformer" else {"embedding": 8, "hidden": 8}
    small: dict[str, Any] = {"engine": "tape", **sizes, "batch": 32, "steps": 12, "validate_every": 4}
    whole = cr.train(kind, TOY, valid=TOY, run=tmp_path / "whole", **small, tokenizer="word")
    with interrupted(6):
        cr.train(kind, TOY, valid=TOY, run=tmp_path / "run", **small, tokenizer="word")
    with pytest.raises(SettingsError, match="holds a training that can be resumed"):
        cr.train(kind, TOY, valid=TOY, run=tmp_path / "run", **small, tokenizer="word")
    resumed = cr.train(kind, TOY, valid=TOY, run=tmp_path / "run", resume=True, **small, tokenizer="word")
    assert isinstance(resumed, TapeModel)
    for name, tensor in whole.tensors().items():
        np.testing.assert_array_equal(resumed.tensors()[name], tensor, err_msg=name)
    assert resumed.metrics["steps"] == 12 and resumed.metrics["earlier_seconds"] > 0
    last = [cr.load(tmp_path / folder / "last") for folder in ("whole", "run")]
    assert [type(one) for one in last] == [TapeModel, TapeModel]
    for name, tensor in last[0].tensors().items():
        np.testing.assert_array_equal(last[1].tensors()[name], tensor, err_msg=name)
    assert last[1].metrics["validation_nats"] == last[0].metrics["validation_nats"]


@pytest.mark.parametrize(("first", "then"), [("tape", "torch"), ("torch", "tape")])
def test_a_run_of_the_other_engine_is_not_resumed(first: str, then: str, tmp_path: Path) -> None:
    small = {"embedding": 8, "hidden": 8, "batch": 32, "steps": 12}
    with interrupted(6):
        cr.train("gru", TOY, run=tmp_path, engine=first, **small, tokenizer="word")
    said = f"not the training that the checkpoint is of .*settings engine: {first} then, {then} now.*overwrite"
    with pytest.raises(TrainingError, match=said):
        cr.train("gru", TOY, run=tmp_path, resume=True, engine=then, **small, tokenizer="word")
    expected = {"tape": TapeModel, "torch": NeuralModel}[first]
    assert isinstance(
        cr.train("gru", TOY, run=tmp_path, resume=True, engine=first, **small, tokenizer="word"), expected
    )


def test_a_run_from_before_the_tape_kept_checkpoints_was_torchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint says nothing of an engine in its settings."""
    small = {"embedding": 8, "hidden": 8, "batch": 32, "steps": 12}
    with monkeypatch.context() as patched:
        identity = loop.identity
        patched.setattr(loop, "identity", lambda *given: _without_engine(identity(*given)))
        with interrupted(6):
            cr.train("gru", TOY, run=tmp_path, engine="torch", **small, tokenizer="word")
    with pytest.raises(TrainingError, match="settings engine: torch then, tape now"):
        cr.train("gru", TOY, run=tmp_path, resume=True, engine="tape", **small, tokenizer="word")
    assert (
        cr.train("gru", TOY, run=tmp_path, resume=True, engine="torch", **small, tokenizer="word").metrics["steps"]
        == 12
    )


def _without_engine(identity: dict[str, Any]) -> dict[str, Any]:
    del identity["settings"]["engine"]
    return identity


def test_a_run_folder_holds_measurements_and_the_last_model(tmp_path: Path) -> None:
    cr.train(
        "elman",
        TOY,
        valid=TOY,
        engine="tape",
        run=tmp_path / "run",
        steps=6,
        validate_every=3,
        batch=32,
        tokenizer="word",
    )
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoints",
        "last",
        "metrics.jsonl",
        "run.json",
    ]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["what"] for record in records] == ["decisions", "steps", "validation", "steps", "validation"]
    assert records[-1]["step"] == 6 and records[-2]["mfu"] is None


def test_moments_come_back_as_they_were() -> None:
    """A parameter that has not taken a step yet has none."""
    settings = settings_of("feedforward", optimiser="adam")
    _, network = twins("feedforward")
    first, *others = network.parameters.values()
    one = Optimiser([first, *others], settings)
    first.receive(np.ones(first.out_tensor.shape))
    one.step(1.0)
    assert set(one.arrays()) == {f"{first.name}.0", f"{first.name}.1"}
    other = Optimiser([first, *others], settings)
    other.load(one.arrays(), one.counts())
    assert other.counts() == one.counts() == {first.name: 1, **{each.name: 0 for each in others}}
    for name, moment in one.arrays().items():
        np.testing.assert_array_equal(other.arrays()[name], moment)
        assert not np.shares_memory(other.arrays()[name], moment)
