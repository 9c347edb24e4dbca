"""Modules that do arithmetic: products, activations, sums, means, norms, each with its equation.

All work on batches: inputs may have any number of axes before those in the equation. `g` is dL/dz, the gradient of
the module's output z; `backward` returns dL/dx for each input, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from chainrule.autodiff.tape.nodes import Array, Node, SparseRows
from chainrule.autodiff.tape.shapes import check_ids, fit, fit_all, fit_broadcast, has_axes, sum_to
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import LEAK

_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715  # of GELU


class Linear(Module):
    """z = W x + b for each row x: inputs x [..., in], W [out, in], and optionally b [out]."""

    def forward(self, x: Array, W: Array, b: Array | None = None) -> Array:
        has_axes(self, 1, x, or_more=True)
        has_axes(self, 2, W)
        fit(self, x, -1, W, 1)
        rows = x.reshape(-1, x.shape[-1])
        z = self.empty((*x.shape[:-1], len(W)), np.result_type(x, W))
        # z = x Wᵀ + b, with x and z as rows
        np.matmul(rows, W.T, out=z.reshape(len(rows), len(W)))
        if b is not None:
            has_axes(self, 1, b)
            fit(self, W, 0, b, 0)
            z += b
        return z

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        x, W = (node.out_tensor for node in self.in_modules[:2])
        rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        dx, dW = None, None
        if self.in_modules[0].needs_gradient:
            # dL/dx = Wᵀ g
            dx = np.matmul(g_rows, W, out=self.empty(rows.shape, g.dtype)).reshape(x.shape)
        if self.in_modules[1].needs_gradient:
            # dL/dW = Σ g xᵀ
            dW = np.matmul(g_rows.T, rows, out=self.room_for(1))
        if len(self.in_modules) == 2:
            return dx, dW
        # dL/db = Σ g
        return dx, dW, np.sum(g_rows, axis=0, out=self.room_for(2))

    @property
    def flops(self) -> int:
        return 2 * self.out_tensor.size * int(self.in_modules[0].out_tensor.shape[-1])

    def equation(self, *names: str) -> str:
        x, W, *b = names
        return " + ".join([f"{W} {x}", *b])


class MatMul(Module):
    """z = A B, the matrix product over the last two axes: inputs A [..., n, k] and B [..., k, m]."""

    formula = "{} {}"

    def forward(self, A: Array, B: Array) -> Array:
        has_axes(self, 2, A, B, or_more=True)
        fit(self, A, -1, B, -2)
        leading = fit_broadcast(self, A, B, leaving=2)
        z = self.empty((*leading, A.shape[-2], B.shape[-1]), np.result_type(A, B))
        return np.matmul(A, B, out=z)

    def backward(self, A: Array, B: Array, z: Array, g: Array) -> tuple[Array, Array]:
        # dL/dA = g Bᵀ,  dL/dB = Aᵀ g
        return sum_to(g @ B.swapaxes(-1, -2), A.shape), sum_to(A.swapaxes(-1, -2) @ g, B.shape)

    @property
    def flops(self) -> int:
        return 2 * self.out_tensor.size * int(self.in_modules[0].out_tensor.shape[-1])


class Embedding(Module):
    """z = E[id], which is the one-hot vector of the id times E: inputs E [V, D] and ids [...].

    With L = Σ z, the gradient of a row of E is the count of its id, in every column:

    >>> from chainrule.autodiff import Parameter, Tape, tape_bwd
    >>> E, ids = Parameter("E", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([2, 0, 2])
    >>> with Tape():
    ...     rows = MatMul().apply_fwd(np.eye(3)[ids], E)
    ...     tape_bwd()
    >>> np.array_equal(rows.out_tensor, E.out_tensor[ids])
    True
    >>> E.dense_gradient().tolist()
    [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]
    """

    formula = "{}[{}]"

    def forward(self, E: Array, ids: Array) -> Array:
        has_axes(self, 2, E)
        check_ids(self, ids, E)
        z = self.empty((*ids.shape, E.shape[1]), E.dtype)
        # the ids are in range; with mode="raise" NumPy would buffer its output, so as not to spoil z by an error
        return np.take(E, ids, axis=0, out=z, mode="clip")

    def backward(self, E: Array, ids: Array, z: Array, g: Array) -> tuple[SparseRows, None]:
        # dL/dE[id] = Σ g over the positions of this id
        return SparseRows(ids.reshape(-1), g.reshape(-1, g.shape[-1])), None


# -- functions of each number -----------------------------------------------------------------------------


class Exp(Module):
    """z = e^x."""

    formula = "e^{}"

    def forward(self, x: Array) -> Array:
        return np.exp(x, out=self.empty_like(x))

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = e^x = z
        return g * z


class Log(Module):
    """z = ln x."""

    formula = "ln {}"

    def forward(self, x: Array) -> Array:
        return np.log(x, out=self.empty_like(x))

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 / x
        return g / x


class Sigmoid(Module):
    """z = σ(x) = 1 / (1 + e^-x)."""

    formula = "σ({})"

    def forward(self, x: Array) -> Array:
        z = np.negative(x, out=self.empty_like(x))
        np.exp(z, out=z)
        z += 1
        return np.reciprocal(z, out=z)

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dσ/dx = z (1 - z)
        dx = np.subtract(1, z, out=self.empty_like(z))
        dx *= z
        dx *= g
        return dx


class Tanh(Module):
    """z = tanh(x)."""

    formula = "tanh({})"

    def forward(self, x: Array) -> Array:
        return np.tanh(x, out=self.empty_like(x))

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 - z²
        dx = np.square(z, out=self.empty_like(z))
        np.subtract(1, dx, out=dx)
        dx *= g
        return dx


class ReLU(Module):
    """z = max(0, x)."""

    formula = "max(0, {})"

    def forward(self, x: Array) -> Array:
        return np.maximum(x, 0, out=self.empty_like(x))

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 where x > 0, else 0
        return np.multiply(g, z > 0, out=self.empty_like(g))


class LeakyReLU(Module):
    """z = max(x, x / 100): a unit below 0 still learns."""

    formula = "leaky_relu({})"

    def forward(self, x: Array) -> Array:
        return np.where(x > 0, x, LEAK * x)

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 where x > 0, else 1/100
        return np.where(z > 0, g, LEAK * g)


class GELU(Module):
    """z = x Φ(x), where Φ(x) ≈ (1 + tanh u) / 2,  u = sqrt(2/π) (x + 0.044715 x³), as in GPT-2."""

    formula = "gelu({})"

    def forward(self, x: Array) -> Array:
        t = np.square(x, out=self.empty_like(x))
        t *= _CUBIC
        t += 1
        t *= x
        t *= _SLOPE
        self._t = np.tanh(t, out=t)
        z = np.add(t, 1, out=self.empty_like(x))
        z *= x
        z *= 0.5
        return z

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = (1 + t + x (1 - t²) du/dx) / 2,  du/dx = sqrt(2/π) (1 + 3 · 0.044715 x²)
        t = self._t
        dx = np.square(x, out=self.empty_like(x))
        dx *= 3 * _CUBIC * _SLOPE
        dx += _SLOPE
        dx *= x
        dx *= 1 - np.square(t)
        dx += t
        dx += 1
        dx *= 0.5
        dx *= g
        return dx


class ErfGELU(Module):
    """z = x Φ(x), where Φ(x) = (1 + erf(x / sqrt(2))) / 2, as in BERT."""

    formula = "{0} Φ({0})"

    def forward(self, x: Array) -> Array:
        self._Phi: Array = (1 + _compiled_erf()(x * x.dtype.type(math.sqrt(0.5)))) * x.dtype.type(0.5)
        z: Array = x * self._Phi
        return z

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = Φ(x) + x φ(x),  φ(x) = e^(-x²/2) / sqrt(2π)
        density = np.exp(np.square(x) * x.dtype.type(-0.5)) * x.dtype.type(_SLOPE / 2)
        dx: Array = (self._Phi + x * density) * g
        return dx


@cache
def _compiled_erf() -> Callable[[Array], Array]:
    """Return the error function for arrays, which NumPy lacks."""
    from numba import vectorize

    compiled: Callable[[Array], Array] = vectorize(["float32(float32)", "float64(float64)"], cache=True)(_erf)
    return compiled


def _erf(x: float) -> float:
    return math.erf(x)


class Scale(Module):
    """z = c x + s, with constants c and s: 1 - x is Scale(-1, 1)."""

    def __init__(self, factor: float, shift: float = 0.0) -> None:
        self.factor, self.shift = float(factor), float(shift)

    def forward(self, x: Array) -> Array:
        z = np.multiply(x, self.factor, out=self.empty_like(x))
        if self.shift:
            z += self.shift
        return z

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = c
        return np.multiply(g, self.factor, out=self.empty_like(g))

    def equation(self, *names: str) -> str:
        [x] = names
        scaled = {1.0: x, -1.0: f"-{x}"}.get(self.factor, f"{self.factor:.4g} {x}")
        if not self.shift:
            return scaled
        # 1 - x rather than 1 + -x, as in the equations of the lectures
        return f"{self.shift:.4g} {f'- {x}' if self.factor == -1 else f'+ {scaled}'}"


# -- functions of two numbers -----------------------------------------------------------------------------


class _OfTwo(Module):
    """A function of NumPy of two numbers each; the inputs are broadcast as there."""

    function: np.ufunc

    def forward(self, a: Array, b: Array) -> Array:
        shape = fit_broadcast(self, a, b)
        dtype = self.function.resolve_dtypes((a.dtype, b.dtype, None))[2]
        z: Array = self.function(a, b, out=self.empty(shape, dtype))
        return z


class Add(_OfTwo):
    """z = a + b, broadcast as in NumPy."""

    function, formula = np.add, "{} + {}"

    def backward(self, a: Array, b: Array, z: Array, g: Array) -> tuple[Array, Array]:
        # dz/da = dz/db = 1
        return sum_to(g, a.shape), sum_to(g, b.shape)


class Subtract(_OfTwo):
    """z = a - b, broadcast as in NumPy."""

    function, formula = np.subtract, "{} - {}"

    def backward(self, a: Array, b: Array, z: Array, g: Array) -> tuple[Array, Array]:
        # dz/da = 1,  dz/db = -1
        return sum_to(g, a.shape), sum_to(-g, b.shape)


class Multiply(_OfTwo):
    """z = a ⊙ b, broadcast as in NumPy."""

    function, formula = np.multiply, "{} ⊙ {}"

    def backward(self, g: Array) -> tuple[Array | None, Array | None]:
        a, b = self.in_modules
        # dz/da = b,  dz/db = a
        return self._times(g, b, a), self._times(g, a, b)

    def _times(self, g: Array, factor: Node, of: Node) -> Array | None:
        if not of.needs_gradient:  # data such as a mask, whose gradient would be large and useless
            return None
        return sum_to(np.multiply(g, factor.out_tensor, out=self.empty_like(g)), of.out_tensor.shape)


class Divide(_OfTwo):
    """z = a / b, broadcast as in NumPy."""

    function, formula = np.divide, "{} / {}"

    def backward(self, a: Array, b: Array, z: Array, g: Array) -> tuple[Array, Array]:
        # dz/da = 1 / b,  dz/db = -a / b² = -z / b
        return sum_to(g / b, a.shape), sum_to(-g * z / b, b.shape)


class Power(_OfTwo):
    """z = a^b, broadcast as in NumPy; x² is Power().apply_fwd(x, 2.0)."""

    function, formula = np.power, "{}^{}"

    def backward(self, a: Array, b: Array, z: Array, g: Array) -> tuple[Array, Array | None]:
        # dz/da = b a^(b-1); where b = 0 and a = 0 the product would be 0 · ∞
        da = sum_to(g * np.where(b == 0, 0, b * a ** (b - 1)), a.shape)
        if not self.in_modules[1].needs_gradient:  # ln a of a negative number is none
            return da, None
        # dz/db = a^b ln a, which is 0 for a = 0 and b > 0
        return da, sum_to(g * np.where(z == 0, 0, z * np.log(a)), b.shape)


class Maximum(_OfTwo):
    """z = max(a, b), broadcast as in NumPy."""

    function, formula = np.maximum, "max({}, {})"

    def backward(self, a: Array, b: Array, z: Array, g: Array) -> tuple[Array, Array]:
        # dz/da = 1 where a is the larger, else 0; dz/db the other way round. Of equal ones, a counts as the larger.
        is_a = a >= b
        return sum_to(g * is_a, a.shape), sum_to(g * ~is_a, b.shape)


# -- sums and means ---------------------------------------------------------------------------------------


class Sum(Module):
    """z = Σ x, over all entries of x, or along one axis."""

    formula = "Σ {}"

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis

    def forward(self, x: Array) -> Array:
        has_axes(self, 0 if self.axis is None else max(self.axis + 1, -self.axis), x, or_more=True)
        return np.asarray(x.sum(axis=self.axis))

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1
        return np.broadcast_to(g if self.axis is None else np.expand_dims(g, self.axis), x.shape)


class Mean(Module):
    """z = Σ x / n, over all n entries of x."""

    formula = "Σ {} / n"

    def forward(self, x: Array) -> Array:
        return np.asarray(x.mean())

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 / n
        return np.broadcast_to(g / g.dtype.type(x.size), x.shape)


class RunningMean(Module):
    """z_t = (s + Σ_{i<=t} x_i) / (n + t), t = 1, 2, ...: inputs x [..., T, D], optionally s [..., D] and n [...].

    s is the sum of n vectors before x_1; without them the mean begins at x_1.
    """

    formula = "mean({})"

    def forward(self, x: Array, before: Array | None = None, count: Array | None = None) -> Array:
        has_axes(self, 2, x, or_more=True)
        z = np.cumsum(x, axis=-2, out=self.empty_like(x))
        n: Array | int = 0
        if before is not None and count is not None:
            fit_all(self, x[..., 0, :], before, range(before.ndim))
            fit_all(self, x[..., 0, 0], count, range(count.ndim))
            z += before[..., None, :]
            n = count[..., None, None]
        self._count = (n + np.arange(1, x.shape[-2] + 1)[:, None]).astype(z.dtype)
        z /= self._count
        return z

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        # dz_t/dx_i = 1 / (n + t) for all t >= i: sums from the last step on
        shares = g / self._count
        dx = np.flip(np.cumsum(np.flip(shares, axis=-2), axis=-2), axis=-2)
        return (dx,) if len(self.in_modules) == 1 else (dx, shares.sum(axis=-2), None)


class LayerNorm(Module):
    """z = γ ⊙ (x - μ) / sqrt(σ² + ε) + β, with mean and variance of the last axis: inputs x [..., D], γ, β [D]."""

    formula = "({0} - μ) / σ"
    _centres = True

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, x: Array, gain: Array | None = None, shift: Array | None = None) -> Array:
        has_axes(self, 1, x, or_more=True)
        for vector in (gain, shift):
            if vector is not None:
                has_axes(self, 1, vector)
                fit(self, x, -1, vector, 0)
        n: Array = np.subtract(x, x.mean(axis=-1, keepdims=True), out=self.empty_like(x)) if self._centres else x
        self._r = 1 / np.sqrt(np.square(n).mean(axis=-1, keepdims=True) + self.eps)
        # n = (x - μ) r,  r = 1 / sqrt(σ² + ε)
        self._n = n = np.multiply(n, self._r, out=self.empty_like(x))
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
        dx = dn - n * (dn * n).mean(axis=-1, keepdims=True)
        if self._centres:
            dx -= dn.mean(axis=-1, keepdims=True)
        dx *= self._r
        # dL/dγ = Σ g ⊙ n,  dL/dβ = Σ g
        sums = (g * n, g)[: len(learned)]
        return dx, *(sum_to(each, node.out_tensor.shape) for each, node in zip(sums, learned, strict=True))

    def equation(self, *names: str) -> str:
        x, gain, shift = (*names, "", "")[:3]
        normed = self.formula.format(x)
        return (f"{gain} ⊙ " if gain else "") + normed + (f" + {shift}" if shift else "")


class RMSNorm(LayerNorm):
    """z = γ ⊙ x / sqrt(mean(x²) + ε), along the last axis (Zhang and Sennrich 2019): inputs x [..., D], γ [D]."""

    formula = "{0} / rms({0})"
    _centres = False
