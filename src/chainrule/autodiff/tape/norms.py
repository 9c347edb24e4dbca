"""Norms: they bring the features of each token to one size, whatever came before.

Both work along the last axis. The gain γ and the shift β, which are learned, may be left out.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.shapes import fit, has_axes, sum_to
from chainrule.autodiff.tape.tape import Module


class LayerNorm(Module):
    """z = γ ⊙ (x - μ) / sqrt(σ² + ε) + β, with mean and variance of the last axis: inputs x [..., D], γ, β [D]."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, x: Array, gain: Array | None = None, shift: Array | None = None) -> Array:
        _check(self, x, gain, shift)
        n: Array = np.subtract(x, x.mean(axis=-1, keepdims=True), out=self.empty_like(x))
        variance = np.square(n).mean(axis=-1, keepdims=True)
        self._r = 1 / np.sqrt(variance + self.eps)
        # n = (x - μ) r,  r = 1 / sqrt(σ² + ε)
        n *= self._r
        self._n = n
        if gain is None:
            return n
        # z = γ ⊙ n + β
        z: Array = np.multiply(n, gain, out=self.empty_like(x))
        if shift is not None:
            z += shift
        return z

    def backward(self, g: Array) -> tuple[Array, ...]:
        n, learned = self._n, self.in_modules[1:]
        dn = g * learned[0].out_tensor if learned else g
        # dL/dx = r (dn - mean(dn) - n mean(dn ⊙ n)): μ and σ² depend on every x
        dx = dn - dn.mean(axis=-1, keepdims=True)
        dx -= n * (dn * n).mean(axis=-1, keepdims=True)
        dx *= self._r
        # dL/dγ = Σ g ⊙ n,  dL/dβ = Σ g
        sums = (g * n, g)[: len(learned)]
        return dx, *(sum_to(each, node.out_tensor.shape) for each, node in zip(sums, learned, strict=True))


class RMSNorm(Module):
    """z = γ ⊙ x / sqrt(mean(x²) + ε), along the last axis (Zhang and Sennrich 2019): inputs x [..., D], γ [D]."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, x: Array, gain: Array | None = None) -> Array:
        _check(self, x, gain)
        self._r = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + self.eps)
        # n = r x,  r = 1 / sqrt(mean(x²) + ε)
        n: Array = np.multiply(x, self._r, out=self.empty_like(x))
        self._n = n
        return n if gain is None else np.multiply(n, gain, out=self.empty_like(x))

    def backward(self, g: Array) -> tuple[Array, ...]:
        n, learned = self._n, self.in_modules[1:]
        dn = g * learned[0].out_tensor if learned else g
        # dr/dx_j = -r³ x_j / D, so that dL/dx = r (dn - n mean(dn ⊙ n))
        dx = n * (dn * n).mean(axis=-1, keepdims=True)
        np.subtract(dn, dx, out=dx)
        dx *= self._r
        # dL/dγ = Σ g ⊙ n
        return dx, *(sum_to(g * n, gain.out_tensor.shape) for gain in learned)


def _check(module: Module, x: Array, *learned: Array | None) -> None:
    has_axes(module, 1, x, or_more=True)
    for vector in learned:
        if vector is not None:
            has_axes(module, 1, vector)
            fit(module, x, -1, vector, 0)
