"""The nodes of a computation graph: the base class, and the two kinds of leaves, which are data and parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from chainrule.autodiff.tape.gradients import Array, Gradient, SparseRows, add_to
from chainrule.errors import AutodiffError


class Allocator(Protocol):
    """What lends arrays: a tape, or a pool."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array: ...


class Node(ABC):
    """A node of the graph, with a value and a gradient of the same shape: a module, or a leaf."""

    name: str
    out_tensor: Array
    out_gradient: Array | SparseRows | None = None
    needs_gradient: bool = False
    in_modules: tuple[Node, ...] = ()

    @abstractmethod
    def receive(self, gradient: Gradient) -> None:
        """Add a gradient that flows in from one use of the node to `out_gradient`."""

    def room(self, allocator: Allocator) -> Array:
        """An uninitialised array of the value's shape, into which a module can write a gradient for `receive`."""
        return allocator.empty(self.out_tensor.shape, self.out_tensor.dtype)

    def __repr__(self) -> str:
        return f"<{self.name} {list(self.out_tensor.shape) if hasattr(self, 'out_tensor') else 'new'}>"


class Value(Node):
    """Data: ids, masks, a state that was carried over. No gradient flows into it."""

    def __init__(self, tensor: ArrayLike, name: str = "value") -> None:
        self.name = name
        self.out_tensor = np.asarray(tensor)

    def receive(self, gradient: Gradient) -> None:
        """Do nothing: data has no gradient."""


class Parameter(Node):
    """A learned tensor. Its gradient accumulates, across backward passes too, until `forget` is called.

    The tensor is not copied if it is row-major; any other, such as a transposed one, is. An optimiser updates it in
    place and never replaces it. Dense gradients reuse one buffer: copy `out_gradient` to keep it. The gradient of a
    table of which only rows were read is SparseRows.
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
        """The gradient as an array of the tensor's shape, zeros if none has flowed in."""
        if isinstance(self.out_gradient, np.ndarray):
            return self.out_gradient
        shape = self.out_tensor.shape
        return np.zeros_like(self.out_tensor) if self.out_gradient is None else self.out_gradient.dense(shape)

    def room(self, allocator: Allocator) -> Array:
        if self.out_gradient is not None or self._is_lent:
            return super().room(allocator)
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
        """The gradient in arrays that this parameter owns: those of the tape are reused, and it outlives them."""
        if gradient is self._buffer:
            return gradient
        if isinstance(gradient, SparseRows):
            return SparseRows(gradient.ids.copy(), gradient.rows.copy())
        # `room` has lent the buffer to a module that is writing its gradient there: do not overwrite that
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
