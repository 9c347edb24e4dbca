"""How many steps a run has, and how many lie between two validations."""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.designs.training import EPOCHS, TrainingSettings
from chainrule.errors import SettingsError
from chainrule.training.batches.layouts import Layout

VALIDATIONS = 10
"""The least number of validations of a run, time permitting."""

_VALIDATION_SHARE = 0.2  # the largest share of the time for validations, where a run is limited by minutes


@dataclass(frozen=True)
class Times:
    """Measured times in seconds, for a run that is limited by minutes."""

    step: float
    validation: float
    left: float
    """Time left of the minutes after `step` and `validation` were measured."""


def planned_steps(settings: TrainingSettings, layout: Layout) -> int | None:
    """The number of steps that `steps` or `epochs` ask for; None if only `minutes` limits the run."""
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is None and settings.minutes is not None:
        return None
    return layout.steps(settings.epochs or EPOCHS)


def pace(settings: TrainingSettings, layout: Layout, times: Times | None, done: int = 0) -> tuple[int, int]:
    """The number of steps of a run, and the number between validations; `times` is given where minutes are set.

    `done` steps were taken before the run was resumed: the time left is for further ones.
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
    """The number of steps between validations: as set, or an epoch, or less for `validations` in `steps` steps."""
    return settings.validate_every or max(1, min(layout.count(0), round(steps / validations)))


def _fitting(settings: TrainingSettings, layout: Layout, times: Times) -> tuple[int, float]:
    """The numbers of steps and of validations that fit into the time left."""
    step, validation, left = times.step, times.validation, max(0.0, times.left)
    if settings.validate_every is not None:
        return max(1, int(left / (step + validation / settings.validate_every))), VALIDATIONS
    per_epoch = layout.count(0) * step + validation
    wanted = max(VALIDATIONS, left / per_epoch)
    validations = max(1.0, min(wanted, _VALIDATION_SHARE * left / validation if validation else wanted))
    return max(1, int((left - validations * validation) / step)), validations
