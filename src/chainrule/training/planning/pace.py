"""The length of a run, by its steps or by the clock, and how far a run has come.

A run of `steps` or `epochs` has a known number of steps, and depends on nothing else. A run of `minutes` ends when
the time is over, whatever a step takes: its schedule and its validations follow the clock. Where both are set, the
first limit that is reached counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.errors import SettingsError
from chainrule.networks.training_settings import EPOCHS, TrainingSettings
from chainrule.training.layouts import Layout

VALIDATIONS = 10
"""The number of validations of a run, unless `validate_every` is set; without a clock, at least one an epoch."""

VALIDATION_SHARE = 0.05
"""The largest share of a run's time or, where it has none, of its tokens that all validations take together."""

FEWEST_VALIDATION_TOKENS = 8192
"""A validation reads at least so many tokens: the mean of fewer is a poor estimate."""


@dataclass(frozen=True)
class Pace:
    """The length of a run: a number of steps, seconds of time, or both."""

    steps: int | None
    """None: only the clock ends the run."""
    seconds: float | None
    """None: only the number of steps ends the run."""

    @classmethod
    def of(cls, steps: int | None, minutes: float | None) -> Pace:
        """The length of a run of so many steps, minutes, or both."""
        return cls(steps, None if minutes is None else 60 * minutes)

    def place(self, step: int, seconds: float) -> tuple[int, int]:
        """How much is done, and of how much: in steps or, where the time is the nearer limit, in milliseconds."""
        if self.seconds is None:
            assert self.steps is not None
            return step, self.steps
        by_clock = int(1000 * seconds), max(1, int(1000 * self.seconds))
        if self.steps is not None and step * by_clock[1] >= by_clock[0] * self.steps:
            return step, self.steps
        return min(by_clock), by_clock[1]

    def expected_steps(self, step: int, seconds: float) -> float:
        """How many steps the run will have, at the speed of the `step` steps so far; exact without a clock."""
        done, whole = self.place(step, seconds)
        return whole if self.seconds is None else step * whole / max(1, done)


def planned_steps(settings: TrainingSettings, layout: Layout) -> int | None:
    """The number of steps that `steps` or `epochs` ask for; None if only `minutes` limits the run."""
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is None and settings.minutes is not None:
        return None
    return layout.steps(settings.epochs or EPOCHS)


def check_something_is_left(total: int | None, settings: TrainingSettings, done: int, seconds: float) -> None:
    """Refuse to resume a run after `done` steps and so many seconds if no more is asked for."""
    is_time_over = settings.minutes is not None and seconds >= 60 * settings.minutes
    if done and (is_time_over or (total is not None and total < done)):
        raise SettingsError(
            f"{done:,} steps are done, and no more are asked for: set more steps, epochs or minutes"
        )


def between_validations(settings: TrainingSettings, layout: Layout, total: int | None) -> int | None:
    """The number of steps between validations; None: they are spread over the time of the run."""
    if settings.validate_every is not None or settings.minutes is not None or total is None:
        return settings.validate_every
    return max(1, min(layout.count(0), round(total / VALIDATIONS)))
