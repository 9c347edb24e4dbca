"""Averages of weights, by hand."""

from __future__ import annotations

import pytest
import torch

from chainrule.training.optim.weight_average import WeightAverage


def followed(
    average: WeightAverage, weight: torch.Tensor, values: list[float], total: int, stalled: int = 0
) -> float | None:
    for step, value in enumerate(values, start=1):
        weight.fill_(value)
        average.update(step, total, stalled)
    return average.values["w"].item() if average.is_on else None


def test_without_averaging_the_weights_are_the_weights() -> None:
    weight = torch.zeros(1)
    average = WeightAverage("none", {"w": weight})
    assert followed(average, weight, [1, 2, 3], 10) is None
    with average.applied():
        assert weight.item() == 3


def test_ema_is_the_mean_at_first_and_then_forgets() -> None:
    weight = torch.zeros(1)
    # of 40 steps a twentieth is 2: the factors are 1, 1/2, 1/2
    average = WeightAverage("ema", {"w": weight})
    assert followed(average, weight, [4, 8, 2], 40) == pytest.approx(((4 + 8) / 2 + 2) / 2)


def test_tail_is_the_mean_of_the_last_fifth() -> None:
    weight = torch.zeros(1)
    # steps 8, 9 and 10 of 10
    average = WeightAverage("tail", {"w": weight})
    assert followed(average, weight, list(range(1, 11)), 10) == pytest.approx((8 + 9 + 10) / 3)


def test_tail_begins_when_validation_stalls() -> None:
    weight = torch.zeros(1)
    assert followed(WeightAverage("tail", {"w": weight}), weight, [1, 2, 6], 100, stalled=4) is None
    assert followed(WeightAverage("tail", {"w": weight}), weight, [1, 2, 6], 100, stalled=5) == pytest.approx(3)


def test_the_average_is_applied_and_taken_back() -> None:
    weight = torch.zeros(1)
    average = WeightAverage("tail", {"w": weight})
    followed(average, weight, [1, 3], 1)
    with average.applied():
        assert (weight.item(), average.values["w"].item()) == (2, 3)
    assert (weight.item(), average.values["w"].item()) == (3, 2)
