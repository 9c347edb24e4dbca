from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chainrule.networks.recurrent.scan import by_doubling, by_steps, scan

WAYS = [by_steps, by_doubling]


def obvious(a_TBH: Tensor, b_TBH: Tensor, y_BH: Tensor) -> Tensor:
    """The reference: y_t = a_t y_{t-1} + b_t, one time after the other."""
    every = []
    for a_BH, b_BH in zip(a_TBH, b_TBH, strict=True):
        y_BH = a_BH * y_BH + b_BH
        every.append(y_BH)
    return torch.stack(every)


def some(times: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    a_TBH, b_TBH, start_BH = torch.randn(times, 2, 3), torch.randn(times, 2, 3), torch.randn(2, 3)
    return a_TBH.to(dtype), b_TBH.to(dtype), start_BH.to(dtype)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("times", [1, 2, 3, 8, 13])
def test_both_ways_are_the_recurrence(way: Callable[..., Tensor], times: int) -> None:
    inputs = some(times)
    torch.testing.assert_close(way(*inputs), obvious(*inputs))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("factor", [0.0, 1e-30, 0.5, 0.999999, 1.0])
def test_a_thousand_times_in_single_precision(way: Callable[..., Tensor], factor: float) -> None:
    """Gates that are shut or open all along make no overflow, no 0 / 0, and no large error."""
    _, b_TBH, start_BH = some(1000, torch.float32)
    a_TBH = torch.full_like(b_TBH, factor)
    exact = obvious(a_TBH.double(), b_TBH.double(), start_BH.double())
    torch.testing.assert_close(way(a_TBH, b_TBH, start_BH).double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("times", [1, 6])
def test_gradients(way: Callable[..., Tensor], times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.networks.recurrent.scan.by_steps", way)  # on a CPU either way is taken now
    assert torch.autograd.gradcheck(scan, [one.requires_grad_() for one in some(times)])
