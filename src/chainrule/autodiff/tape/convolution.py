"""Convolution and pooling: a window slides along the last axes, such as the height and the width of an image.

Place (m, n) of the window meets x_{hs+m, ws+n} for output (h, w), with stride s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from chainrule.autodiff.tape.nodes import Array, Node
from chainrule.autodiff.tape.shapes import fit, has_axes
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError


def _windows(module: Node, x: Array, size: tuple[int, ...], stride: tuple[int, ...], dilation: int = 1) -> Array:
    """Return the windows over the last axes of x, [..., H', W', M, N], a view of it that can be written to."""
    reach = [(length - 1) * dilation + 1 for length in size]
    if not all(0 < r <= length for r, length in zip(reach, x.shape[x.ndim - len(size) :], strict=True)):
        raise AutodiffError(
            f"{module.name}: a window of {reach} does not fit into the last axes of {list(x.shape)}"
        )
    every = sliding_window_view(x, reach, axis=tuple(range(-len(size), 0)), writeable=True)
    steps: Any = (..., *(slice(None, None, step) for step in (*stride, *[dilation] * len(size))))
    windows: Array = every[steps]
    return windows


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
        axes = kernels.ndim - 2
        has_axes(self, 1 + axes, x, or_more=True)
        fit(self, x, -1 - axes, kernels, 1)
        self._x = np.pad(x, [(0, 0)] * (x.ndim - axes) + [(self.padding, self.padding)] * axes)
        self._windows = self._over(self._x, kernels)
        # [C', ..., H', W'], the products summed over channels and places
        y = np.tensordot(kernels, self._windows, ([*range(1, axes + 2)], [-1 - 2 * axes, *range(-axes, 0)]))
        y = np.moveaxis(y, 0, -1 - axes)
        if bias is not None:
            has_axes(self, 1, bias)
            fit(self, kernels, 0, bias, 0)
            y += bias.reshape(-1, *[1] * axes)
        return y

    def backward(self, g: Array) -> tuple[Array, ...]:
        x, kernels = (node.out_tensor for node in self.in_modules[:2])
        axes = kernels.ndim - 2
        leading, space = [*range(x.ndim - axes - 1)], [*range(-axes, 0)]
        # dL/dα_mn = Σ g x_mnᵀ, over all outputs
        of_windows = [*leading, *range(len(leading) + 1, len(leading) + 1 + axes)]
        dkernels = np.tensordot(g, self._windows, ([*leading, *space], of_windows))
        dx = np.zeros_like(self._x, g.dtype)
        dwindows = self._over(dx, kernels)
        for place in np.ndindex(kernels.shape[2:]):
            # dL/dx_mn += α_mnᵀ g
            dplace = np.tensordot(kernels[(..., *place)], g, (0, len(leading)))
            dwindows[(..., *place)] += np.moveaxis(dplace, 0, len(leading))
        inside: Any = (..., *(slice(self.padding, self.padding + length) for length in x.shape[x.ndim - axes :]))
        # dL/dβ = Σ g, over all outputs of the channel
        dbias = [g.sum(axis=(*leading, *space)) for _ in self.in_modules[2:]]
        return dx[inside], dkernels, *dbias

    def _over(self, x: Array, kernels: Array) -> Array:
        return _windows(self, x, kernels.shape[2:], (self.stride,) * (kernels.ndim - 2), self.dilation)

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

    def _over(self, x: Array) -> Array:
        has_axes(self, len(self.size), x, or_more=True)
        stride = self.size if self.stride is None else (self.stride,) * len(self.size)
        return _windows(self, x, self.size, stride)

    def _spread(self, x: Array, gradients: Iterable[Array]) -> Array:
        """Return the gradient of x from those at each place of the window, which add up where windows overlap."""
        dx = np.zeros_like(x)
        windows = self._over(dx)
        for place, gradient in zip(np.ndindex(self.size), gradients, strict=True):
            windows[(..., *place)] += gradient
        return dx


class MaxPool(_Pool):
    """z_{h,w} = max_{m,n} x_{hs+m,ws+n}: MaxPool(2, 2) of x [..., H, W], MaxPool(2) of x [..., T].

    The stride s is by default the size of the window, so that windows do not overlap.
    """

    formula = "maxpool({})"

    def forward(self, x: Array) -> Array:
        windows = self._over(x)
        flat = windows.reshape(*windows.shape[: x.ndim], -1)
        self._largest = flat.argmax(axis=-1)
        z: Array = flat.max(axis=-1)
        return z

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 for the largest entry of the window, the first of equal ones, else 0
        return self._spread(x, (g * (self._largest == place) for place in range(math.prod(self.size))))


class MeanPool(_Pool):
    """z_{h,w} = Σ_{m,n} x_{hs+m,ws+n} / (M N): the mean of each window, with sizes and strides as for MaxPool."""

    formula = "meanpool({})"

    def forward(self, x: Array) -> Array:
        z: Array = self._over(x).mean(axis=tuple(range(-len(self.size), 0)))
        return z

    def backward(self, x: Array, z: Array, g: Array) -> Array:
        # dz/dx = 1 / (M N) for each entry of the window
        number = math.prod(self.size)
        return self._spread(x, [g / number] * number)


def _check(module: Node, least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not _is_whole(number, least):
            raise AutodiffError(
                f"{module.name}: {name} should be a whole number of at least {least}, not {number!r}"
            )


def _is_whole(number: Any, least: int) -> bool:
    return isinstance(number, int | np.integer) and bool(number >= least)
