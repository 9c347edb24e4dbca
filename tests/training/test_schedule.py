"""The learning rate over a run, by values."""

from __future__ import annotations

import math

import pytest

from chainrule.networks.training_settings import Schedule
from chainrule.training.optim.schedule import factor


def values(schedule: Schedule, total: int, warmup: float = 0.0) -> list[float]:
    return [factor(schedule, step, total, warmup) for step in range(total)]


def test_constant() -> None:
    assert values("constant", 4) == [1, 1, 1, 1]
    assert values("constant", 4, warmup=0.5) == [0.5, 1, 1, 1]


def test_linear_falls_to_nothing() -> None:
    assert values("linear", 4) == [1, 0.75, 0.5, 0.25]
    assert values("linear", 8, warmup=0.5) == [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25]


def test_cosine_is_half_in_the_middle() -> None:
    assert values("cosine", 4) == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])


def test_stable_decay_falls_in_the_last_fifth() -> None:
    assert values("stable-decay", 10) == pytest.approx([1] * 9 + [0.5])
    assert values("stable-decay", 20, warmup=0.1) == pytest.approx([0.5] + [1] * 16 + [0.75, 0.5, 0.25])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "stable-decay"])
@pytest.mark.parametrize("total", [1, 2, 3, 7])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.9])
def test_every_step_of_a_short_run_has_a_rate(schedule: Schedule, total: int, warmup: float) -> None:
    assert all(0 < value <= 1 for value in values(schedule, total, warmup))
