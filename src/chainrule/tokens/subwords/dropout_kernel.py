"""A Numba kernel that splits the words of a text by BPE with dropout, as dropout.py describes it.

It releases the GIL. A pair is looked up when it comes about; before each merge only the random numbers are new.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_STEP, _APART = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


@njit(cache=True, nogil=True)
def _mixed(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _place(left: int, right: int, keys: Any, ranks: Any) -> Any:
    """Return the slot of a pair in the hash table of merges, or the empty one (rank -1) where it would go."""
    key, mask = np.uint64(left << 32 | right), len(keys) - 1
    slot = np.int64(_mixed(key) & np.uint64(mask))
    while ranks[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def _slot(left: int, right: int, keys: Any, ranks: Any) -> Any:
    """Return the slot of a pair in the hash table of merges; -1 if it is not merged."""
    slot = _place(left, right, keys, ranks)
    return slot if ranks[slot] >= 0 else -1


@njit(cache=True, nogil=True)
def hashed(merges: Any) -> Any:
    """Return merges (left, right, new), the first learned first, as a hash table: keys, ranks and new ids."""
    size = 4
    while size < 4 * len(merges) + 1:
        size *= 2
    keys, ranks, made = np.zeros(size, np.uint64), np.full(size, -1, np.int64), np.zeros(size, np.int64)
    for rank in range(len(merges)):
        left, right, new = merges[rank]
        slot = _place(left, right, keys, ranks)
        keys[slot], ranks[slot], made[slot] = np.uint64(left << 32 | right), rank, new
    return keys, ranks, made


@njit(cache=True, nogil=True)
def _split(ids: Any, slots: Any, size: int, table: Any, share: float, state: Any) -> Any:
    """Split one word, whose first `size` ids are its bytes, in place; return the number of its tokens.

    `slots` is where the merge of each id with the next one is found.
    """
    keys, ranks, made = table
    for i in range(size - 1):
        slots[i] = _slot(ids[i], ids[i + 1], keys, ranks)
    while True:
        best, lowest = -1, np.int64(1) << 62
        for i in range(size - 1):
            if slots[i] < 0:
                continue
            if share > 0:
                state += _STEP
                if np.float64(_mixed(state) >> np.uint64(11)) * _UNIT < share:
                    continue
            if ranks[slots[i]] < lowest:
                best, lowest = i, ranks[slots[i]]
        if best < 0:
            return size
        ids[best] = made[slots[best]]
        size -= 1
        for i in range(best + 1, size):
            ids[i], slots[i - 1] = ids[i + 1], slots[i]
        if best > 0:
            slots[best - 1] = _slot(ids[best - 1], ids[best], keys, ranks)
        if best < size - 1:
            slots[best] = _slot(ids[best], ids[best + 1], keys, ranks)


@njit(cache=True, nogil=True)
def split_lines(
    words: Any, line_ends: Any, starts: Any, symbols: Any, table: Any,
    share: float, seed: Any, eos: int, most: int, first: int, last: int,
) -> Any:  # fmt: skip
    """Return the ids of the lines first .. last, each ended by `eos`.

    A line of more than `most` ids, the last one included, is split once more without dropout.
    """
    begin, end = (line_ends[first - 1] if first > 0 else 0), line_ends[last - 1]
    room, longest = last - first, 0
    for place in range(begin, end):
        size = starts[words[place] + 1] - starts[words[place]]
        room, longest = room + size, max(longest, size)
    found, slots = np.empty(room + longest, np.int64), np.empty(longest + 1, np.int64)
    count, place = 0, begin
    for line in range(first, last):
        at, word = count, place
        for again in range(2):
            count, place = at, word
            while place < line_ends[line]:
                start, size = starts[words[place]], starts[words[place] + 1] - starts[words[place]]
                ids = found[count : count + size]
                ids[:] = symbols[start : start + size]
                state = _mixed(seed + np.uint64(place + 1) * _APART)
                count += _split(ids, slots, size, table, 0.0 if again else share, state)
                place += 1
            found[count] = eos
            count += 1
            if count - at <= most:
                break
    return found[:count].copy()
