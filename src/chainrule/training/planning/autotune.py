"""Decisions made before the first step: how steps are computed, how long the run is, what validations read.

Some decisions take a measurement: a few steps on real batches are timed, and weights and random generators are
then put back as they were. A run that is resumed keeps its decisions, unless the settings behind one have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

from chainrule.contract.kinds import TrainingData
from chainrule.errors import TrainingError
from chainrule.networks.defaults import TIMED_STEPS, TIMED_TOKENS
from chainrule.networks.training_settings import HOW_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.training.engines.base import Engine
from chainrule.training.examples import Texts
from chainrule.training.objectives import Feed
from chainrule.training.planning.pace import (
    FEWEST_VALIDATION_TOKENS,
    VALIDATION_SHARE,
    VALIDATIONS,
    between_validations,
    check_something_is_left,
    planned_steps,
)
from chainrule.training.run_state import Decisions, Mode, Place, RunState
from chainrule.training.team import Team

_TIMED_SECONDS, _TIMED_STEPS = 1.0, 20
_TIMED_SHARE = 0.01  # of the minutes of a run, for one timing
_TIMED_VALIDATION_TOKENS = 4096
_VALIDATION_SPEED = 3  # a token costs a third as much in validation as in training, where gradients follow


class Autotune:
    """Makes the decisions for an engine, its settings and its texts."""

    def __init__(self, engine: Engine, settings: TrainingSettings, train: Feed, valid: Feed | None) -> None:
        self.engine, self.settings, self.train, self.valid = engine, settings, train, valid
        self.measured: dict[str, Any] = {}

    def decide(self) -> Decisions:
        """All decisions for a run that begins."""
        mode = self.engine.choose_mode(self.train, self)
        total = planned_steps(self.settings, self.train.layout)
        every = between_validations(self.settings, self.train.layout, total)
        return self._with_validations(Decisions.of(mode, total, every, self.measured))

    def decide_anew(self, state: RunState, changed: Set[str]) -> Decisions:
        """The decisions of a run that continues; only those that depend on a changed setting are made again."""
        decided = state.decisions
        if changed & set(HOW_COMPUTED):
            mode = self.engine.choose_mode(self.train, self)
            decided = replace(decided, **mode._asdict())
        if changed & set(HOW_LONG):
            total = planned_steps(self.settings, self.train.layout)
            check_something_is_left(total, self.settings, state.step, state.seconds)
            decided = replace(decided, total=total)
        if changed & {*HOW_LONG, "validate_every"}:
            every = between_validations(self.settings, self.train.layout, decided.total)
            decided = self._with_validations(replace(decided, validate_every=every))
        return replace(decided, measured={**decided.measured, **self.measured})

    # -- validations --------------------------------------------------------------------------------------

    def _with_validations(self, decided: Decisions) -> Decisions:
        """The decisions with the number of validations, and the size of the sample they read."""
        if self.valid is None or self.settings.validate_every is not None:
            return replace(decided, validations=VALIDATIONS, validation_tokens=None)
        if self.settings.minutes is not None:
            tokens = VALIDATION_SHARE * 60 * self.settings.minutes * self._validated_per_second(decided.mode)
        else:
            assert decided.total is not None
            tokens = VALIDATION_SHARE * decided.total * self.train.layout.size.step * _VALIDATION_SPEED
        least = min(FEWEST_VALIDATION_TOKENS, self.valid.layout.tokens)
        validations = max(1, min(VALIDATIONS, int(tokens / least)))
        sample = max(least, int(tokens / validations))
        return replace(
            decided,
            validations=validations,
            validation_tokens=None if sample >= self.valid.layout.tokens else sample,
        )

    def _validated_per_second(self, mode: Mode) -> float:
        """The tokens that a validation reads in a second, from its first steps."""
        assert self.valid is not None
        layout, targets = self.valid.layout, 0
        epoch = layout.epoch(None)
        steps = 0
        while steps < len(epoch) and targets < _TIMED_VALIDATION_TOKENS:
            targets += epoch[steps].targets
            steps += 1
        with self.engine.trial(mode) as trial, trial.measuring():
            trial.mean_nats(self.valid, 1)  # the first call allocates memory
            trial.wait()
            began = time.perf_counter()
            trial.mean_nats(self.valid, steps)
            rate = self.team.agree(targets / max(1e-9, time.perf_counter() - began))
        self.note({"validation_tokens_per_second": round(rate)})
        return rate

    # -- what an engine may ask ---------------------------------------------------------------------------

    @property
    def team(self) -> Team:
        """The processes that take the steps together; the first one measures for all."""
        return self.engine.team

    def seconds(self, mode: Mode, at_most: int = _TIMED_STEPS, warm: int = 1) -> float:
        """The mean seconds of a step; `warm` steps, which allocate memory and compile code, do not count."""
        enough = _TIMED_SECONDS
        if self.settings.minutes is not None:
            enough = min(enough, _TIMED_SHARE * 60 * self.settings.minutes)
        epoch, first, began = self.train.layout.epoch(0), warm if mode.recorded else warm - 1, 0.0
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
                elif number > first and self.team.agree(time.perf_counter() - began) > enough:
                    break
            trial.wait()
            return self.team.agree((time.perf_counter() - began) / (number - first))

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


# -- the speed of a network, for the choice of its size ---------------------------------------------------


def tokens_per_second(
    build: Callable[[Any, TrainingData], Engine], data: TrainingData, texts: Texts, settings: Any
) -> float:
    """Return the tokens that a network of these settings learns from in a second, by a few steps on an excerpt."""
    engine = build(settings, data)
    feed = texts.train.beginning(TIMED_TOKENS).feed(engine, settings, data.seed)
    with engine.running(data.seed):
        timer = Autotune(engine, settings, feed, None)
        seconds = (
            _seconds_on_gpu(timer) if data.device.startswith("cuda") else timer.seconds(Mode(), at_most=TIMED_STEPS)
        )
    return feed.layout.read / feed.layout.count(0) / seconds


def _seconds_on_gpu(timer: Autotune) -> float:
    """Return the seconds of a step on a GPU: as a captured graph if possible, which may be twice as fast."""
    layout, mode = timer.train.layout, Mode(bfloat16=True)
    if layout.one_shape and layout.size.rows <= layout.size.rows_at_once and timer.team.size == 1:
        try:
            return timer.seconds(mode._replace(recorded=True))
        except (RuntimeError, TrainingError):  # code that cannot be captured, or too little memory
            pass
    return timer.seconds(mode, warm=5)  # the first steps on a GPU are slow
