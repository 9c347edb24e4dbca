"""Decisions before the first step: how steps are computed, how long a run is, what validations read, and notes.

A run of `steps` or `epochs` has a known number of steps, and depends on nothing else. A run of `minutes` ends when
the time is over, however long a step takes: its schedule and its validations follow the clock. Where both are set,
the first limit that is reached counts.

Some decisions take a measurement: a few steps on real batches are timed, and weights and random generators are
then put back as they were. A run that is resumed keeps its decisions, unless the settings behind one have changed.

The rule for settings that are left open is in networks/defaults.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import SettingsError, TrainingError
from chainrule.networks.defaults import TIMED_STEPS, TIMED_TOKENS
from chainrule.networks.training_settings import HOW_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.training.engines.base import Engine, Timer
from chainrule.training.examples import Texts
from chainrule.training.layouts import Layout
from chainrule.training.objectives import Feed
from chainrule.training.run_state import Decisions, Mode, RunState

VALIDATIONS = 10
"""The number of validations of a run, unless `validate_every` is set; without a clock, at least one an epoch."""

VALIDATION_SHARE = 0.05
"""The largest share of a run's time or, where it has none, of its tokens that all validations take together."""

FEWEST_VALIDATION_TOKENS = 8192
"""The fewest tokens that a validation reads: the mean of fewer is a poor estimate."""

LONG_SECONDS = 3600.0
"""A run of steps or epochs that takes longer than this gets a note."""
FEW = 20
"""A run that is limited by minutes to fewer steps than this gets a note."""

_TIMED_VALIDATION_TOKENS = 4096
_VALIDATION_SPEED = 3  # a token costs a third as much in validation as in training, where gradients follow


# -- the length of a run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """The length of a run: a number of steps, seconds of time, or both."""

    steps: int | None
    """None: only the clock ends the run."""
    seconds: float | None
    """None: only the number of steps ends the run."""

    @classmethod
    def of(cls, steps: int | None, minutes: float | None) -> Pace:
        """Return the length of a run of some steps, minutes, or both."""
        return cls(steps, None if minutes is None else 60 * minutes)

    def place(self, step: int, seconds: float) -> tuple[int, int]:
        """Return how much is done, and the whole: in steps, or in milliseconds if the time is the nearer limit."""
        if self.seconds is None:
            assert self.steps is not None
            return step, self.steps
        by_clock = int(1000 * seconds), max(1, int(1000 * self.seconds))
        if self.steps is not None and step * by_clock[1] >= by_clock[0] * self.steps:
            return step, self.steps
        return min(by_clock), by_clock[1]

    def expected_steps(self, step: int, seconds: float) -> float:
        """Return the number of steps of the run, at the speed so far; exact if there is no clock."""
        done, whole = self.place(step, seconds)
        return whole if self.seconds is None else step * whole / max(1, done)


def between_validations(settings: TrainingSettings, layout: Layout, total: int | None) -> int | None:
    """Return the number of steps between validations; None: they are spread over the time of the run."""
    if settings.validate_every is not None or settings.minutes is not None or total is None:
        return settings.validate_every
    return max(1, min(layout.count(0), round(total / VALIDATIONS)))


# -- decisions --------------------------------------------------------------------------------------------


class Autotune(Timer):
    """Makes the decisions for an engine, its settings and its texts."""

    def __init__(self, engine: Engine, settings: TrainingSettings, train: Feed, valid: Feed | None) -> None:
        super().__init__(engine, settings, train)
        self.valid = valid

    def decide(self) -> Decisions:
        """Return all decisions for a run that begins."""
        mode = self.engine.choose_mode(self.train, self)
        total = self.train.layout.planned(self.settings)
        every = between_validations(self.settings, self.train.layout, total)
        return self._with_validations(Decisions(*mode, total, every, self.measured))

    def decide_anew(self, state: RunState, changed: Set[str]) -> Decisions:
        """Return the decisions of a run that continues; those that depend on a changed setting are made again."""
        decided = state.decisions
        if changed & set(HOW_COMPUTED):
            mode = self.engine.choose_mode(self.train, self)
            decided = replace(decided, **mode._asdict())
        if changed & set(HOW_LONG):
            total = self.train.layout.planned(self.settings)
            minutes = self.settings.minutes
            is_time_over = minutes is not None and state.seconds >= 60 * minutes
            if state.step and (is_time_over or (total is not None and total < state.step)):
                raise SettingsError(
                    f"{state.step:,} steps are done, and no more are asked for: set more steps, epochs or minutes"
                )
            decided = replace(decided, total=total)
        if changed & {*HOW_LONG, "validate_every"}:
            every = between_validations(self.settings, self.train.layout, decided.total)
            decided = self._with_validations(replace(decided, validate_every=every))
        return replace(decided, measured={**decided.measured, **self.measured})

    # -- validations --------------------------------------------------------------------------------------

    def _with_validations(self, decided: Decisions) -> Decisions:
        """Return the decisions with the number of validations, and the size of the sample they read."""
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
        """Return the tokens that a validation reads in a second, from its first steps: few if they are slow."""
        assert self.valid is not None
        layout, steps, targets, seconds = self.valid.layout, 1, 0, 0.0
        with self.engine.trial(mode) as trial, trial.measuring():
            trial.mean_nats(self.valid, 1)  # the first call allocates memory
            trial.wait()
            while seconds <= self._enough and targets < _TIMED_VALIDATION_TOKENS and steps <= layout.count(None):
                targets = sum(step.targets for step in layout.validation(steps))
                began = time.perf_counter()
                trial.mean_nats(self.valid, steps)
                seconds = self.engine.team.agree(time.perf_counter() - began)
                steps *= 2
        rate = targets / max(1e-9, seconds)
        self.measured["validation_tokens_per_second"] = round(rate)
        return rate


# -- the speed of a network, for the choice of its size ---------------------------------------------------


def tokens_per_second(
    build: Callable[[Any, TrainingData], Engine], data: TrainingData, texts: Texts, settings: Any
) -> float:
    """Return the tokens that a network of these settings learns from in a second, by a few steps on an excerpt."""
    engine = build(settings, data)
    feed = texts.train.beginning(TIMED_TOKENS).feed(engine, settings, data.seed)
    with engine.running(data.seed):
        timer = Timer(engine, settings, feed)
        seconds = (
            _seconds_on_gpu(timer) if data.device.startswith("cuda") else timer.seconds(Mode(), at_most=TIMED_STEPS)
        )
    return feed.layout.read / feed.layout.count(0) / seconds


def _seconds_on_gpu(timer: Timer) -> float:
    """Return the seconds of a step on a GPU: as a captured graph if possible, which may be twice as fast."""
    layout, mode = timer.train.layout, Mode(bfloat16=True)
    if layout.is_capturable and timer.engine.team.size == 1:
        try:
            return timer.seconds(mode._replace(recorded=True))
        except (RuntimeError, TrainingError):  # code that cannot be captured, or too little memory
            pass
    return timer.seconds(mode, warm=5)  # the first steps on a GPU are slow


# -- notes to the user about a run that is allowed but probably not intended ------------------------------


def before_training(settings: TrainingSettings, length: int, context: Context, window: int | None) -> Iterator[str]:
    """Yield the notes for a run in rows of at most `length` tokens, of a network with this window."""
    if (
        context != "line" and settings.examples is None and length > settings.batch
    ):  # a single row, and so a step, is larger than a batch
        yield (
            f"a step is one row of {length:,} tokens, more than the batch of {settings.batch:,}: "
            f"set length={settings.batch} for steps as small as that"
        )
    if settings.compile == "yes" and window is None and context == "line":  # more shapes than torch compiles
        yield (
            "compile=yes with --context line: torch compiles a recurrent network for some lengths of lines only, "
            "so that a run that is resumed may differ from one that is not in the last digits"
        )


def after_training(settings: TrainingSettings, steps: int, loss: float | None, vocab_size: int) -> Iterator[str]:
    """Yield the notes for a run that has ended, after `steps` steps and with `loss` on the held-out text."""
    if settings.minutes is not None and steps < FEW and steps != settings.steps:
        which = "step" if steps == 1 else "steps"
        yield (
            f"only {steps} {which} fitted into {settings.minutes:g} minutes, in which little is learned: "
            f"give it more, or set a smaller batch than {settings.batch:,} tokens"
        )
    if loss is not None and loss > math.log(vocab_size):  # ln V is the loss of guessing among V tokens
        yield (
            f"it learned nothing: {loss:.4g} nats a token, where guessing among {vocab_size:,} tokens gives "
            f"{math.log(vocab_size):.4g}; train longer, or with a lower learning_rate than {settings.rate:g}"
        )


def long_run(seconds: float, minutes: float | None) -> str | None:
    """Return a note if a run will take hours that nobody asked for, otherwise None."""
    if minutes is not None or seconds < LONG_SECONDS:
        return None
    return (
        f"about {seconds / 3600:.1f} hours at this speed: with --minutes instead of steps or epochs, sizes are "
        "chosen for the time there is"
    )
