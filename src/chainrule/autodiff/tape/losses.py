"""Softmax, the cross-entropy of the target tokens, and both fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD
from chainrule.autodiff.tape.nodes import Array, Node
from chainrule.autodiff.tape.shapes import fit, fit_all, has_axes
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError


class Softmax(Module):
    """p_i = e^z_i / Σ_j e^z_j, along the last axis."""

    formula = "softmax({})"

    def forward(self, z: Array) -> Array:
        has_axes(self, 1, z, or_more=True)
        # e^(z - max) / Σ e^(z - max) is the same, and cannot overflow
        p: Array = np.subtract(z, z.max(axis=-1, keepdims=True), out=self.empty_like(z))
        np.exp(p, out=p)
        p /= p.sum(axis=-1, keepdims=True)
        return p

    def backward(self, z: Array, p: Array, g: Array) -> Array:
        # dp/dz = diag(p) - p pᵀ, so that dL/dz = p ⊙ (g - Σ g ⊙ p)
        dz: Array = np.multiply(g, p, out=self.empty_like(p))
        np.subtract(g, dz.sum(axis=-1, keepdims=True), out=dz)
        dz *= p
        return dz


@dataclass(frozen=True)
class _Targets:
    """The target token of each of N rows, and the share of each row in the loss: w / count."""

    ids_N: Array
    share_N: Array

    @classmethod
    def read(
        cls, module: Node, scores: Array, targets: Array, weights: Array | None, count: float | None
    ) -> _Targets:
        if targets.ndim == scores.ndim and _is_one_hot(targets):
            fit_all(module, scores, targets, range(targets.ndim))
            targets = targets.argmax(axis=-1)
        if targets.ndim != scores.ndim - 1:
            raise AutodiffError(
                f"{module.name}: shapes {list(scores.shape)} and {list(targets.shape)} do not fit: "
                "targets should be ids, with every axis of the first but the last, axis -1, or one-hot rows: "
                "a single 1, and 0 elsewhere"
            )
        for axis in range(targets.ndim):
            fit(module, scores, axis, targets, axis)
        V = scores.shape[-1]
        if targets.dtype.kind not in "iu" or (targets.size and not PAD <= targets.min() <= targets.max() < V):
            is_whole = targets.dtype.kind in "iu"
            raise AutodiffError(
                f"{module.name}: targets {list(targets.shape)} should be ids of the last axis of "
                f"{list(scores.shape)}, 0 to {V - 1}, or PAD ({PAD}): found "
                + (f"{targets.min()} to {targets.max()}" if is_whole else str(targets.dtype))
            )
        wide = np.ones(targets.shape) if weights is None else np.asarray(weights, np.float64)
        fit_all(module, wide, targets, range(targets.ndim))
        wide = np.where(targets == PAD, 0.0, wide)
        # a batch of padding alone has loss 0, not 0 / 0
        total = count if count is not None else wide.sum() or 1.0
        return cls(np.maximum(targets, 0).reshape(-1), (wide / total).reshape(-1).astype(scores.dtype))

    @property
    def places(self) -> tuple[Array, Array]:
        """The index of the targets in an array of scores [N, V]."""
        return np.arange(len(self.ids_N)), self.ids_N

    def mean(self, nats_N: Array) -> Array:
        """Return Σ w nats / count."""
        # padding costs 0 even where nats are infinite and the product 0 · ∞ is NaN
        costs_N = np.where(self.share_N == 0, 0, nats_N * self.share_N)
        return np.asarray(costs_N.sum(dtype=np.float64), nats_N.dtype)


def _is_one_hot(rows: Array) -> bool:
    return bool(rows.ndim and ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=-1) == 1).all())


class _Loss(Module):
    def __init__(self, *, weights: Array | None = None, count: float | None = None) -> None:
        self.weights, self.count = weights, count


class CrossEntropy(_Loss):
    """L = Σ_n w_n (-ln p_n[y_n]) / count: inputs p [..., V] and the target ids y [...].

    The targets may also be one-hot rows [..., V], so that L = -yᵀ ln p for each row, and they may be the first
    input. The weights are 1 by default, and 0 where a target is PAD. The count is by default the sum of the
    weights, so that the loss is a mean; with count=1 it is a sum.
    """

    formula = "-ln {}[{}]"

    def forward(self, p: Array, targets: Array) -> Array:
        # if both are one-hot, L is 0 or ∞ whichever of them is taken for p
        self._is_swapped = p.ndim < targets.ndim or (
            p.ndim == targets.ndim and _is_one_hot(p) and not _is_one_hot(targets)
        )
        if self._is_swapped:
            p, targets = targets, p
        self._targets = _Targets.read(self, p, targets, self.weights, self.count)
        self._p_N = p.reshape(-1, p.shape[-1])[self._targets.places]
        # -ln p(y)
        return self._targets.mean(-np.log(self._p_N))

    def backward(self, g: Array) -> tuple[Array | None, Array | None]:
        p = self.in_modules[1 if self._is_swapped else 0].out_tensor
        share_N = self._targets.share_N
        dp = self.empty_like(p)
        dp.fill(0)
        # dL/dp(y) = -1 / p(y), and nothing elsewhere
        dp.reshape(-1, p.shape[-1])[self._targets.places] = np.where(share_N == 0, 0, -g * share_N / self._p_N)
        return (None, dp) if self._is_swapped else (dp, None)

    def equation(self, *names: str) -> str:
        return super().equation(*(names[::-1] if self._is_swapped else names))


class SoftmaxCrossEntropy(_Loss):
    """L = Σ_n w_n (-ln softmax(z_n)[y_n]) / count, fused: inputs are the logits z [..., V] and target ids y [...].

    The targets may also be one-hot rows [..., V]. Weights and count are those of CrossEntropy. Unlike Softmax
    followed by CrossEntropy, this loses no precision by rounding p, and has no infinite slope where p underflows
    to 0.
    """

    formula = "-ln softmax({})[{}]"

    def forward(self, z: Array, targets: Array) -> Array:
        self._targets = _Targets.read(self, z, targets, self.weights, self.count)
        best = z.max(axis=-1, keepdims=True)
        e = np.subtract(z, best, out=self.empty_like(z)).reshape(-1, z.shape[-1])
        shifted_N = e[self._targets.places]
        np.exp(e, out=e)
        self._e_NV, self._total_N = e, e.sum(axis=-1)
        # -ln p(y) = ln Σ e^z - z_y
        return self._targets.mean(np.log(self._total_N) - shifted_N)

    def backward(self, g: Array) -> tuple[Array, None]:
        share_N = self._targets.share_N * g
        # dL/dz = p - y, computed in place: the exponentials are no longer needed
        dz = self._e_NV
        dz *= (share_N / self._total_N)[:, None]
        dz[self._targets.places] -= share_N
        return dz.reshape(self.in_modules[0].out_tensor.shape), None
