"""Decisions before the first step: made by timing, and without a trace in the weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainables import TOKENIZER, Bigram, Recurrent, data, feed, seeded, train

from chainrule.designs.training import TrainingSettings
from chainrule.errors import SettingsError, TrainingError
from chainrule.settings import parse
from chainrule.training import autotune, loop
from chainrule.training.autotune import Autotune
from chainrule.training.batches.layouts import Size, choose_layout
from chainrule.training.engines import torch_mode
from chainrule.training.engines.base import Feed, validation_steps
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.pace import Times, pace
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
        for module in (autotune, loop):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))


def decided(monkeypatch: pytest.MonkeyPatch, seconds: Any, validation: float = 0.0, **values: Any) -> Decisions:
    """With a machine whose steps take so long: by whether they are in bfloat16."""
    Clock(monkeypatch)
    rehearsed = prepared(seeded(Bigram), **values)
    monkeypatch.setattr(rehearsed, "seconds", lambda mode, **_: seconds[mode.bfloat16])
    monkeypatch.setattr(rehearsed, "_validation_seconds", lambda mode: validation)
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
    monkeypatch.setattr(torch_mode, "has_fast_bfloat16", lambda: True)
    found = decided(monkeypatch, seconds, steps=steps)
    assert found.bfloat16 == expected
    assert ("bfloat16_step_seconds" in found.measured) == (steps == 100)


@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_a_precision_that_is_asked_for_is_not_questioned(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    found = decided(monkeypatch, {}, steps=10**6, precision=wanted, compile="no")
    assert found.bfloat16 == (wanted == "bfloat16")


def test_minutes_become_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes at 1 s a step: an epoch of 12 steps takes 13 s with its validation."""
    found = decided(monkeypatch, {False: 1.0}, 1.0, minutes=10, precision="float32")
    epochs = 600 / 13
    assert found.total == int(600 - epochs)
    assert found.validate_every == 12


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"minutes": 2}, (1100, 12)),  # of two minutes 20 s are gone; an epoch has 12 steps
        ({"minutes": 2, "steps": 500}, (500, 12)),
        ({"minutes": 2, "steps": 5000}, (1100, 12)),
        ({"steps": 500}, (500, 12)),
        ({"epochs": 20}, (240, 12)),
        ({"steps": 500, "validate_every": 7}, (500, 7)),
    ],
    ids=str,
)
def test_a_run_that_goes_on_is_paced_anew(
    values: dict[str, Any], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = RunState(Decisions(False, False, False, 110, 11, {"kept": 1}), step=100, seconds=20.0)
    Clock(monkeypatch)
    rehearsed = prepared(seeded(Bigram), **values)
    monkeypatch.setattr(rehearsed, "seconds", lambda mode, **_: 0.1)
    monkeypatch.setattr(rehearsed, "_validation_seconds", lambda mode: 0.0)
    found = rehearsed.decide_anew(state, {*values, "clip"})
    assert (found.total, found.validate_every) == expected
    assert found.measured["kept"] == 1
    alone = rehearsed.decide_anew(state, {"validate_every"})  # minutes do not count, nor steps
    assert (alone.total, alone.validate_every) == (110, values.get("validate_every", 11))
    assert rehearsed.decide_anew(state, {"clip", "patience"}) == replace(state.decisions, measured=found.measured)


def test_a_run_with_time_to_spare_validates_as_without_a_clock() -> None:
    layout, settings = prepared(seeded(Bigram)).train.layout, parse(TrainingSettings, {"minutes": 60, "steps": 50})
    assert pace(settings, layout, Times(0.1, 0.01, 3600)) == pace(settings, layout, None) == (50, 5)
    assert pace(settings, layout, Times(0.1, 100, 3600)) == (50, 7)  # of an hour, a fifth is enough for seven


def test_a_run_that_goes_on_has_steps_left() -> None:
    layout = prepared(seeded(Bigram)).train.layout
    done = "100 steps are done, and no more are asked for: set more steps, epochs or minutes"
    with pytest.raises(SettingsError, match=done):
        pace(parse(TrainingSettings, {"steps": 99}), layout, None, done=100)
    with pytest.raises(SettingsError, match=done):
        pace(parse(TrainingSettings, {"minutes": 1, "steps": 500}), layout, Times(0.1, 0.1, -1.0), done=100)
    assert pace(parse(TrainingSettings, {"steps": 100}), layout, None, done=100)[0] == 100
    assert pace(parse(TrainingSettings, {"minutes": 1}), layout, Times(0.1, 0.1, -1.0))[0] == 1


def test_validations_are_paced_by_the_steps_that_are_left() -> None:
    long = choose_layout(np.zeros(10**6, np.uint16), TOKENIZER.eos, "stream", 8, Size(8, 64, 64), 0)
    minutes = parse(TrainingSettings, {"minutes": 5})
    assert pace(minutes, long, Times(1.0, 0.0, 100.0), done=1000) == (1100, 10)  # ten in what is left


@pytest.mark.parametrize("changed", ["precision", "compile"])
def test_how_to_compute_may_be_told_anew(changed: str) -> None:
    state = RunState(Decisions(False, False, False, 40, 4, {}), step=10)
    values = {"precision": {"precision": "bfloat16"}, "compile": {"compile": "yes"}}[changed]
    rehearsed = prepared(seeded(Bigram), steps=40, **values)
    found = rehearsed.decide_anew(state, {changed})
    assert (found.bfloat16, found.compiled) == (changed == "precision", changed == "compile")
    assert (found.total, found.validate_every) == (40, 4)
    assert rehearsed.decide_anew(state, {"steps"}).compiled is False


def test_validations_take_a_fifth_of_the_minutes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 s, a validation takes 4 s: three of them, and 48 steps of a second."""
    found = decided(monkeypatch, {False: 1.0}, 4.0, minutes=1, precision="float32", batch=8)
    assert found.total == 48
    assert found.validate_every == 12  # an epoch: less than a third


def test_of_minutes_and_steps_the_first_to_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decided(monkeypatch, {False: 1.0}, minutes=10, steps=50, precision="float32").total == 50
    assert decided(monkeypatch, {False: 1.0}, minutes=1, steps=500, precision="float32").total == 60


def test_minutes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 0.1 s a step, and by 0.02 s a step of a validation; a trial takes its time too."""
    clock, take_step, mean_nats = Clock(monkeypatch), TorchEngine.take_step, TorchEngine.mean_nats

    def slow_step(self: TorchEngine, *arguments: Any) -> None:
        take_step(self, *arguments)
        clock.now += 0.1

    def slow_validation(self: TorchEngine, texts: Feed, most_steps: int | None = None) -> float:
        clock.now += 0.02 * len(validation_steps(texts.layout, most_steps))
        return mean_nats(self, texts, most_steps)

    monkeypatch.setattr(TorchEngine, "take_step", slow_step)
    monkeypatch.setattr(TorchEngine, "mean_nats", slow_validation)
    settings = parse(TrainingSettings, {"batch": 64, "length": 8, "minutes": 1})
    began = clock.now
    trained = train(seeded(Bigram), settings, data())
    assert trained.decisions["total"] == trained.steps >= 1
    assert trained.decisions["measured"]["step_seconds"] == pytest.approx(0.1)
    assert trained.decisions["measured"]["validation_seconds"] == pytest.approx(0.02 * 4)
    assert trained.seconds < clock.now - began
    assert 59 < clock.now - began < 61


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
    monkeypatch.setattr(torch_mode, "has_fast_bfloat16", lambda: False)
    found = decided(monkeypatch, {False: 1.0}, steps=100)
    assert not found.bfloat16
