"""A pool of arrays that a tape uses again."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from numpy.typing import DTypeLike

from chainrule.autodiff.tape.nodes import Array

_BIG = 1 << 16  # bytes; the allocator is fast for smaller arrays


class Pool:
    """Lends arrays, and takes all of them back at once.

    Sizes are rounded up to powers of two, so that batches of many lengths share arrays and memory stops growing.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = defaultdict(list)
        self._lent: list[Array] = []

    @property
    def bytes_held(self) -> int:
        return sum(room.nbytes for rooms in [*self._free.values(), self._lent] for room in rooms)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an uninitialised array, as from np.empty; if large, lent until `take_back`."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < _BIG:
            return np.empty(shape, dtype)
        rounded = 1 << (size - 1).bit_length()
        free = self._free[rounded]
        room = free.pop() if free else np.empty(rounded, np.uint8)
        self._lent.append(room)
        return room[:size].view(dtype).reshape(shape)

    def take_back(self) -> None:
        """Take back all arrays that were lent; the next calls of `empty` overwrite them."""
        for room in self._lent:
            self._free[room.nbytes].append(room)
        self._lent.clear()
