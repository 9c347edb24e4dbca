"""The root-mean-square norm, with its gradient by hand: on a CPU torch has no kernel of its own for it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """y = x / sqrt(mean(x²) + ε), over the last axis."""
    has_kernel = x.device.type != "cpu" or torch.compiler.is_compiling()
    if has_kernel or x.dtype not in (torch.float32, torch.float64):
        return F.rms_norm(x, x.shape[-1:], eps=eps)
    normed: Tensor = _RmsNorm.apply(x, eps)  # type: ignore[no-untyped-call]
    return normed


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        # r = 1 / sqrt(mean(x²) + ε),  y = r x
        r = mean_square.add_(eps).rsqrt_()
        y: Tensor = x * r
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        y, r = ctx.saved_tensors
        # dr/dx_j = -r³ x_j / n, so that  dx = r (dy - y mean(dy ⊙ y))
        dx = torch.addcmul(dy, y, (dy * y).mean(dim=-1, keepdim=True), value=-1).mul_(r)
        return dx, None
