"""The loop as a whole: it learns, counts, stops, averages, and says what went wrong."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainables import TOKENIZER, Bigram, Recurrent, data, encoded, feed, seeded, train

from chainrule.contract.data import TrainingData
from chainrule.errors import SettingsError, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.layouts import Size
from chainrule.training.loop import READ_SECONDS, Loop, Trained
from chainrule.training.run_state import Mode
from chainrule.training.schedule import factor

SIZE = Size(8, 64, 64)
"""Of the batches that the settings below make."""


def settings(**values: Any) -> TrainingSettings:
    """In float32, unless they say otherwise: which precision is faster depends on the clock."""
    own = {"batch": 64, "length": 8, "learning_rate": 0.02, "precision": "float32"}
    return parse(TrainingSettings, {**own, **values})


def same(one: Trained, other: Trained) -> bool:
    return all(np.array_equal(one.last[name], other.last[name]) for name in one.last)


def mean_nats(network: Bigram, ids: np.ndarray) -> float:
    """Of a network that reads windows, on a text of which every token is a target."""
    engine = TorchEngine(network, settings(), "cpu")
    engine.start(Mode())
    return engine.mean_nats(feed(ids, "stream", 8, SIZE))


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_it_learns(make: Any, context: Any) -> None:
    """Nine times in ten the next letter follows: the loss falls far below that of guessing, ln 10."""
    network = seeded(make)
    trained = train(network, settings(epochs=10, precision="auto"), data(context))
    losses = [record["validation_loss"] for record in trained.state.history]
    assert losses[0] > losses[-1]
    assert trained.state.best_loss == min(losses) < 1.2 < math.log(10)
    assert trained.state.tokens == 10 * len(data().train.ids)
    assert trained.state.step == trained.state.history[-1]["step"] == trained.state.decisions.total
    assert not network.training


def test_the_network_holds_the_best_weights() -> None:
    network = seeded(Bigram)
    trained = train(network, settings(epochs=40, learning_rate=1.0, schedule="constant"), data())
    assert trained.state.best_loss is not None
    assert trained.state.best_loss < trained.state.history[-1]["validation_loss"]
    for name, tensor in network.state_dict().items():
        assert np.array_equal(tensor.numpy(), trained.best[name])
    assert not np.array_equal(trained.best["embed.weight"], trained.last["embed.weight"])


def test_without_held_out_text_the_last_weights_are_the_best() -> None:
    trained = train(seeded(Bigram), settings(epochs=2), data(valid=False))
    assert trained.state.best_loss is None
    assert all(np.array_equal(trained.best[name], trained.last[name]) for name in trained.last)


@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_the_seed_decides_everything(make: Any) -> None:
    one, again, other = (
        train(seeded(make, dropout=0.3), settings(epochs=2), data(seed=seed)) for seed in (1, 1, 2)
    )
    assert same(one, again)
    assert one.state.history == again.state.history
    assert not same(one, other)


def test_chance_outside_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    network = seeded(Bigram, dropout=0.5)
    torch.manual_seed(5)
    train(network, settings(epochs=1, precision="auto"), data())
    assert torch.equal(torch.rand(3), expected)


def test_a_step_in_parts_trains_as_one_at_once() -> None:
    """To rounding: Adam makes little of it in a few steps."""
    whole, parts = (
        train(seeded(Recurrent), settings(steps=5, device_batch=size, optimiser="sgd"), data())
        for size in (None, 16)
    )
    for name, array in whole.last.items():
        np.testing.assert_allclose(parts.last[name], array, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("values", "steps"),
    [({"steps": 7}, 7), ({"steps": 7, "epochs": 3}, 7), ({"epochs": 2.5}, 30), ({"epochs": 0.01}, 1)],
)
def test_how_long(values: dict[str, Any], steps: int) -> None:
    """753 tokens are 95 windows of 8 or so: twelve steps of eight windows an epoch."""
    assert train(seeded(Bigram), settings(**values), data()).state.step == steps


def test_a_run_validates_ten_times_or_once_an_epoch() -> None:
    assert len(train(seeded(Bigram), settings(epochs=1), data()).state.history) >= 10
    assert len(train(seeded(Bigram), settings(epochs=15), data()).state.history) == 15
    every = train(seeded(Bigram), settings(steps=7, validate_every=3), data()).state.history
    assert [record["step"] for record in every] == [3, 6, 7]


def test_time_for_the_last_validation_is_left_from_the_first_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    left, run = [], Loop.run

    def noted(self: Loop) -> None:
        assert self.valid is not None
        assert self.threads is not None  # by the clock, it may choose how many
        left.append(self.validation_seconds / self.valid.layout.tokens)
        run(self)

    monkeypatch.setattr(Loop, "run", noted)
    trained = train(seeded(Bigram), settings(minutes=0.01), data())
    assert left == [pytest.approx(1 / trained.state.decisions.measured["validation_tokens_per_second"])]


@pytest.mark.parametrize(("left", "seconds"), [(2.9 * READ_SECONDS, 0.1), (3.1 * READ_SECONDS, 1.0), (None, 1.0)])
def test_losses_are_read_more_often_near_the_end(left: float | None, seconds: float) -> None:
    """`seconds` between two reads, as a multiple of the usual time, with so many left."""
    run = SimpleNamespace(
        pace=SimpleNamespace(seconds=None if left is None else 100 + left), _elapsed=lambda: 100.0
    )
    assert Loop._between_reads(run) == seconds * READ_SECONDS  # type: ignore[arg-type]


def test_hours_that_nobody_asked_for_are_said_once() -> None:
    notes: list[str] = []
    job = SimpleNamespace(
        settings=SimpleNamespace(minutes=None), data=SimpleNamespace(progress=SimpleNamespace(note=notes.append))
    )
    run = SimpleNamespace(
        job=job, pace=SimpleNamespace(steps=10_100), first=100, stepping=50.0, is_warned=False,
        state=SimpleNamespace(step=102), now=54.0,
    )  # fmt: skip
    for run.now in (54.0, 60.0, 61.0):  # after the first seconds: two steps in ten
        Loop._warn_of_hours(run)  # type: ignore[arg-type]
    (note,) = notes
    assert note.startswith("about 13.9 hours at this speed")


@pytest.mark.parametrize(
    ("share", "is_due"),
    [(0.59, False), (0.61, True), (0.94, True), (0.96, False)],
    ids=["early", "due", "late", "last"],
)
def test_a_run_by_the_clock_validates_after_a_share_of_it(share: float, is_due: bool) -> None:
    """And not shortly before the last validation."""
    decisions = SimpleNamespace(validate_every=None, validations=10)
    run = SimpleNamespace(
        state=SimpleNamespace(decisions=decisions, validated=0.5), is_over=False, _share=lambda: share
    )
    assert Loop._is_validation_due(run) == is_due  # type: ignore[arg-type]


def test_the_loss_of_training_is_the_mean_since_the_last_validation() -> None:
    """At a learning rate of almost nothing every step sees the same weights: the mean is the loss of the text."""
    network = seeded(Bigram)
    expected = mean_nats(network, data().train.ids)
    trained = train(network, settings(epochs=1, learning_rate=1e-12, validate_every=1000), data())
    assert trained.state.history[0]["loss"] == pytest.approx(expected, abs=0.02)  # the last batch is smaller


def test_patience_ends_a_run() -> None:
    trained = train(
        seeded(Bigram),
        settings(steps=500, validate_every=1, learning_rate=1.0, patience=3),
        data(),
    )
    losses = [record["validation_loss"] for record in trained.state.history]
    assert trained.state.step < 500
    assert losses.index(min(losses)) == len(losses) - 1 - 3


def test_averaged_weights_are_what_is_validated_and_kept() -> None:
    plain, averaged = (
        train(seeded(Bigram), settings(steps=20, average=kind, validate_every=20), data())
        for kind in ("none", "tail")
    )
    assert same(plain, averaged)  # the average does not disturb training
    assert plain.state.best_loss != averaged.state.best_loss
    network = seeded(Bigram)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in averaged.best.items()})
    valid = data().valid
    assert valid is not None
    assert mean_nats(network, valid.ids) == averaged.state.best_loss


def test_validation_is_the_mean_over_every_token() -> None:
    """Against the sum over single tokens, of a network that only looks at the token before."""
    network, valid = seeded(Bigram).eval(), data().valid
    assert valid is not None
    ids = torch.from_numpy(valid.ids.astype(np.int64))
    before = torch.cat([torch.tensor([TOKENIZER.eos]), ids[:-1]])
    nats = sum(network.loss(i[None, None], t[None, None]).nats.item() for i, t in zip(before, ids, strict=True))
    trained = train(network, settings(steps=1, learning_rate=1e-12), data())
    assert trained.state.best_loss == pytest.approx(nats / len(ids), abs=1e-4)


class Broken(Bigram):
    """Gives no number from a step on."""

    calls = 0

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        self.calls += self.training
        loss = super().loss(inputs_BT, targets_BT, memory)
        return loss._replace(nats=loss.nats * math.nan) if self.calls == 16 else loss


def test_a_loss_that_is_no_number_names_the_batch() -> None:
    """There are twelve batches an epoch: the sixteenth is number 3 of epoch 1."""
    with pytest.raises(TrainingError, match=r"step 16 \(epoch 1, batch 3\): the loss is not a finite number"):
        train(seeded(Broken), settings(epochs=3, precision="float32"), data())


class Greedy(Bigram):
    """Has memory for 20 tokens only."""

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        if inputs_BT.numel() > 20:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return super().loss(inputs_BT, targets_BT, memory)


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_too_little_memory_says_what_would_fit(precision: str) -> None:
    """In the first step, and in those that are tried before it."""
    with pytest.raises(TrainingError, match=r"step 1 .*: 64 tokens at once do not fit .*set device_batch=16"):
        train(seeded(Greedy), settings(precision=precision), data())
    train(seeded(Greedy), settings(steps=2, device_batch=16, precision=precision), data())


class Crowded(Bigram):
    """Has memory for 20 tokens of held-out text only, as where averaged weights take up the rest."""

    error: Exception = torch.OutOfMemoryError("CUDA out of memory")

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        if not self.training and inputs_BT.numel() > 20:
            raise self.error
        return super().loss(inputs_BT, targets_BT, memory)


@pytest.mark.parametrize("context", ["line", "stream"])
def test_too_little_memory_for_the_held_out_text_is_said(context: Any) -> None:
    """Whoever does what the errors say gets there."""
    values: dict[str, Any] = {"batch": 128, "steps": 2}
    for _ in range(4):
        try:
            train(seeded(Crowded), settings(**values), data(context))
            break
        except TrainingError as error:
            expected = r"step \d+: the held-out text: (\d+) tokens at once do not fit .*; set device_batch=(\d+)"
            found = re.fullmatch(expected, str(error))
            assert found is not None, error
            assert int(found[2]) == int(found[1]) // 2 < values.get("device_batch", 128)
            values["device_batch"] = int(found[2])
    assert values["device_batch"] <= 20


def test_a_row_of_held_out_text_that_does_not_fit_is_said() -> None:
    network = seeded(Crowded)
    network.window = 32
    with pytest.raises(TrainingError, match=r"32 tokens at once do not fit .*; set a smaller length"):
        train(network, settings(length=32, batch=32, steps=2), data())


def test_what_else_goes_wrong_with_the_held_out_text_is_as_it_is() -> None:
    network = seeded(Crowded)
    network.error = RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        train(network, settings(steps=2), data())


def test_bfloat16_trains_about_as_well() -> None:
    full, half = (
        train(seeded(Bigram), settings(epochs=5, precision=precision), data())
        for precision in ("float32", "bfloat16")
    )
    assert half.state.decisions.bfloat16
    assert full.state.best_loss == pytest.approx(half.state.best_loss, abs=0.02)
    assert not same(full, half)


def test_a_length_beyond_the_window_is_refused() -> None:
    with pytest.raises(SettingsError, match="length should be at most 8"):
        train(seeded(Bigram), settings(length=9), data())


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_a_text_of_one_line_is_enough(make: Any, context: Any) -> None:
    tiny = TrainingData(TOKENIZER, encoded([3, TOKENIZER.eos]), encoded([TOKENIZER.eos]), context)
    trained = train(seeded(make), settings(epochs=3), tiny)
    assert (trained.state.step, trained.state.tokens) == (3, 6)


def test_only_streams_have_lengths_that_vary() -> None:
    with pytest.raises(SettingsError, match="vary_length is for a network that carries its memory"):
        train(seeded(Bigram), settings(vary_length=True), data())


def test_lengths_that_vary_change_nothing_but_the_cuts() -> None:
    trained = train(seeded(Recurrent), settings(epochs=2, vary_length=True), data())
    assert trained.state.tokens == 2 * len(data().train.ids)


def loop_by_hand(network: Any, chosen: TrainingSettings) -> float:
    """Plain gradient descent, a step after the other; the loss on the held-out text at the end."""
    given = data()
    assert given.valid is not None and chosen.steps is not None
    text = feed(given.train.ids, "stream", None, SIZE, vary=chosen.vary_length)
    done, number, network = 0, 0, network.train()
    while done < chosen.steps:
        epoch, memory = text.layout.epoch(number), None
        for step in (epoch[i] for i in range(min(len(epoch), chosen.steps - done))):
            found = network.loss(*text.gatherer.batch(step.parts[0]), memory)
            (found.nats / step.targets).backward()
            rate = chosen.rate * factor(chosen.schedule, done, chosen.steps, chosen.warmup) * step.scale
            with torch.no_grad():
                for weight in network.parameters():
                    weight -= rate * weight.grad
                    weight.grad = None
            memory, done = found.memory.detach(), done + 1
        number += 1
    text = feed(given.valid.ids, "stream", None, SIZE, vary=chosen.vary_length)
    epoch, memory, nats = text.layout.epoch(None), None, 0.0
    with torch.no_grad():
        for step in (epoch[i] for i in range(len(epoch))):
            found = network.eval().loss(*text.gatherer.batch(step.parts[0]), memory)
            nats, memory = nats + found.nats.item(), found.memory
    return nats / len(given.valid.ids)


@pytest.mark.parametrize("vary", [False, True])
def test_the_loop_is_that_by_hand(vary: bool) -> None:
    """Memory is carried on in an epoch and not into the next, and the learning rate goes as it should."""
    chosen = settings(
        steps=40, optimiser="sgd", learning_rate=2.0, clip=0, schedule="linear", warmup=0.2, vary_length=vary
    )
    one, other = seeded(Recurrent), seeded(Recurrent)
    trained = train(one, chosen, data())
    loss = loop_by_hand(other, chosen)
    assert trained.state.decisions.total == 40 > 3 * len(data().train.ids) / 64  # several epochs
    assert trained.state.history[-1]["validation_loss"] == pytest.approx(loss, abs=1e-6)
    for name, weight in other.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(trained.last[name]), weight, rtol=1e-5, atol=1e-6)


class Exploding(Bigram):
    """Its loss is a number, the gradient is none."""

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        loss = super().loss(inputs_BT, targets_BT, memory)
        zero = self.hidden.bias.sum() * 0
        return loss._replace(nats=loss.nats + zero.sqrt())  # whose slope is infinite


def test_a_gradient_that_is_no_number_names_the_batch() -> None:
    with pytest.raises(TrainingError, match=r"step 1 \(epoch 0, batch 0\): the gradient is not a finite number"):
        train(seeded(Exploding), settings(steps=3), data())


class Unmeasurable(Bigram):
    """Trains, but cannot be validated."""

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        loss = super().loss(inputs_BT, targets_BT, memory)
        return loss if self.training else loss._replace(nats=loss.nats * math.nan)


def test_a_validation_that_is_no_number_ends_the_run() -> None:
    with pytest.raises(TrainingError, match="step 4: the loss on the held-out text is not a finite number"):
        train(seeded(Unmeasurable), settings(steps=8, validate_every=4), data())


def test_samples_are_written_in_evaluation_and_disturb_nothing() -> None:
    seen = []
    network = seeded(Bigram, dropout=0.3)

    def sample() -> str:
        seen.append((network.training, torch.rand(1).item()))
        return "text"

    chosen = settings(steps=12, validate_every=4)
    plain = train(seeded(Bigram, dropout=0.3), chosen, data())
    sampled = train(network, settings(steps=12, validate_every=4, sample_every=1), data(), sample=sample)
    assert [training for training, _ in seen] == [False] * 3
    assert same(plain, sampled)
