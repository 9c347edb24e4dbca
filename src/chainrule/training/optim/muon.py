"""Muon: the step of a matrix is its gradient, smoothed over time and made orthogonal (Jordan et al. 2024).

torch has a Muon too, and tests hold this one equal to it. The one of torch takes one matrix after the other and
always computes in bfloat16: a GPU waits for the host to launch many small kernels, and a CPU without bfloat16
instructions takes a hundred times as long. Here matrices of one shape are made orthogonal together on a GPU, and a
CPU computes in full precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.networks.training_settings import (
    MUON_ITERATIONS,
    MUON_MOMENTUM,
    MUON_POLYNOMIAL,
    MUON_TINY,
    muon_size,
)


class Muon(torch.optim.Optimizer):
    """The optimiser of matrices from features to features; its steps are as large as those of AdamW."""

    def __init__(
        self, parameters: list[nn.Parameter] | list[dict[str, Any]], lr: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.orthogonal_all: Callable[[Sequence[Tensor]], list[Tensor]] = _orthogonal_all
        """Makes matrices of one shape orthogonal; another function where they are divided among processes."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[Any, ...], list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    # a CPU gains nothing from doing several at once
                    key = (id(weight),) if weight.device.type == "cpu" else (weight.shape, weight.device)
                    alike.setdefault(key, []).append(weight)
            for weights in alike.values():
                self._step(weights, group["lr"], group["weight_decay"])

    def _step(self, weights: list[Tensor], rate: float | Tensor, decay: float) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        momenta = [self._momentum(weight) for weight in weights]
        # m = μ m + (1 - μ) g, and Nesterov's look ahead: u = μ m + (1 - μ) g
        torch._foreach_lerp_(momenta, gradients, 1 - MUON_MOMENTUM)
        updates = self.orthogonal_all(torch._foreach_lerp(gradients, momenta, MUON_MOMENTUM))
        size = muon_size(weights[0].shape)
        # the rate may be a tensor on the device, which a captured step reads anew in each replay
        torch._foreach_mul_(weights, 1 - rate * decay)
        torch._foreach_mul_(updates, -rate * size)
        torch._foreach_add_(weights, updates)

    def _momentum(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def _orthogonal_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return matrices of one shape, made orthogonal: on a GPU in one batch in bfloat16, which is precise enough."""
    if matrices[0].device.type == "cpu":
        return [orthogonal(matrix) for matrix in matrices]
    together = orthogonal(torch.stack([matrix.bfloat16() for matrix in matrices]))
    return list(together.to(matrices[0].dtype).unbind())


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about U Vᵀ, where the matrix is U S Vᵀ: all singular values become about 1. Takes batches, too."""
    is_tall = matrix.shape[-2] > matrix.shape[-1]
    X = matrix.mT if is_tall else matrix
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=MUON_TINY)
    add_product = torch.addmm if X.ndim == 2 else torch.baddbmm
    a, b, c = MUON_POLYNOMIAL
    for _ in range(MUON_ITERATIONS):
        gram = X @ X.mT
        X = add_product(X, add_product(gram, gram, gram, beta=b, alpha=c), X, beta=a)
    return X.mT if is_tall else X
