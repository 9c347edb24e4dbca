"""The nodes of a computation graph, its leaves (data and parameters), and the gradients that flow into them.

A gradient is an array, or is stored without its zeros: rows of a table (`SparseRows`) or a slice (`Part`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.errors import AutodiffError

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The gradient of a table when only some rows were read: `rows[n]` belongs to row `ids[n]`.

    An id that was read twice is listed twice; the gradient of its row is the sum of both.
    """

    ids: Array  # [N]
    rows: Array  # [N, D]

    def __add__(self, other: SparseRows) -> SparseRows:
        return SparseRows(np.concatenate([self.ids, other.ids]), np.concatenate([self.rows, other.rows]))

    def merged(self) -> SparseRows:
        """Return this gradient with each id once, in ascending order, and the rows of equal ids summed."""
        order = np.argsort(self.ids, kind="stable")
        ids = self.ids[order]
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        # no ids, no starts: there is nothing to reduce
        rows = np.add.reduceat(self.rows[order], starts, axis=0) if len(starts) else self.rows
        return SparseRows(ids[starts], rows)

    def add_to(self, table: Array) -> None:
        if table.shape[1:] != self.rows.shape[1:]:
            raise AutodiffError(
                f"rows of {list(self.rows.shape)} do not fit a table of {list(table.shape)}: axis 1 differs"
            )
        merged = self.merged()
        table[merged.ids] += merged.rows

    def dense(self, shape: tuple[int, ...]) -> Array:
        table = np.zeros(shape, self.rows.dtype)
        self.add_to(table)
        return table


@dataclass(frozen=True, eq=False)
class Part:
    """The gradient of an array when only `array[where]` was used: zero everywhere else."""

    where: Any
    gradient: Array

    def add_to(self, array: Array) -> None:
        array[self.where] += self.gradient


Gradient: TypeAlias = Array | SparseRows | Part


def add_to(array: Array, gradient: Gradient) -> None:
    """array += gradient, in place, for a dense or a sparse gradient."""
    if isinstance(gradient, np.ndarray):
        array += gradient
    else:
        gradient.add_to(array)


class Node(ABC):
    """A node of the graph, with a value and a gradient of the same shape: a module, or a leaf."""

    name: str
    symbol: str = ""
    """The node's letter in the equations of its network, such as f for a forget gate; empty if it has none."""
    out_tensor: Array
    out_gradient: Array | SparseRows | None = None
    needs_gradient: bool = False
    in_modules: tuple[Node, ...] = ()

    @abstractmethod
    def receive(self, gradient: Gradient) -> None:
        """Add a gradient that flows in from one use of the node to `out_gradient`."""

    def __repr__(self) -> str:
        return f"<{self.name} {list(self.out_tensor.shape) if hasattr(self, 'out_tensor') else 'new'}>"


class Value(Node):
    """Data: ids, masks, a state that was carried over. No gradient flows into it."""

    def __init__(self, tensor: ArrayLike, name: str = "value") -> None:
        self.name = name
        try:
            self.out_tensor = np.asarray(tensor)
        except ValueError as error:
            raise AutodiffError(f"{name}: cannot make an array of this {type(tensor).__name__}: {error}") from None

    def receive(self, gradient: Gradient) -> None:
        """Do nothing: data has no gradient."""


class Parameter(Node):
    """A learned tensor. Its gradient accumulates, across backward passes too, until `forget` is called.

    The tensor is not copied if it is row-major; any other, such as a transposed one, is. An optimiser updates it in
    place and never replaces it. Dense gradients reuse one buffer: copy `out_gradient` to keep it. The gradient of a
    table is SparseRows if only some rows were read.
    """

    needs_gradient = True

    def __init__(self, name: str, tensor: ArrayLike) -> None:
        self.name = name
        self.out_tensor = np.asarray(tensor, order="C")
        if self.out_tensor.dtype.kind != "f":
            raise AutodiffError(
                f"parameter {name!r} should hold floating-point numbers, not {self.out_tensor.dtype}"
            )
        self._buffer: Array | None = None
        self._is_lent = False

    def forget(self) -> None:
        """Discard the gradient, so that the next one to flow in begins a new sum."""
        self.out_gradient = None
        self._is_lent = False

    def dense_gradient(self) -> Array:
        """Return the gradient as an array of the tensor's shape, zeros if none has flowed in."""
        if isinstance(self.out_gradient, np.ndarray):
            return self.out_gradient
        shape = self.out_tensor.shape
        return np.zeros_like(self.out_tensor) if self.out_gradient is None else self.out_gradient.dense(shape)

    def lend(self) -> Array | None:
        """Return the buffer of the gradient, for one that is then given to `receive`; None if it is in use."""
        if self.out_gradient is not None or self._is_lent:
            return None
        self._is_lent = True
        return self._own()

    def receive(self, gradient: Gradient) -> None:
        held = self.out_gradient
        if held is None:
            self.out_gradient = self._taken(gradient)
        elif isinstance(held, np.ndarray):
            add_to(held, gradient)
        elif isinstance(gradient, SparseRows):
            self.out_gradient = held + gradient
        else:
            dense = self._taken(gradient)
            held.add_to(dense)
            self.out_gradient = dense

    def _taken(self, gradient: Gradient) -> Any:
        """Return the gradient in arrays that this parameter owns; the arrays of the tape are reused."""
        if gradient is self._buffer:
            return gradient
        if isinstance(gradient, SparseRows):
            return SparseRows(gradient.ids.copy(), gradient.rows.copy())
        # `lend` has lent the buffer to a module that is writing its gradient there: do not overwrite that
        dense = np.empty_like(self.out_tensor) if self._is_lent else self._own()
        if isinstance(gradient, np.ndarray):
            dense[...] = gradient
        else:
            dense.fill(0)
            gradient.add_to(dense)
        return dense

    def _own(self) -> Array:
        if self._buffer is None:
            self._buffer = np.empty(self.out_tensor.shape, self.out_tensor.dtype)
        return self._buffer


class InGradients(list[Any]):
    """The gradients of a module's inputs, in order: arrays, or None.

    Each input comes with the nodes that it was in each application of the module, and their gradients, which are
    added if the node is the same. An index asks for a gradient, and says what to write where there is none.
    """

    def __init__(self, name: str, inputs: Iterable[Iterable[tuple[Node, Gradient | None]]]) -> None:
        self._name = name
        super().__init__(self._added(list(uses)) for uses in inputs)

    @staticmethod
    def _added(uses: list[tuple[Node, Gradient | None]]) -> Array | None:
        if len({id(node) for node, _ in uses}) > 1 or any(gradient is None for _, gradient in uses):
            return None
        tensor = uses[0][0].out_tensor
        total = np.zeros(tensor.shape, np.result_type(tensor, np.float32))  # whole numbers become float64
        for _, gradient in uses:
            add_to(total, gradient if isinstance(gradient, SparseRows | Part) else np.asarray(gradient))
        return total

    def __getitem__(self, i: Any) -> Any:
        gradient = super().__getitem__(i)
        if gradient is None:
            raise AutodiffError(
                f"{self._name}: input {i} has no gradient: it is data (make it a Parameter), or differs between "
                "the applications of the module (apply another module)"
            )
        return gradient
