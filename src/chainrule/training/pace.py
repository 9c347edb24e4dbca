"""How many steps a run has, and how many lie between two validations."""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.errors import SettingsError
from chainrule.training.layouts import Layout
from chainrule.training.plan import EPOCHS, TrainingSettings

VALIDATIONS = 10
"""How many validations a run has at least."""

_VALIDATION_SHARE = 0.2  # of the time, at most, where time is what is given


@dataclass(frozen=True)
class Times:
    """What the clock says, in seconds, where a run is given so many minutes."""

    step: float
    validation: float
    left: float
    """Of the minutes, once the others were measured."""


def planned_steps(settings: TrainingSettings, layout: Layout) -> int | None:
    """The number of steps as far as the clock has no say in it; None: it alone decides."""
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is None and settings.minutes is not None:
        return None
    return layout.steps(settings.epochs or EPOCHS)


def pace(settings: TrainingSettings, layout: Layout, times: Times | None, done: int = 0) -> tuple[int, int]:
    """The steps of a run, and the steps between validations; `times` where minutes are set.

    Where steps are `done` already, those are not in the time that is left.
    """
    total, validations, first = planned_steps(settings, layout), float(VALIDATIONS), 0
    if times is not None:
        fits, fitting = _fitting(settings, layout, times)
        if total is None or done + fits < total:
            total, validations, first = done + fits, fitting, done
        else:
            validations = min(validations, fitting)
    assert total is not None
    if total < done or (done and times is not None and times.left <= 0):
        raise SettingsError(
            f"{done:,} steps are done, and no more are asked for: set more steps, epochs or minutes"
        )
    return total, between_validations(settings, layout, total - first, validations)


def between_validations(
    settings: TrainingSettings, layout: Layout, steps: int, validations: float = VALIDATIONS
) -> int:
    """How many steps lie between validations, where so many have room in `steps`."""
    return settings.validate_every or max(1, min(layout.count(0), round(steps / validations)))


def _fitting(settings: TrainingSettings, layout: Layout, times: Times) -> tuple[int, float]:
    """How many steps, and how many validations beside them, the time that is left has room for."""
    step, validation, left = times.step, times.validation, max(0.0, times.left)
    if settings.validate_every is not None:
        return max(1, int(left / (step + validation / settings.validate_every))), VALIDATIONS
    per_epoch = layout.count(0) * step + validation
    wanted = max(VALIDATIONS, left / per_epoch)
    validations = max(1.0, min(wanted, _VALIDATION_SHARE * left / validation if validation else wanted))
    return max(1, int((left - validations * validation) / step)), validations
