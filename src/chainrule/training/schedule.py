"""Schedules of the learning rate: a factor from 0 to 1 for each step of a run."""

from __future__ import annotations

import math

from chainrule.networks.training_settings import Schedule

DECAY_SHARE = 0.2
"""stable-decay: the share of the steps in which the learning rate falls."""


def factor(schedule: Schedule, step: int, total: int, warmup: float = 0.0) -> float:
    """Return the factor of the learning rate at `step` (from 0) of `total`.

    It rises linearly over the warm-up, a share of the steps, then stays at 1 or falls, so as to be 0 at `total`.

    >>> [factor("linear", step, 6, warmup=1 / 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    rising = round(warmup * total)
    if step < rising:
        return (step + 1) / rising
    # from 0 after the warm-up to 1 at the end
    done = min(1.0, (step - rising) / max(1, total - rising))
    if schedule == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    if schedule == "linear":
        return 1 - done
    if schedule == "stable-decay":
        return min(1.0, (total - step) / max(1.0, DECAY_SHARE * total)) if step < total else 0.0
    return 1.0
