"""The memory that a network keeps of the rows it has read, defined once for torch and the tape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

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
