"""Big arrays that are used again, so that none is taken from the system at each step."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from numpy.typing import DTypeLike

from chainrule.autodiff.gradients import Array

_BIG = 1 << 16  # bytes; smaller ones come fast from the allocator


class Pool:
    """Lends arrays, and takes all of them back at once.

    Room is kept by powers of two, so that batches of many lengths share it and memory stops growing.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = defaultdict(list)
        self._lent: list[Array] = []

    @property
    def bytes_held(self) -> int:
        return sum(room.nbytes for rooms in [*self._free.values(), self._lent] for room in rooms)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array like that of np.empty."""
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
        """From now on, what was lent may be lent again."""
        for room in self._lent:
            self._free[room.nbytes].append(room)
        self._lent.clear()
