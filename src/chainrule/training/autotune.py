"""Decisions made before the first step: how steps are computed, and how many of them fit into the time.

Decisions are made by timing a few steps on real batches; weights and random generators are then put back as they
were. A run that is resumed keeps its decisions, so that it depends only on its steps and no longer on the clock,
unless the settings behind a decision have changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from chainrule.designs.training import HOW_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.pace import Times, between_validations, pace, planned_steps
from chainrule.training.run_state import Decisions, Mode, Place, RunState

_TIMED_SECONDS, _TIMED_STEPS = 1.0, 20
_TIMED_VALIDATION_STEPS = 5


class Autotune:
    """Makes the decisions for an engine, its settings and its texts."""

    def __init__(self, engine: Engine, settings: TrainingSettings, train: Feed, valid: Feed | None) -> None:
        self.engine, self.settings, self.train, self.valid = engine, settings, train, valid
        self.measured: dict[str, Any] = {}

    def decide(self) -> Decisions:
        """All decisions for a run that begins."""
        began = time.perf_counter()
        mode = self.engine.choose_mode(self.train, self)
        total, every = self._pace(mode, began)
        return Decisions.of(mode, total, every, self.measured)

    def decide_anew(self, state: RunState, changed: Set[str]) -> Decisions:
        """The decisions of a run that continues; only those that depend on a changed setting are made again."""
        decided = state.decisions
        if changed & set(HOW_COMPUTED):
            mode = self.engine.choose_mode(self.train, self)
            decided = Decisions.of(mode, decided.total, decided.validate_every, decided.measured)
        if changed & set(HOW_LONG):
            total, every = self._pace(decided.mode, time.perf_counter() - state.seconds, state.step)
            decided = replace(decided, total=total, validate_every=every)
        elif "validate_every" in changed:
            every = between_validations(self.settings, self.train.layout, decided.total)
            decided = replace(decided, validate_every=every)
        return replace(decided, measured={**decided.measured, **self.measured})

    def _pace(self, mode: Mode, began: float, done: int = 0) -> tuple[int, int]:
        """The steps of the run and the steps between validations; `done` steps were taken before."""
        times = None if self.settings.minutes is None else self._times(mode, began)
        return pace(self.settings, self.train.layout, times, done)

    def _times(self, mode: Mode, began: float) -> Times:
        """The seconds of a step and of a validation, and those left of the minutes that started at `began`."""
        assert self.settings.minutes is not None
        seconds, validation = self.seconds(mode), self._validation_seconds(mode)
        self.note({"step_seconds": seconds, "validation_seconds": validation})
        return Times(seconds, validation, began + 60 * self.settings.minutes - time.perf_counter())

    def _validation_seconds(self, mode: Mode) -> float:
        """The seconds of a validation, extrapolated from its first steps."""
        if self.valid is None:
            return 0.0
        steps = self.valid.layout.count(None)
        timed = min(steps, _TIMED_VALIDATION_STEPS)
        with self.engine.trial(mode) as trial:
            began = time.perf_counter()
            trial.mean_nats(self.valid, timed)
            return (time.perf_counter() - began) * steps / timed

    # -- what an engine may ask ---------------------------------------------------------------------------

    def seconds(self, mode: Mode, at_most: int = _TIMED_STEPS) -> float:
        """The mean seconds of a step; warm-up steps, which allocate memory and compile code, do not count."""
        epoch, first, began = self.train.layout.epoch(0), 1 if mode.recorded else 0, 0.0
        with self.engine.trial(mode) as trial:
            for number in range(1 + first + at_most):
                batch = number % len(epoch)
                # at a learning rate of 0 no weight changes
                trial.take_step(self.train, epoch[batch], 0.0, Place(number + 1, 0, batch))
                if batch + 1 == len(epoch):
                    trial.forget()
                if number == first:
                    trial.wait()
                    began = time.perf_counter()
                elif number > first and time.perf_counter() - began > _TIMED_SECONDS:
                    break
            trial.wait()
            return (time.perf_counter() - began) / (number - first)

    def expected(self, mode: Mode) -> float:
        """About how many seconds the run takes."""
        if self.settings.minutes is not None:
            return 60 * self.settings.minutes
        planned = planned_steps(self.settings, self.train.layout)
        assert planned is not None
        return planned * self.seconds(mode, at_most=2)

    def note(self, figures: Mapping[str, Any]) -> None:
        """Keep measurements, for the record of the run."""
        self.measured |= figures
