"""The memory that a network keeps of the rows it has read, defined once for torch and the tape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from array_api_compat import is_numpy_array

from chainrule.arrays import Array, array_namespace


class Memory(ABC):
    """The memory of a network for each row of a batch. It is immutable: reading on returns a new memory."""

    @abstractmethod
    def select(self, rows_B: Array) -> Self:
        """Return the memory whose row i is row rows_B[i] of this one."""

    @abstractmethod
    def join(self, other: Self) -> Self:
        """Return the memory with the rows of this one and then those of the other."""

    @abstractmethod
    def detach(self) -> Self:
        """Return this memory cut off from its gradients, which truncates back-propagation through time."""


class ArrayMemory(Memory):
    """A memory made of arrays, tuples of arrays, and other memories; rows are along the first axis of an array."""

    def select(self, rows_B: Array) -> Self:
        return self._made(lambda part: part.select(rows_B) if isinstance(part, Memory) else part[rows_B])

    def join(self, other: Self) -> Self:
        return self._made(_joined, other)

    def detach(self) -> Self:
        return self._made(lambda part: part if is_numpy_array(part) else part.detach())

    def _made(self, work: Callable[..., Any], *others: Self) -> Self:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(_mapped(work, *(getattr(one, name) for one in (self, *others))) for name in names))


def _joined(mine: Any, theirs: Any) -> Any:
    return mine.join(theirs) if isinstance(mine, Memory) else array_namespace(mine).concat([mine, theirs])


def _mapped(work: Callable[..., Any], *values: Any) -> Any:
    """Return the result of `work` for each part of nested tuples of one shape, in tuples of that shape."""
    if isinstance(values[0], tuple):
        return tuple(_mapped(work, *parts) for parts in zip(*values, strict=True))
    return work(*values)


@dataclass(frozen=True)
class LastTokens(ArrayMemory):
    """The last n-2 tokens, which an n-gram feed-forward network reads with the next one; <s> before the first."""

    ids_BS: Array


@dataclass(frozen=True)
class WindowTokens(ArrayMemory):
    """The tokens of each row that a network with a window still sees; NumPy only.

    A full window drops its oldest `slide` tokens when one more comes, as `inference/state.py` says.
    """

    ids_BW: Array
    """The first `lengths_B[b]` ids of row b are in the window; those after them mean nothing."""
    lengths_B: Array

    @property
    def room(self) -> int:
        """The number of tokens that fit into every row."""
        return int(self.ids_BW.shape[1] - self.lengths_B.max(initial=0))

    def slid(self, slide: int) -> Self:
        """Return the window without the `slide` oldest tokens of full rows; other rows stay as they are."""
        ids_BW, size = self.ids_BW.copy(), self.ids_BW.shape[1]
        full_B = self.lengths_B == size
        ids_BW[full_B, : size - slide] = self.ids_BW[full_B, slide:]
        return replace(self, ids_BW=ids_BW, lengths_B=self.lengths_B - slide * full_B)

    def places(self, width: int) -> Array:
        """Return the columns for `width` more tokens of each row, [B, T]."""
        places_BT: Array = self.lengths_B[:, None] + np.arange(width)
        return places_BT

    def append(self, ids_BT: Array, counts_B: Array | int) -> Self:
        """Return the window with more tokens, which must fit; row b takes the first `counts_B[b]` of its ids."""
        ids_BW = self.ids_BW.copy()
        # padding is written too, after the row's last token, where the next token overwrites it
        np.put_along_axis(ids_BW, self.places(ids_BT.shape[1]), ids_BT, axis=1)
        return replace(self, ids_BW=ids_BW, lengths_B=self.lengths_B + counts_B)


@dataclass(frozen=True)
class Sums(ArrayMemory):
    """The sum of the embeddings that each row of a bag of words has read, and their number: together, the mean."""

    sum_BD: Array
    count_B: Array


@dataclass(frozen=True)
class RecurrentMemory(ArrayMemory):
    """The hidden state of each layer of a recurrent network: (h,), for an LSTM (h, c), each [B, H].

    For a QRNN it is (c, x): its memory [B, H], and the last inputs that its next gates see too, [B, kernel - 1, D].
    """

    states: tuple[tuple[Array, ...], ...]
