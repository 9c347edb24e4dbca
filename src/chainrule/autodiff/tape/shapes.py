"""Checks of shapes, with errors that name the axis; and `sum_to`, the backward pass of broadcasting."""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.nodes import Array, Node
from chainrule.errors import AutodiffError


def has_axes(module: Node, number: int, *arrays: Array, or_more: bool = False) -> None:
    """Refuse arrays that do not have `number` axes; with `or_more`, only those that have fewer."""
    for array in arrays:
        if array.ndim < number or (array.ndim > number and not or_more):
            raise AutodiffError(
                f"{module.name}: expected {'at least ' if or_more else ''}{number} axes, found {array.ndim} "
                f"in {list(array.shape)}"
            )


def fit(module: Node, a: Array, axis_a: int, b: Array, axis_b: int) -> None:
    """Refuse two arrays unless axis `axis_a` of `a` is as long as axis `axis_b` of `b`."""
    if a.shape[axis_a] != b.shape[axis_b]:
        raise AutodiffError(
            f"{module.name}: shapes {list(a.shape)} and {list(b.shape)} do not fit: "
            f"axis {axis_a} of the first should be as long as axis {axis_b} of the second, "
            f"found {a.shape[axis_a]} and {b.shape[axis_b]}"
        )


def fit_all(module: Node, a: Array, b: Array, axes: range) -> None:
    """Refuse two arrays that differ in the number of axes, or in the length of one of `axes`."""
    if a.ndim != b.ndim:
        raise AutodiffError(
            f"{module.name}: shapes {list(a.shape)} and {list(b.shape)} do not fit: one has axis "
            f"{min(a.ndim, b.ndim)}, the other has not"
        )
    for axis in axes:
        fit(module, a, axis, b, axis)


def fit_broadcast(module: Node, a: Array, b: Array, leaving: int = 0) -> tuple[int, ...]:
    """Return the shape that both arrays broadcast to, without their last `leaving` axes; refuse others."""
    first, second = a.shape[: a.ndim - leaving], b.shape[: b.ndim - leaving]
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        pairs = enumerate(zip(reversed(first), reversed(second), strict=False), 1 + leaving)
        axis, x, y = next((-i, x, y) for i, (x, y) in pairs if x != y and 1 not in (x, y))
        raise AutodiffError(
            f"{module.name}: shapes {list(a.shape)} and {list(b.shape)} do not fit: "
            f"axis {axis} should be the same or 1, found {x} and {y}"
        ) from None


def check_ids(module: Node, ids: Array, table: Array) -> None:
    """Refuse ids that are not rows of the table: a lookup would silently read another row for them."""
    if ids.dtype.kind not in "iu":
        raise AutodiffError(
            f"{module.name}: ids should be whole numbers, not {ids.dtype}; for one-hot rows use MatMul"
        )
    if ids.size and not (ids.min() >= 0 and ids.max() < len(table)):
        raise AutodiffError(
            f"{module.name}: ids {list(ids.shape)} should be rows of axis 0 of {list(table.shape)}, "
            f"0 to {len(table) - 1}: found {ids.min()} to {ids.max()}"
        )


def sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of a value of `shape` that was broadcast: the sum of `gradient` over the copies."""
    if gradient.shape == shape:
        return gradient
    missing = gradient.ndim - len(shape)
    axes = [missing + i for i, length in enumerate(shape) if length == 1]
    summed: Array = gradient.sum(axis=(*range(missing), *axes), keepdims=True)
    return summed.reshape(shape)
