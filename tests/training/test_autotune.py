"""Decisions before the first step: made by timing, and without a trace in the weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainables import Bigram, Recurrent, data, feed, seeded, train

from chainrule.errors import SettingsError, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training import loop, planning
from chainrule.training.engines import base, torch_step
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.layouts import Size
from chainrule.training.objectives import Feed
from chainrule.training.planning import Autotune
from chainrule.training.run_state import Decisions, Mode, RunState


def prepared(network: Any, **values: Any) -> Autotune:
    settings = parse(TrainingSettings, {"batch": 64, "length": 8, **values})
    texts = data()
    assert texts.valid is not None
    train, valid = (
        feed(text.ids, "stream", network.window, Size(8, 64, 64)) for text in (texts.train, texts.valid)
    )
    return Autotune(TorchEngine(network, settings, "cpu"), settings, train, valid)


class Clock:
    """Stands still, unless it is moved; the clock of decisions and of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (planning, base, loop):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))


def decided(monkeypatch: pytest.MonkeyPatch, seconds: Any, **values: Any) -> Decisions:
    """With a machine whose steps take so long: by whether they are in bfloat16."""
    Clock(monkeypatch)
    rehearsed = prepared(seeded(Bigram), **values)
    monkeypatch.setattr(rehearsed, "seconds", lambda mode, **_: seconds[mode.bfloat16])
    monkeypatch.setattr(rehearsed, "_validated_per_second", lambda mode: 1e6)
    return rehearsed.decide()


@pytest.mark.parametrize(
    ("seconds", "steps", "expected"),
    [
        ({False: 1.0, True: 0.5}, 100, True),  # long enough, and faster
        ({False: 1.0, True: 0.97}, 100, False),  # hardly faster
        ({False: 1.0, True: 2.0}, 100, False),
        ({False: 1.0, True: 0.5}, 20, False),  # too short to try
    ],
)
def test_a_cpu_takes_bfloat16_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, seconds: Any, steps: int, expected: bool
) -> None:
    monkeypatch.setattr(torch_step, "has_fast_bfloat16", lambda: True)
    found = decided(monkeypatch, seconds, steps=steps)
    assert found.bfloat16 == expected
    assert ("bfloat16_step_seconds" in found.measured) == (steps == 100)


@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_a_precision_that_is_asked_for_is_not_questioned(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    found = decided(monkeypatch, {}, steps=10**6, precision=wanted, compile="no")
    assert found.bfloat16 == (wanted == "bfloat16")


def test_a_run_that_goes_on_is_paced_anew() -> None:
    """After 100 of 110 steps; an epoch has 12 steps."""
    state = RunState(Decisions(False, False, False, 110, 11, {"kept": 1}), step=100, seconds=20.0)
    for values, expected in (
        ({"minutes": 2}, (None, None)),
        ({"minutes": 2, "steps": 500}, (500, None)),
        ({"steps": 500}, (500, 12)),
        ({"epochs": 20}, (240, 12)),
        ({"steps": 500, "validate_every": 7}, (500, 7)),
    ):
        tuned = prepared(seeded(Bigram), **values)
        found = tuned.decide_anew(state, {*values, "clip"})
        assert (found.total, found.validate_every) == expected
        assert found.measured["kept"] == 1
        assert tuned.decide_anew(state, {"clip", "patience"}) == replace(state.decisions, measured=found.measured)


def test_a_run_that_goes_on_has_something_left() -> None:
    done = "100 steps are done, and no more are asked for: set more steps, epochs or minutes"
    state = RunState(Decisions(False, False, False, 110, 11, {}), step=100, seconds=60.0)
    for values in ({"steps": 99}, {"minutes": 1, "steps": 500}, {"minutes": 1}):
        with pytest.raises(SettingsError, match=done):
            prepared(seeded(Bigram), **values).decide_anew(state, set(values))
    assert prepared(seeded(Bigram), steps=100).decide_anew(state, {"steps"}).total == 100


@pytest.mark.parametrize("changed", ["precision", "compile"])
def test_precision_and_compilation_may_change_on_resume(changed: str) -> None:
    state = RunState(Decisions(False, False, False, 40, 4, {}), step=10)
    values = {"precision": {"precision": "bfloat16"}, "compile": {"compile": "yes"}}[changed]
    rehearsed = prepared(seeded(Bigram), steps=40, **values)
    found = rehearsed.decide_anew(state, {changed})
    assert (found.bfloat16, found.compiled) == (changed == "precision", changed == "compile")
    assert (found.total, found.validate_every) == (40, 4)
    assert rehearsed.decide_anew(state, {"steps"}).compiled is False


def test_validations_take_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation reads 1,000 tokens a second: in a minute there are 3 seconds, for 3,000 tokens."""
    tuned = prepared(seeded(Bigram), minutes=1)
    assert tuned.valid is not None
    whole = tuned.valid.layout.tokens
    monkeypatch.setattr(tuned, "_validated_per_second", lambda mode: 1000.0)
    found = tuned.decide()
    assert found.validations == max(1, min(10, 3000 // whole))
    assert found.validation_tokens is None  # the text is short
    monkeypatch.setattr(planning, "FEWEST_VALIDATION_TOKENS", 20)
    monkeypatch.setattr(tuned, "_validated_per_second", lambda mode: 100.0)
    found = tuned.decide()
    assert (found.validations, found.validation_tokens) == (10, 30)
    # without a clock, a twentieth of the tokens of the run, each for a third of the price: 20 steps of 64 tokens
    tuned = prepared(seeded(Bigram), steps=20)
    found = tuned.decide()
    assert (found.validations, found.validation_tokens) == (9, 0.05 * 3 * 20 * 64 // 9)
    assert prepared(seeded(Bigram), steps=20, validate_every=3).decide().validation_tokens is None


def test_minutes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 0.1 s a step, and by 0.02 s a step of a validation; a trial takes its time too."""
    clock, take_step, mean_nats = Clock(monkeypatch), TorchEngine.take_step, TorchEngine.mean_nats
    rates: list[float] = []

    def slow_step(self: TorchEngine, feed: Feed, step: Any, rate: float, place: Any) -> None:
        take_step(self, feed, step, rate, place)
        clock.now += 0.1
        rates.append(rate)

    def slow_validation(self: TorchEngine, texts: Feed, most_steps: int | None = None) -> float:
        clock.now += 0.02 * len(texts.layout.validation(most_steps))
        return mean_nats(self, texts, most_steps)

    monkeypatch.setattr(TorchEngine, "take_step", slow_step)
    monkeypatch.setattr(TorchEngine, "mean_nats", slow_validation)
    values = {"batch": 64, "length": 8, "minutes": 1, "schedule": "linear", "precision": "float32"}
    began = clock.now
    trained = train(seeded(Bigram), parse(TrainingSettings, values), data())
    assert trained.state.decisions.total is None
    assert trained.state.seconds == clock.now - began == pytest.approx(60, abs=0.2)
    assert 560 < trained.state.step < 600
    # the schedule ends when the time does
    assert rates[len(rates) // 2] == pytest.approx(0.5, abs=0.05)
    assert 0 < rates[-1] < 0.01
    # ten validations, the first a tenth into the run
    assert len(trained.state.history) == 10
    assert [entry["step"] for entry in trained.state.history] == pytest.approx(
        [60 * i for i in range(1, 11)], abs=15
    )


def test_a_machine_that_slows_down_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, take_step = Clock(monkeypatch), TorchEngine.take_step

    def ever_slower(self: TorchEngine, *arguments: Any) -> None:
        take_step(self, *arguments)
        clock.now += 0.01 + (clock.now - 1000) / 10

    monkeypatch.setattr(TorchEngine, "take_step", ever_slower)
    trained = train(seeded(Bigram), parse(TrainingSettings, {"batch": 64, "length": 8, "minutes": 1}), data())
    assert trained.state.seconds <= 60 * 1.1 + 0.1  # the last step takes a tenth of the time
    assert trained.state.history[-1]["step"] == trained.state.step


def test_of_minutes_and_steps_the_first_to_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, take_step = Clock(monkeypatch), TorchEngine.take_step

    def slow_step(self: TorchEngine, *arguments: Any) -> None:
        take_step(self, *arguments)
        clock.now += 1.0

    monkeypatch.setattr(TorchEngine, "take_step", slow_step)
    values = {"batch": 64, "length": 8, "precision": "float32"}  # a trial of another one would take its time
    limits = {"minutes": 10, "steps": 50}, {"minutes": 1, "steps": 500}
    runs = [train(seeded(Bigram), parse(TrainingSettings, {**values, **one}), data()) for one in limits]
    assert [run.state.step for run in runs] == [50, 60]


def test_there_is_one_step_however_short_the_time() -> None:
    trained = train(
        seeded(Bigram),
        parse(TrainingSettings, {"batch": 64, "length": 8, "minutes": 1e-9}),
        data(),
    )
    assert trained.state.step == len(trained.state.history) == 1


@pytest.mark.parametrize("make", [Bigram, Recurrent])
def test_a_rehearsal_leaves_no_trace(make: Any) -> None:
    network = seeded(make, dropout=0.5)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    prepared(network, minutes=0.01).decide()
    assert torch.equal(torch.rand(2), expected)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_long_run_on_a_gpu_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed = prepared(seeded(Bigram), steps=1000)
    monkeypatch.setattr(rehearsed.engine, "torch_device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)

    def timed(eager: float, compiled: float) -> Decisions:
        monkeypatch.setattr(rehearsed, "seconds", lambda mode, **_: compiled if mode.compiled else eager)
        return rehearsed.decide()

    assert timed(0.31, 0.2).compiled  # 310 s
    assert not timed(0.29, 0.2).compiled
    assert not timed(0.31, 0.31).compiled  # nothing gained


@pytest.mark.parametrize(("minutes", "compiled", "expected"), [(30, 0.8, True), (29, 0.8, False), (30, 1.0, False)])
def test_half_an_hour_on_a_cpu_is_compiled(
    minutes: float, compiled: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = prepared(seeded(Bigram), minutes=minutes, precision="float32")
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    monkeypatch.setattr(rehearsed, "seconds", lambda mode, **_: compiled if mode.compiled else 1.0)
    assert rehearsed.decide().compiled == expected


@pytest.mark.parametrize("error", [RuntimeError, TrainingError])
def test_what_cannot_be_compiled_is_run_as_it_is(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed = prepared(seeded(Bigram), steps=10**6)
    monkeypatch.setattr(rehearsed.engine, "torch_device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)

    def timed(mode: Mode, **_: Any) -> float:
        if mode.compiled:
            raise error("Failed to find a C compiler\nand more")
        return 1.0

    monkeypatch.setattr(rehearsed, "seconds", timed)
    found = rehearsed.decide()
    assert not found.compiled
    assert found.measured["compile_error"] == "Failed to find a C compiler"


def test_a_cpu_that_is_slow_in_bfloat16_does_not_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_step, "has_fast_bfloat16", lambda: False)
    found = decided(monkeypatch, {False: 1.0}, steps=100)
    assert not found.bfloat16
