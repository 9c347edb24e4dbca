"""The key-value cache, a Transformer's memory: the keys and values of the tokens it has read.

A cache is a value, yet its arrays are written in place. They only ever grow: reading on from the newest cache
appends to its arrays, and reading on from an older one, a branch, copies its part of them first.

Axes: L layers, B batch, G heads of keys and values, S positions, K head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule.networks.memory import Memory

_ROOM = 8
"""Space for new tokens in the copy of a cache."""


class Buffer:
    """Arrays of keys and values with spare capacity, shared by a cache and those made by reading on from it."""

    def __init__(self, keys_LBGSK: Tensor, values_LBGSK: Tensor) -> None:
        self.keys_LBGSK, self.values_LBGSK = keys_LBGSK, values_LBGSK
        self.version = 0
        """The number of times that the buffer was written to."""

    @property
    def capacity(self) -> int:
        return self.keys_LBGSK.shape[3]

    def copied(self, used: int, capacity: int, rows_B: Tensor | None = None) -> Buffer:
        """Return a buffer of this capacity with a copy of the first `used` positions, of all rows or `rows_B`."""

        def copy(source_LBGSK: Tensor) -> Tensor:
            if rows_B is not None and capacity <= self.capacity:
                # one copy: that of the known positions alone, into a larger array, would be a second one
                target_LBGSK = source_LBGSK[:, :, :, :capacity].index_select(1, rows_B)
            else:
                known_LBGSK = source_LBGSK[:, :, :, :used]
                if rows_B is not None:
                    known_LBGSK = known_LBGSK.index_select(1, rows_B)
                L, B, G, _, K = known_LBGSK.shape
                target_LBGSK = source_LBGSK.new_empty(L, B, G, capacity, K)
                target_LBGSK[:, :, :, :used] = known_LBGSK
            # zeros, as a masked position has weight 0, and 0 times NaN would be NaN
            target_LBGSK[:, :, :, used:] = 0
            return target_LBGSK

        return Buffer(copy(self.keys_LBGSK), copy(self.values_LBGSK))


@dataclass(frozen=True, eq=False)
class Cache(Memory):
    """The keys and values of the tokens that each row has read. No gradient flows through them."""

    buffer: Buffer
    version: int
    """The buffer's version when this cache was the newest one."""
    lengths_B: Tensor
    """The number of tokens that each row has read, on the device: the host would have to wait to see it."""
    longest: int
    """An upper bound on `lengths_B` that the host knows without waiting."""
    is_uniform: bool
    """True if all rows are known to have read `longest` tokens."""
    window: int

    def select(self, rows_B: Tensor) -> Cache:
        rows_B = rows_B.to(self.lengths_B.device)
        # a search selects rows at every step: a little space for new tokens is enough at first
        capacity = min(self.longest + _ROOM, self.buffer.capacity)
        buffer = self.buffer.copied(self.longest, capacity, rows_B)
        return Cache(buffer, 0, self.lengths_B[rows_B], self.longest, self.is_uniform, self.window)

    def join(self, other: Cache) -> Cache:
        longest = max(self.longest, other.longest)
        capacity = max(self.buffer.capacity, other.buffer.capacity)
        # both of one capacity: positions beyond a row's length are never attended to
        buffers = [cache.buffer.copied(cache.longest, capacity) for cache in (self, other)]
        buffer = Buffer(
            torch.cat([one.keys_LBGSK for one in buffers], dim=1),
            torch.cat([one.values_LBGSK for one in buffers], dim=1),
        )
        is_uniform = self.is_uniform and other.is_uniform and self.longest == other.longest
        return Cache(buffer, 0, torch.cat([self.lengths_B, other.lengths_B]), longest, is_uniform, self.window)

    def detach(self) -> Cache:
        return self

    def shortened(self, by: int) -> Cache:
        """Return this cache without the last `by` tokens of each row; do not use this cache itself any more.

        The next tokens are written over those.
        """
        self.buffer.version += 1
        longest = self.longest - by
        return Cache(self.buffer, self.buffer.version, self.lengths_B - by, longest, self.is_uniform, self.window)

    def append(self, T: int, is_token_BT: Tensor | None = None) -> Appending:
        """Reserve positions for T more tokens a row; `is_token_BT` is False where there is padding."""
        added_B = T if is_token_BT is None else is_token_BT.sum(dim=1)
        lengths_B = self.lengths_B + added_B
        longest, is_uniform = self.longest + T, self.is_uniform and is_token_BT is None
        # reading the lengths waits for the device, so a single step does it only if the window may be full
        if len(lengths_B) and (longest > self.window or (T > 1 and is_token_BT is not None)):
            shortest, longest = (int(length) for length in lengths_B.aminmax())
            is_uniform = shortest == longest
        if max(longest, T) > self.window:
            raise ValueError(
                f"a window of {self.window} tokens was given {max(longest, T)}: begin again with the last of them"
            )
        # if all rows are equally long and there is space, padding may be written too: it is never seen
        in_step = self.is_uniform and self.longest + T <= self.window
        buffer = self._with_room(max(longest, T, self.longest + T if in_step else 0))
        buffer.version += 1
        after = Cache(buffer, buffer.version, lengths_B, longest, is_uniform, self.window)
        if in_step:
            return Appending(after, slice(self.longest, self.longest + T))
        steps_T = torch.arange(T, device=lengths_B.device)
        # modulo the capacity, so that the positions of padding stay in range and distinct
        return Appending(after, (self.lengths_B[:, None] + steps_T) % buffer.capacity, is_token_BT)

    def _with_room(self, needed: int) -> Buffer:
        """Return the buffer, or a copy of it if it is too small or a newer cache has written to it."""
        capacity = self.buffer.capacity
        if needed > capacity:
            capacity = min(max(needed, 2 * capacity), self.window)
        elif self.version == self.buffer.version:
            return self.buffer
        return self.buffer.copied(self.longest, capacity)


@dataclass(frozen=True)
class Appending:
    """The positions reserved for new tokens, to which each layer writes its keys and values."""

    after: Cache
    """The cache once all layers have written."""
    places: slice | Tensor
    """The positions of the tokens: the same in every row, or [B, T]."""
    is_token_BT: Tensor | None = None

    @property
    def span(self) -> int:
        """The number of positions that attention looks at, from the first on."""
        return self.places.stop if isinstance(self.places, slice) else self.after.longest

    def write(self, layer: int, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return all keys and all values it has, [B, G, S, K]."""
        buffer = self.after.buffer
        keys_BGSK, values_BGSK = buffer.keys_LBGSK[layer], buffer.values_LBGSK[layer]
        if isinstance(self.places, slice):
            keys_BGSK[:, :, self.places] = k_BGTK
            values_BGSK[:, :, self.places] = v_BGTK
        else:
            write_at(self.places, keys_BGSK, k_BGTK, self.is_token_BT)
            write_at(self.places, values_BGSK, v_BGTK, self.is_token_BT)
        return keys_BGSK[:, :, : self.span], values_BGSK[:, :, : self.span]


def write_at(places_BT: Tensor, store_BGSK: Tensor, new_BGTK: Tensor, is_token_BT: Tensor | None = None) -> None:
    """store[b, :, places[b, t]] = new[b, :, t], where there is a token; the positions of a row are distinct."""
    index_BGTK = places_BT[:, None, :, None].expand_as(new_BGTK)
    new_BGTK = new_BGTK.to(store_BGSK.dtype)
    if is_token_BT is not None:
        new_BGTK = torch.where(is_token_BT[:, None, :, None], new_BGTK, store_BGSK.gather(2, index_BGTK))
    store_BGSK.scatter_(2, index_BGTK, new_BGTK)


def empty_cache(shape_LBGK: tuple[int, int, int, int], window: int, capacity: int, like: Tensor) -> Cache:
    """Return a cache of nothing read yet, with space for `capacity` tokens; it grows when more is needed."""
    L, B, G, K = shape_LBGK
    buffer = Buffer(*(like.new_zeros(L, B, G, capacity, K) for _ in range(2)))
    return Cache(buffer, 0, torch.zeros(B, dtype=torch.int64, device=like.device), 0, True, window)
