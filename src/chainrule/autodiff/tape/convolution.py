"""Convolution and pooling: a window slides along the last axes, such as the height and the width of an image.

Place (m, n) of the window meets x_{hs+m, ws+n} for output (h, w), with stride s. For all outputs together that is a
strided part of x, so that each module is a loop over the places of its window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff.tape.nodes import Array, Node
from chainrule.autodiff.tape.shapes import fit, has_axes, sum_to
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError


@dataclass(frozen=True)
class _Windows:
    """The windows of one size over the last axes of an array; `lengths` counts them along each axis."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: int
    lengths: tuple[int, ...]

    @classmethod
    def over(
        cls, module: Node, x: Array, size: tuple[int, ...], strides: tuple[int, ...], dilation: int = 1
    ) -> _Windows:
        space = x.shape[x.ndim - len(size) :]
        reach = [(length - 1) * dilation + 1 for length in size]
        if not all(0 < r <= length for r, length in zip(reach, space, strict=True)):
            raise AutodiffError(
                f"{module.name}: a window of {reach} does not fit into the last axes of {list(x.shape)}"
            )
        # a window that would end beyond the last entry is left out
        steps = zip(space, reach, strides, strict=True)
        return cls(size, strides, dilation, tuple((length - r) // s + 1 for length, r, s in steps))

    def places(self) -> Iterator[tuple[Any, Any]]:
        """Yield the index of each place of the window, and of the part of the array that it meets."""
        for place in np.ndindex(*self.size):
            starts = [m * self.dilation for m in place]
            along = zip(starts, self.lengths, self.strides, strict=True)
            yield (..., *place), (..., *(slice(start, start + (count - 1) * s + 1, s) for start, count, s in along))


class Convolution(Module):
    """y_{c',h,w} = β_c' + Σ_c Σ_m Σ_n x_{c,hs+m,ws+n} α_{c',c,m,n}, with stride s.

    Inputs are x [..., C, H, W], the kernels α [C', C, M, N] and optionally β [C']; y is [..., C', H', W']. Kernels
    [C', C, M] make a convolution along one axis, of x [..., C, T]. `padding` is the number of zeros before and
    after x on each of these axes. With dilation d, the kernels meet every d-th entry: x_{c,hs+md,ws+nd}.
    """

    formula = "{1} * {0}"

    def __init__(self, stride: int = 1, padding: int = 0, dilation: int = 1) -> None:
        _check(self, 1, stride=stride, dilation=dilation)
        _check(self, 0, padding=padding)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Array, kernels: Array, bias: Array | None = None) -> Array:
        has_axes(self, 3, kernels, or_more=True)
        size = kernels.shape[2:]
        has_axes(self, 1 + len(size), x, or_more=True)
        fit(self, x, -1 - len(size), kernels, 1)
        self._x = np.pad(x, [(0, 0)] * (x.ndim - len(size)) + [(self.padding, self.padding)] * len(size))
        self._windows = _Windows.over(self, self._x, size, (self.stride,) * len(size), self.dilation)
        leading, lengths = x.shape[: -1 - len(size)], self._windows.lengths
        y = np.zeros((*leading, len(kernels), math.prod(lengths)), np.result_type(x, kernels))
        for place, part in self._windows.places():
            # y += α_mn x_mn, with α_mn as a matrix [C', C] and x_mn as [C, H' W']
            y += kernels[place] @ self._columns(self._x[part])
        if bias is not None:
            has_axes(self, 1, bias)
            fit(self, kernels, 0, bias, 0)
            y += bias[:, None]
        return y.reshape(*leading, len(kernels), *lengths)

    def backward(self, g: Array) -> tuple[Array, ...]:
        x, kernels = (node.out_tensor for node in self.in_modules[:2])
        g = self._columns(g)
        dx, dkernels = np.zeros_like(self._x, g.dtype), np.empty_like(kernels, g.dtype)
        for place, part in self._windows.places():
            # dL/dα_mn = Σ g x_mnᵀ,  dL/dx_mn += α_mnᵀ g
            alpha = kernels[place]
            dkernels[place] = sum_to(g @ self._columns(self._x[part]).swapaxes(-1, -2), alpha.shape)
            dx[part] += (alpha.T @ g).reshape(dx[part].shape)
        space = x.shape[2 - kernels.ndim :]
        inside: Any = (..., *(slice(self.padding, self.padding + length) for length in space))
        # dL/dβ = Σ g, over all outputs of the channel
        dbias = [sum_to(g.sum(axis=-1), node.out_tensor.shape) for node in self.in_modules[2:]]
        return dx[inside], dkernels, *dbias

    def _columns(self, channels: Array) -> Array:
        """Flatten [..., C, H', W'] to [..., C, H' W']."""
        lengths = self._windows.lengths
        return channels.reshape(*channels.shape[: -len(lengths)], math.prod(lengths))

    def equation(self, *names: str) -> str:
        return " + ".join([super().equation(*names[:2]), *names[2:]])


class _Pool(Module):
    """A module with windows of one size, such as 2, 2 for an image."""

    def __init__(self, *size: int, stride: int | None = None) -> None:
        if not size or not all(_is_whole(length, 1) for length in size):
            raise AutodiffError(
                f"{self.name}: the size should be whole numbers of at least 1, such as {self.name}(2, 2), "
                f"not {list(size)}"
            )
        _check(self, 1, stride=1 if stride is None else stride)
        self.size, self.stride = size, stride

    def _parts(self, x: Array) -> list[Any]:
        """For each place of the window, the index of the part of x that it meets."""
        has_axes(self, len(self.size), x, or_more=True)
        strides = self.size if self.stride is None else (self.stride,) * len(self.size)
        return [part for _, part in _Windows.over(self, x, self.size, strides).places()]

    def _spread(self, gradients: Iterator[Array]) -> Array:
        """Return the gradient of x from those of its parts, which add up where windows overlap."""
        x = self.in_modules[0].out_tensor
        dx = np.zeros_like(x)
        for part, gradient in zip(self._parts(x), gradients, strict=True):
            dx[part] += gradient
        return dx


class MaxPool(_Pool):
    """z_{h,w} = max_{m,n} x_{hs+m,ws+n}: MaxPool(2, 2) of x [..., H, W], MaxPool(2) of x [..., T].

    The stride s is by default the size of the window, so that windows do not overlap.
    """

    formula = "maxpool({})"

    def forward(self, x: Array) -> Array:
        parts = np.stack([x[part] for part in self._parts(x)])
        self._largest = parts.argmax(axis=0)
        z: Array = parts.max(axis=0)
        return z

    def backward(self, g: Array) -> tuple[Array]:
        # dz/dx = 1 for the largest entry of the window, the first of equal ones, else 0
        return (self._spread(g * (self._largest == place) for place in range(math.prod(self.size))),)


class MeanPool(_Pool):
    """z_{h,w} = Σ_{m,n} x_{hs+m,ws+n} / (M N): the mean of each window, with sizes and strides as for MaxPool."""

    formula = "meanpool({})"

    def forward(self, x: Array) -> Array:
        z: Array = np.mean([x[part] for part in self._parts(x)], axis=0)
        return z

    def backward(self, g: Array) -> tuple[Array]:
        # dz/dx = 1 / (M N) for each entry of the window
        number = math.prod(self.size)
        return (self._spread(g / number for _ in range(number)),)


def _check(module: Node, least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not _is_whole(number, least):
            raise AutodiffError(
                f"{module.name}: {name} should be a whole number of at least {least}, not {number!r}"
            )


def _is_whole(number: Any, least: int) -> bool:
    return isinstance(number, int | np.integer) and bool(number >= least)
