"""A recurrence without products of matrices, over all times: y_t = a_t ⊙ y_{t-1} + b_t.

Its gradient is such a recurrence from the last time to the first: with g_t = ∂L/∂y_t the gradient that comes from
above, the whole one is G_t = g_t + a_{t+1} ⊙ G_{t+1}; then ∂L/∂b_t = G_t and ∂L/∂a_t = G_t ⊙ y_{t-1}.

A CPU takes one time after the other, each in one operation. A GPU, which would wait for the start of each of them,
doubles the times: after n rounds y_t has the terms of the last 2^n times. Both only add and multiply, and divide by
nothing: they are as exact as the recurrence itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def scan(a_TBH: Tensor, b_TBH: Tensor, start_BH: Tensor) -> Tensor:
    """Return y_t = a_t ⊙ y_{t-1} + b_t for all times, [T, B, H], where y_0 is the start."""
    y_TBH: Tensor = _Scan.apply(a_TBH, b_TBH, start_BH)  # type: ignore[no-untyped-call]
    return y_TBH


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_TBH: Tensor, b_TBH: Tensor, start_BH: Tensor) -> Tensor:
        y_TBH = _computed(a_TBH, b_TBH, start_BH)
        ctx.save_for_backward(a_TBH, y_TBH, start_BH)
        return y_TBH

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a_TBH, y_TBH, start_BH = ctx.saved_tensors
        (g_TBH,) = gradients
        # G_t = g_t + a_{t+1} ⊙ G_{t+1}, with time reversed; after the last time there is nothing
        after_TBH = torch.cat([torch.zeros_like(a_TBH[:1]), a_TBH[1:].flip(0)])
        G_TBH = _computed(after_TBH, g_TBH.flip(0), torch.zeros_like(start_BH)).flip(0)
        before_TBH = torch.cat([start_BH[None], y_TBH[:-1]])
        return G_TBH * before_TBH, G_TBH, a_TBH[0] * G_TBH[0]


def _computed(a_TBH: Tensor, b_TBH: Tensor, start_BH: Tensor) -> Tensor:
    # compiled code would have every step of a loop in it
    way = by_steps if a_TBH.device.type == "cpu" and not torch.compiler.is_compiling() else by_doubling
    return way(a_TBH, b_TBH, start_BH)


def by_steps(a_TBH: Tensor, b_TBH: Tensor, start_BH: Tensor) -> Tensor:
    """The scan by one operation for each time."""
    y_TBH, y_BH = torch.empty_like(b_TBH), start_BH
    for a_BH, b_BH, out_BH in zip(a_TBH.unbind(), b_TBH.unbind(), y_TBH.unbind(), strict=True):
        y_BH = torch.addcmul(b_BH, a_BH, y_BH, out=out_BH)
    return y_TBH


def by_doubling(a_TBH: Tensor, b_TBH: Tensor, start_BH: Tensor) -> Tensor:
    """The scan by operations on all times at once, in log2 T rounds."""
    y_TBH = torch.cat([torch.addcmul(b_TBH[:1], a_TBH[:1], start_BH), b_TBH[1:]])
    span = 1
    while span < len(y_TBH):
        # y_t has the terms of the last `span` times, a_t is the product of their factors
        y_TBH = torch.cat([y_TBH[:span], torch.addcmul(y_TBH[span:], a_TBH[span:], y_TBH[:-span])])
        a_TBH = torch.cat([a_TBH[:span], a_TBH[span:] * a_TBH[:-span]])
        span *= 2
    return y_TBH
