"""Muon in full precision, for CPUs.

torch's own computes in bfloat16, which a CPU without such instructions takes a hundred times as long for. On a GPU,
torch's is used; a test holds both equal as far as bfloat16 goes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
_A, _B, _C, _ITERATIONS = 3.4445, -4.7750, 2.0315, 5
_TINY = 1e-7


class FullMuon(torch.optim.Optimizer):
    """The step of a matrix is its gradient, smoothed over time and made orthogonal (Jordan et al. 2024)."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step for every matrix that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, group["lr"], group["weight_decay"])

    def _step(self, weight: Tensor, rate: float, decay: float) -> None:
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        # m = μ m + (1 - μ) g, and Nesterov's look ahead: u = μ m + (1 - μ) g
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
        update = orthogonal(gradient.lerp(momentum, MOMENTUM))
        # steps as large as those of AdamW, whose entries are about 0.2 in size (Liu et al. 2025)
        size = 0.2 * math.sqrt(max(weight.shape))
        weight.mul_(1 - rate * decay).add_(update, alpha=-rate * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """About U Vᵀ, where the matrix is U S Vᵀ: all singular values become about 1."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    X = matrix.T if is_tall else matrix
    X = X / X.norm().clamp(min=_TINY)
    for _ in range(_ITERATIONS):
        # X = a X + b (X Xᵀ) X + c (X Xᵀ)² X moves singular values towards 1
        gram = X @ X.T
        X = torch.addmm(X, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), X, beta=_A)
    return X.T if is_tall else X
