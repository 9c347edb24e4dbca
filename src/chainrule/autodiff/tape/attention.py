"""The modules of attention: heads, rotary positions, and the weighted mean itself.

Axes: T queries, S keys, H heads, K features of a head.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.nodes import Array
from chainrule.autodiff.tape.shapes import fit, fit_broadcast, has_axes, sum_to
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError


class SplitHeads(Module):
    """z_h = x[:, hK : (h+1)K]: features [..., T, H K] taken apart into heads, [..., H, T, K]."""

    formula = "heads({})"

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def forward(self, x: Array) -> Array:
        has_axes(self, 2, x, or_more=True)
        if x.shape[-1] % self.heads:
            raise AutodiffError(f"{self.name}: axis -1 of {list(x.shape)} should be a multiple of {self.heads}")
        return x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).swapaxes(-3, -2)

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        return g.swapaxes(-3, -2).reshape(x.shape)


class MergeHeads(Module):
    """z = [x_1; ...; x_H]: the heads [..., H, T, K] of each token side by side, [..., T, H K]."""

    formula = "[{}]"

    def forward(self, x: Array) -> Array:
        has_axes(self, 3, x, or_more=True)
        tokens = x.swapaxes(-3, -2)
        return tokens.reshape(*tokens.shape[:-2], -1)

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        return g.reshape(x.swapaxes(-3, -2).shape).swapaxes(-3, -2)


class Rotate(Module):
    """Rotary positions: each pair (x_i, x_{i+K/2}) of the row t is rotated by the angle tθ_i (Su and others 2021).

    z_i       = x_i cos tθ_i       - x_{i+K/2} sin tθ_i
    z_{i+K/2} = x_{i+K/2} cos tθ_i + x_i sin tθ_i

    The input is x [..., T, K]; cos and sin of the angles are data, [..., T, K/2].
    """

    formula = "rotate({})"

    def __init__(self, cos: Array, sin: Array) -> None:
        self.cos, self.sin = cos, sin

    def forward(self, x: Array) -> Array:
        has_axes(self, 2, x, or_more=True)
        fit(self, x, -2, self.cos, -2)
        if 2 * self.cos.shape[-1] != x.shape[-1]:
            raise AutodiffError(
                f"{self.name}: {list(x.shape)} should have {2 * self.cos.shape[-1]} features, two for each angle"
            )
        return self._rotated(x, self.sin)

    def backward(self, g: Array) -> Array:
        # z = R x with a rotation R, so that dL/dx = Rᵀ g, which rotates back: by -tθ_i
        return self._rotated(g, -self.sin)

    def _rotated(self, x: Array, sin: Array) -> Array:
        cos, sin = self.cos.astype(x.dtype, copy=False), sin.astype(x.dtype, copy=False)
        z, half = self.empty_like(x), x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        z[..., :half] = first * cos - second * sin
        z[..., half:] = second * cos + first * sin
        return z


class ScaledDotProductAttention(Module):
    """z = softmax(Q Kᵀ / sqrt(d_k) + B) V: inputs Q [..., T, K], K [..., S, K], V [..., S, D].

    With a causal mask, position t attends only to positions s <= t. B is an optional bias of the scores, such as
    that of ALiBi. `keep` is a dropout mask of the attention weights. Both are data, of a shape that broadcasts to
    that of the scores, [..., T, S].
    """

    def __init__(self, *, causal: bool = False, bias: Array | None = None, keep: Array | None = None) -> None:
        self.causal, self.bias, self.keep = causal, bias, keep

    @property
    def weights(self) -> Array:
        """P = softmax(Q Kᵀ / sqrt(d_k) + B), before dropout: a row of weights over the keys for each query."""
        return self._p

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        has_axes(self, 2, q, k, v, or_more=True)
        fit(self, q, -1, k, -1)
        fit(self, k, -2, v, -2)
        for a, b in ((q, k), (k, v), (q, v)):
            fit_broadcast(self, a, b, leaving=2)
        scores = q @ k.swapaxes(-1, -2)
        scores *= q.shape[-1] ** -0.5
        if self.bias is not None:
            scores += self.bias.astype(scores.dtype, copy=False)
        if self.causal:
            fit(self, q, -2, k, -2)
            scores += np.triu(np.full(scores.shape[-2:], -np.inf, scores.dtype), 1)
        # P = softmax(Q Kᵀ / sqrt(d_k) + B)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        self._p: Array = scores
        z: Array = np.matmul(self._kept(scores), v)
        return z

    def backward(self, q: Array, k: Array, v: Array, z: Array, g: Array) -> tuple[Array, Array, Array]:
        p = self._p
        # dL/dV = Pᵀ g,  dL/dP = g Vᵀ, with dropout of P in both
        dv = self._kept(p).swapaxes(-1, -2) @ g
        ds = self._kept(g @ v.swapaxes(-1, -2))
        # through the softmax and the scale: dL/dS = P ⊙ (dP - Σ dP ⊙ P) / sqrt(d_k)
        ds -= (ds * p).sum(axis=-1, keepdims=True)
        ds *= p
        ds *= q.shape[-1] ** -0.5
        # S = Q Kᵀ, so that dL/dQ = dS K,  dL/dK = dSᵀ Q
        return sum_to(ds @ k, q.shape), sum_to(ds.swapaxes(-1, -2) @ q, k.shape), sum_to(dv, v.shape)

    def _kept(self, p: Array) -> Array:
        return p if self.keep is None else p * self.keep.astype(p.dtype, copy=False)

    @property
    def flops(self) -> int:
        # Q Kᵀ and P V; what a causal mask hides is computed too
        q, _, v = (node.out_tensor for node in self.in_modules)
        return 2 * self._p.size * int(q.shape[-1] + v.shape[-1])

    def equation(self, *names: str) -> str:
        q, k, v = names
        return f"softmax({q} {k}ᵀ / √d{'' if self.bias is None else ' + B'}) {v}"
