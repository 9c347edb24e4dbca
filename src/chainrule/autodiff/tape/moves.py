"""Modules that only rearrange numbers, and in the backward pass rearrange their gradients the other way."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from chainrule.autodiff.tape.nodes import Array, Part
from chainrule.autodiff.tape.shapes import fit_all
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError

_PLACES = (slice, int, np.integer, EllipsisType)


class Concat(Module):
    """z = [x_1; x_2; ...], concatenated along the last axis."""

    def forward(self, *parts: Array) -> Array:
        for part in parts[1:]:
            fit_all(self, parts[0], part, range(part.ndim - 1))
        width = sum(part.shape[-1] for part in parts)
        return np.concatenate(parts, axis=-1, out=self.empty((*parts[0].shape[:-1], width), np.result_type(*parts)))

    def backward(self, g: Array) -> tuple[Array, ...]:
        ends = np.cumsum([node.out_tensor.shape[-1] for node in self.in_modules])
        return tuple(np.split(g, ends[:-1], axis=-1))

    def equation(self, *names: str) -> str:
        return f"[{_listed(names)}]"


class Stack(Module):
    """z_t = x_t: arrays of one shape, stacked along a new axis, such as the states of an RNN along time."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, *steps: Array) -> Array:
        for step in steps[1:]:
            fit_all(self, steps[0], step, range(step.ndim))
        return np.stack(steps, axis=self.axis)

    def backward(self, g: Array) -> tuple[Array, ...]:
        return tuple(np.moveaxis(g, self.axis, 0))

    def equation(self, *names: str) -> str:
        return f"stack({_listed(names)})"


class Windows(Module):
    """z_t = [x_{t-n}; ...; x_t]: beside each of the steps x_TBD the n before it, of which the first are before_BND.

    A linear layer on top is a causal convolution.
    """

    formula = "windows of {1}, {0}"

    def forward(self, x_TBD: Array, before_BND: Array) -> Array:
        every = np.concatenate([before_BND.swapaxes(0, 1), x_TBD])
        count, steps = before_BND.shape[1] + 1, len(x_TBD)
        out = self.empty((*x_TBD.shape[:-1], count * x_TBD.shape[-1]), x_TBD.dtype)
        return np.concatenate([every[n : n + steps] for n in range(count)], axis=-1, out=out)

    def backward(self, x_TBD: Array, before_BND: Array, z: Array, g: Array) -> tuple[Array, ...]:
        steps, before = len(x_TBD), before_BND.shape[1]
        every = np.zeros((before + steps, *x_TBD.shape[1:]), g.dtype)
        for n, part in enumerate(np.split(g, before + 1, axis=-1)):
            every[n : n + steps] += part
        return every[before:], every[:before].swapaxes(0, 1)


class Slice(Module):
    """z = x[where], with `where` as made by np.s_: a gate is np.s_[..., :m], a step in time np.s_[:, t]."""

    def __init__(self, where: Any) -> None:
        self.where = where

    def forward(self, x: Array) -> Array:
        where = self.where if isinstance(self.where, tuple) else (self.where,)
        # a list of indices may repeat one, and `+=` in Part would count its gradient only once
        if not all(isinstance(one, _PLACES) and not isinstance(one, bool) for one in where):
            raise AutodiffError(f"{self.name}: takes numbers and slices, not {self.where}; rows by ids: Embedding")
        try:
            return np.asarray(x[where])
        except IndexError as error:
            raise AutodiffError(f"{self.name}: {list(x.shape)} has no part {self.where}: {error}") from None

    def backward(self, g: Array) -> tuple[Part]:
        return (Part(self.where, g),)

    def equation(self, *names: str) -> str:
        where = self.where if isinstance(self.where, tuple) else (self.where,)
        return f"{names[0]}[{', '.join(map(_index_text, where))}]"


class Reshape(Module):
    """z = x in another shape, the numbers in the same order; one length may be -1, which is then inferred."""

    formula = "reshape({})"

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def forward(self, x: Array) -> Array:
        try:
            return x.reshape(self.shape)
        except ValueError:
            raise AutodiffError(
                f"{self.name}: {list(x.shape)} has {x.size} numbers, which do not fill {list(self.shape)}"
            ) from None

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        return g.reshape(x.shape)


class Transpose(Module):
    """z_ij = x_ji: two axes swapped, by default the last two."""

    formula = "{}ᵀ"

    def __init__(self, first: int = -2, second: int = -1) -> None:
        self.axes = first, second

    def forward(self, x: Array) -> Array:
        if not all(-x.ndim <= axis < x.ndim for axis in self.axes):
            raise AutodiffError(f"{self.name}: {list(x.shape)} has not both axes {self.axes[0]} and {self.axes[1]}")
        return x.swapaxes(*self.axes)

    def backward(self, g: Array) -> Array:
        return g.swapaxes(*self.axes)


def _listed(names: Sequence[str]) -> str:
    """Return the names of many inputs; only the first two and the last of a long list."""
    return "; ".join(names if len(names) <= 4 else (*names[:2], "…", names[-1]))


def _index_text(where: Any) -> str:
    """Return an index as it is written between brackets."""
    if where is Ellipsis:
        return "..."
    if not isinstance(where, slice):
        return str(where)
    ends = (where.start, where.stop) if where.step is None else (where.start, where.stop, where.step)
    return ":".join("" if end is None else str(end) for end in ends)
