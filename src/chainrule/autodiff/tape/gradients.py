"""Sparse gradients, stored without their zeros: rows of a table (SparseRows), or a slice of an array (Part)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import AutodiffError

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The gradient of a table of which only some rows were read: `rows[n]` belongs to row `ids[n]`.

    An id that was read twice is listed twice; the gradient of its row is the sum of both.
    """

    ids: Array  # [N]
    rows: Array  # [N, D]

    def __add__(self, other: SparseRows) -> SparseRows:
        return SparseRows(np.concatenate([self.ids, other.ids]), np.concatenate([self.rows, other.rows]))

    def merged(self) -> SparseRows:
        """This gradient with each id once, in ascending order, and the rows of equal ids summed."""
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
    """The gradient of an array of which only `array[where]` was used: zero everywhere else."""

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
