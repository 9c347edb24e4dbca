"""Words found, counted and looked up in bulk: the loops over bytes, compiled by Numba.

The words live in one open-addressing hash table: `slots` hold a 32-bit tag of the hash and the word's number,
`pool` the words' bytes one after the other. A tag that matches is always verified byte by byte, so two words are
never confused. The kernels release the GIL; threads run them side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from chainrule.tokens.splitting import LINE_END, SINGLE, SPACE, WORD

Bytes = NDArray[np.uint8]

_TAG = np.uint64(0xFFFFFFFF00000000)
_NUMBER = np.uint64(0x00000000FFFFFFFF)
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_BATCH = 512


@njit(cache=True, nogil=True, inline="always")
def _class_and_width(block: Any, i: int, classes: Any) -> Any:
    """The class of the character at byte i, and its width in bytes; the block is valid UTF-8."""
    lead = np.int64(block[i])
    if lead < 0x80 or len(classes) == 256:
        return classes[lead], 1
    if lead < 0xE0:
        return classes[(lead & 0x1F) << 6 | (np.int64(block[i + 1]) & 0x3F)], 2
    if lead < 0xF0:
        code = (lead & 0x0F) << 12 | (np.int64(block[i + 1]) & 0x3F) << 6 | (np.int64(block[i + 2]) & 0x3F)
        return classes[code], 3
    code = (lead & 0x07) << 18 | (np.int64(block[i + 1]) & 0x3F) << 12
    return classes[code | (np.int64(block[i + 2]) & 0x3F) << 6 | (np.int64(block[i + 3]) & 0x3F)], 4


@njit(cache=True, nogil=True)
def _scan(block: Any, i: int, classes: Any, begins: Any, ends: Any, hashes: Any) -> Any:
    """The next words, as many as the arrays hold; a line end is an empty one. Returns (how many, position)."""
    m = 0
    while i < len(block) and m < len(begins):
        kind, width = _class_and_width(block, i, classes)
        if kind == SPACE:
            i += width
            continue
        begins[m] = i
        value = _FNV_OFFSET
        if kind == LINE_END:
            ends[m] = i
            i += 1
        else:
            while True:
                for k in range(i, i + width):
                    value = (value ^ np.uint64(block[k])) * _FNV_PRIME
                i += width
                if kind == SINGLE or i == len(block):
                    break
                kind, width = _class_and_width(block, i, classes)
                if kind != WORD:
                    break
            ends[m] = i
        hashes[m] = value ^ (value >> np.uint64(29))
        m += 1
    return m, i


@njit(cache=True, nogil=True)
def _find(block: Any, begin: int, end: int, value: Any, slots: Any, starts: Any, pool: Any) -> Any:
    """The slot that holds the word, or the empty one where it would go."""
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot] != 0:
        if (slots[slot] & _TAG) == (value & _TAG):
            number = np.int64(slots[slot] & _NUMBER) - 1
            if _same(pool, starts[number], starts[number + 1], block, begin, end):
                break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True, inline="always")
def _same(pool: Any, first: int, last: int, block: Any, begin: int, end: int) -> bool:
    if last - first != end - begin:
        return False
    for k in range(end - begin):  # noqa: SIM110 (a loop that Numba compiles)
        if pool[first + k] != block[begin + k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _look_up(
    block: Any, m: int, begins: Any, ends: Any, hashes: Any, slots: Any, starts: Any, pool: Any, found: Any
) -> None:
    """What the table holds for each of m words: 0, or its number + 1.

    Loop by loop, not word by word: the loads of one loop do not wait for each other, so their cache misses
    overlap. That halves the time.
    """
    mask = np.uint64(len(slots) - 1)
    held = np.empty(m, np.uint64)
    firsts = np.empty(m, np.int64)
    for j in range(m):
        held[j] = slots[hashes[j] & mask]
    for j in range(m):
        firsts[j] = starts[max(np.int64(held[j] & _NUMBER) - 1, 0)]
    for j in range(m):
        number = np.int64(held[j] & _NUMBER)
        if number == 0 or begins[j] == ends[j]:
            found[j] = 0
        elif (held[j] & _TAG) == (hashes[j] & _TAG) and _same(
            pool, firsts[j], starts[number], block, begins[j], ends[j]
        ):
            found[j] = number
        else:
            slot = _find(block, begins[j], ends[j], hashes[j], slots, starts, pool)
            found[j] = np.int64(slots[slot] & _NUMBER)


@njit(cache=True, nogil=True)
def count_words(
    block: Any, position: int, classes: Any, slots: Any, starts: Any, counts: Any, pool: Any, size: int
) -> Any:
    """Count the words from `position` on; stops early where the slots must grow. Returns (position, size)."""
    begins, ends, found = np.empty(_BATCH, np.int64), np.empty(_BATCH, np.int64), np.empty(_BATCH, np.int64)
    hashes = np.empty(_BATCH, np.uint64)
    while position < len(block):
        m, after = _scan(block, position, classes, begins, ends, hashes)
        _look_up(block, m, begins, ends, hashes, slots, starts, pool, found)
        for j in range(m):
            begin, end, number = begins[j], ends[j], found[j]
            if begin == end:
                continue
            if number == 0:  # new to the table, unless this very batch has just put it there
                slot = _find(block, begin, end, hashes[j], slots, starts, pool)
                number = np.int64(slots[slot] & _NUMBER)
                if number == 0:
                    if 2 * (size + 1) > len(slots):
                        return begin, size
                    for k in range(end - begin):
                        pool[starts[size] + k] = block[begin + k]
                    starts[size + 1] = starts[size] + end - begin
                    size += 1
                    number = size
                    slots[slot] = (hashes[j] & _TAG) | np.uint64(number)
            counts[number - 1] += 1
        position = after
    return position, size


@njit(cache=True, nogil=True)
def number_words(
    block: Any, classes: Any, slots: Any, starts: Any, pool: Any, first: int, unk: int, eos: int, out: Any
) -> int:
    """Write `first` + each word's number, `unk` for words not in the table, `eos` at line ends; how many."""
    begins, ends, found = np.empty(_BATCH, np.int64), np.empty(_BATCH, np.int64), np.empty(_BATCH, np.int64)
    hashes = np.empty(_BATCH, np.uint64)
    n, position = 0, 0
    while position < len(block):
        m, position = _scan(block, position, classes, begins, ends, hashes)
        _look_up(block, m, begins, ends, hashes, slots, starts, pool, found)
        for j in range(m):
            if begins[j] == ends[j]:
                out[n + j] = eos
            else:
                out[n + j] = unk if found[j] == 0 else first + found[j] - 1
        n += m
    return n


@njit(cache=True, nogil=True)
def refill(slots: Any, starts: Any, pool: Any, size: int) -> None:
    """Put every word of the pool into the empty `slots`."""
    mask = np.uint64(len(slots) - 1)
    for number in range(size):
        value = _FNV_OFFSET
        for k in range(starts[number], starts[number + 1]):
            value = (value ^ np.uint64(pool[k])) * _FNV_PRIME
        value ^= value >> np.uint64(29)
        slot = value & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = (value & _TAG) | np.uint64(number + 1)


class WordTable:
    """Distinct words, numbered in the order they were first seen, with their counts."""

    def __init__(self, classes: Bytes, words: list[bytes] | None = None) -> None:
        words = words or []
        self.classes = classes
        self.size = len(words)
        self.starts = np.concatenate([[0], np.cumsum([len(word) for word in words], dtype=np.int64)])
        self.counts = np.zeros(len(words), dtype=np.int64)
        self.pool = np.frombuffer(b"".join(words), dtype=np.uint8)
        self._grow_slots(max(1 << 16, 1 << (2 * len(words)).bit_length()))

    def _grow_slots(self, slots: int) -> None:
        """At most every other slot is taken, so `starts` and `counts` need half as many places."""
        self.starts = _longer(self.starts, slots // 2 + 1)
        self.counts = _longer(self.counts, slots // 2)
        self.slots = np.zeros(slots, dtype=np.uint64)
        refill(self.slots, self.starts, self.pool, self.size)

    def count(self, block: bytes) -> None:
        """Count the words of a block."""
        data, position = np.frombuffer(block, dtype=np.uint8), 0
        while position < len(data):
            if 2 * (self.size + 1) > len(self.slots):
                self._grow_slots(2 * len(self.slots))
            room = int(self.starts[self.size]) + len(data) - position  # enough if every word that is left is new
            if room > len(self.pool):
                self.pool = _longer(self.pool, max(room, 2 * len(self.pool)))
            position, self.size = count_words(
                data, position, self.classes, self.slots, self.starts, self.counts, self.pool, self.size
            )

    def number(self, block: bytes, first: int, unk: int, eos: int) -> NDArray[np.uint32]:
        """The ids of a block that ends in a line end: `first` + number, `unk`, `eos`."""
        out = np.empty(len(block), dtype=np.uint32)  # every token takes a byte at least
        data = np.frombuffer(block, dtype=np.uint8)
        size = number_words(data, self.classes, self.slots, self.starts, self.pool, first, unk, eos, out)
        return out[:size].copy()

    def words(self) -> dict[bytes, int]:
        """The words and their counts."""
        pool = self.pool[: self.starts[self.size]].tobytes()
        starts = self.starts[: self.size].tolist()
        ends = self.starts[1 : self.size + 1].tolist()
        counts = self.counts[: self.size].tolist()
        return {pool[s:e]: c for s, e, c in zip(starts, ends, counts, strict=True)}


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros(length - len(array), dtype=array.dtype)])
