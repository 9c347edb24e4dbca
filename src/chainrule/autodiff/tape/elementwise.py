"""Modules that compute each number from one or two numbers, such as logarithms and quotients.

Two inputs are broadcast as in NumPy. Sums, products and activations are in modules.py.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.nodes import Array
from chainrule.autodiff.tape.shapes import fit_broadcast, sum_to
from chainrule.autodiff.tape.tape import Module


class Exp(Module):
    """z = e^x."""

    formula = "e^{}"

    def forward(self, x: Array) -> Array:
        return np.exp(x, out=self.empty_like(x))

    def backward(self, g: Array) -> tuple[Array]:
        # dz/dx = e^x = z
        return (g * self.out_tensor,)


class Log(Module):
    """z = ln x."""

    formula = "ln {}"

    def forward(self, x: Array) -> Array:
        return np.log(x, out=self.empty_like(x))

    def backward(self, g: Array) -> tuple[Array]:
        # dz/dx = 1 / x
        return (g / self.in_modules[0].out_tensor,)


class Subtract(Module):
    """z = a - b."""

    formula = "{} - {}"

    def forward(self, a: Array, b: Array) -> Array:
        fit_broadcast(self, a, b)
        return a - b

    def backward(self, g: Array) -> tuple[Array, Array]:
        a, b = (node.out_tensor for node in self.in_modules)
        # dz/da = 1,  dz/db = -1
        return sum_to(g, a.shape), sum_to(-g, b.shape)


class Divide(Module):
    """z = a / b."""

    formula = "{} / {}"

    def forward(self, a: Array, b: Array) -> Array:
        fit_broadcast(self, a, b)
        return a / b

    def backward(self, g: Array) -> tuple[Array, Array]:
        a, b = (node.out_tensor for node in self.in_modules)
        # dz/da = 1 / b,  dz/db = -a / b² = -z / b
        return sum_to(g / b, a.shape), sum_to(-g * self.out_tensor / b, b.shape)


class Power(Module):
    """z = a^b; x² is Power().apply_fwd(x, 2.0)."""

    formula = "{}^{}"

    def forward(self, a: Array, b: Array) -> Array:
        fit_broadcast(self, a, b)
        return a**b

    def backward(self, g: Array) -> tuple[Array, Array | None]:
        a, b = (node.out_tensor for node in self.in_modules)
        # dz/da = b a^(b-1); where b = 0 and a = 0 the product would be 0 · ∞
        da = sum_to(g * np.where(b == 0, 0, b * a ** (b - 1)), a.shape)
        if not self.in_modules[1].needs_gradient:  # ln a of a negative number is none
            return da, None
        # dz/db = a^b ln a, which is 0 for a = 0 and b > 0
        return da, sum_to(g * np.where(self.out_tensor == 0, 0, self.out_tensor * np.log(a)), b.shape)


class Maximum(Module):
    """z = max(a, b)."""

    formula = "max({}, {})"

    def forward(self, a: Array, b: Array) -> Array:
        fit_broadcast(self, a, b)
        return np.maximum(a, b)

    def backward(self, g: Array) -> tuple[Array, Array]:
        a, b = (node.out_tensor for node in self.in_modules)
        # dz/da = 1 where a is the larger, else 0; dz/db the other way round. Of equal ones, a counts as the larger.
        is_a = a >= b
        return sum_to(g * is_a, a.shape), sum_to(g * ~is_a, b.shape)
