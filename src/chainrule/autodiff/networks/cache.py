"""The memories of networks on the tape: keys and values, and the tokens of a window.

A Transformer keeps the keys and values that it has computed, so that a new token does not compute them again.

A cache is a value, yet its arrays are written in place: reading on from the newest cache appends to them, and
reading on from an older one, a branch, copies its part of them first. `networks/transformer/cache.py` is the same
in torch.

Axes: L layers, B batch, G heads of keys and values, S positions, K features of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from chainrule.autodiff.tape.nodes import Array
from chainrule.networks.memory import ArrayMemory, Memory

_ROOM = 16
"""Positions that a cache has room for at first."""


class Buffer:
    """Arrays of keys and values with spare positions, shared by a cache and those made by reading on from it."""

    def __init__(self, arrays_2LBGSK: Array) -> None:
        self.arrays_2LBGSK = arrays_2LBGSK
        """Keys, then values; 0 where nothing was written, as a weight of 0 times NaN is NaN."""
        self.version = 0
        """How many times the buffer was written to."""

    def copied(self, used: int, capacity: int) -> Buffer:
        """Return a buffer of this capacity that has the first `used` positions of this one."""
        pair, L, B, G, _, K = self.arrays_2LBGSK.shape
        arrays_2LBGSK = np.zeros((pair, L, B, G, capacity, K), self.arrays_2LBGSK.dtype)
        arrays_2LBGSK[..., :used, :] = self.arrays_2LBGSK[..., :used, :]
        return Buffer(arrays_2LBGSK)


@dataclass(frozen=True, eq=False)
class Cache(Memory):
    """The keys and values of the tokens that each row has read. No gradient flows through them."""

    buffer: Buffer
    version: int
    """The buffer's version when this cache was the newest one."""
    lengths_B: Array
    """How many tokens each row has read."""

    @classmethod
    def empty(cls, shape_LBGK: tuple[int, int, int, int], dtype: DTypeLike) -> Cache:
        """Return the cache of nothing read yet."""
        L, B, G, K = shape_LBGK
        return cls(Buffer(np.zeros((2, L, B, G, _ROOM, K), dtype)), 0, np.zeros(B, np.int64))

    @property
    def longest(self) -> int:
        """The most tokens that a row has read."""
        return int(self.lengths_B.max(initial=0))

    def select(self, rows_B: Array) -> Cache:
        return Cache(Buffer(self.buffer.arrays_2LBGSK[:, :, rows_B]), 0, self.lengths_B[rows_B])

    def join(self, other: Cache) -> Cache:
        used = max(self.longest, other.longest)
        parts = [one.buffer.copied(one.longest, used + _ROOM).arrays_2LBGSK for one in (self, other)]
        return Cache(Buffer(np.concatenate(parts, axis=2)), 0, np.concatenate([self.lengths_B, other.lengths_B]))

    def detach(self) -> Cache:
        return self

    def append(self, T: int, counts_B: Array | int) -> Appending:
        """Reserve positions for T more tokens of each row, of which row b keeps the first counts_B[b]."""
        places_BT = self.lengths_B[:, None] + np.arange(T)
        buffer, span = self.buffer, int(places_BT.max(initial=-1)) + 1
        capacity = buffer.arrays_2LBGSK.shape[-2]
        if span > capacity or self.version != buffer.version:
            buffer = buffer.copied(self.longest, capacity if span <= capacity else max(span, 2 * capacity))
        buffer.version += 1
        sees_all = T == 1 and bool((places_BT == span - 1).all())
        return Appending(Cache(buffer, buffer.version, self.lengths_B + counts_B), places_BT, span, sees_all)


@dataclass(frozen=True)
class Appending:
    """The positions reserved for new tokens, to which each layer writes its keys and values."""

    after: Cache
    """The cache once all layers have written."""
    places_BT: Array
    """The positions of the new tokens; padding has positions too, which the next tokens overwrite."""
    span: int
    """How many positions attention looks at, from the first on."""
    sees_all: bool
    """True if the new token of each row, a single one, sees every position within the span."""

    def write(self, layer: int, k_BGTK: Array, v_BGTK: Array) -> tuple[Array, Array]:
        """Write a layer's new keys and values; return all that it has, [B, G, S, K] each."""
        arrays_2BGSK = self.after.buffer.arrays_2LBGSK[:, layer]
        rows_B1 = np.arange(len(self.places_BT))[:, None]
        for array_BGSK, new_BGTK in zip(arrays_2BGSK, (k_BGTK, v_BGTK), strict=True):
            if self.sees_all:
                array_BGSK[:, :, self.span - 1] = new_BGTK[:, :, 0]
            else:
                array_BGSK[rows_B1, :, self.places_BT] = new_BGTK.swapaxes(1, 2)
        return arrays_2BGSK[0, :, :, : self.span], arrays_2BGSK[1, :, :, : self.span]


@dataclass(frozen=True)
class WindowTokens(ArrayMemory):
    """The tokens of each row that a network with a window still sees, and its memory of them.

    A full window drops its oldest `slide` tokens when one more comes, as `inference/state.py` says. Positions count
    from the beginning of a window, so that the tokens that stay are then read again.
    """

    ids_BW: Array
    """The first `lengths_B[b]` ids of row b are in the window; those after them mean nothing."""
    lengths_B: Array
    memory: Any
    """None: the tokens are to be read again."""

    @property
    def room(self) -> int:
        """The number of tokens that fit into every row."""
        return int(self.ids_BW.shape[1] - self.lengths_B.max(initial=0))

    def slid(self, slide: int) -> WindowTokens:
        """Return the window without the `slide` oldest tokens of full rows; other rows stay as they are."""
        size, full_B = self.ids_BW.shape[1], self.lengths_B == self.ids_BW.shape[1]
        if not full_B.any():
            return self
        ids_BW = self.ids_BW.copy()
        ids_BW[full_B, : size - slide] = self.ids_BW[full_B, slide:]
        return WindowTokens(ids_BW, self.lengths_B - slide * full_B, None)

    def places(self, width: int) -> Array:
        """Return the columns for `width` more tokens of each row, [B, T]."""
        places_BT: Array = self.lengths_B[:, None] + np.arange(width)
        return places_BT

    def append(self, ids_BT: Array, counts_B: Array | int) -> WindowTokens:
        """Return the window with more tokens, which must fit; row b takes the first `counts_B[b]` of its ids."""
        ids_BW = self.ids_BW.copy()
        # padding is written too, after the row's last token, where the next token overwrites it
        np.put_along_axis(ids_BW, self.places(ids_BT.shape[1]), ids_BT, axis=1)
        return replace(self, ids_BW=ids_BW, lengths_B=self.lengths_B + counts_B)
