"""Numba kernels that find the words of a text, number and count them, and look them up in bulk.

Words are found chunk by chunk without a branch per byte. A chunk is gone through three times: once for the class of
each byte, once for flags where a token begins and where one ends (both become vector instructions), and once to
gather the flagged offsets. One loop with branches takes twice as long: the lengths of words cannot be predicted.

Words are kept in a hash table with open addressing. A slot is two cells of eight bytes: the word's key, and the
upper half of its hash as a tag, with the word's number in the lower half. The key of a word of up to seven bytes is
the word itself, with its length in the last byte (as 0xF8 + length, a byte that UTF-8 never has), so that one
comparison is enough. The key of a longer word is its first eight bytes; the rest is compared with `pool`, where
every word takes up whole cells. Two words are never confused.

The kernels release the GIL. All are in this file because Numba's cache does not notice changes in another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.tokens.words.splitting import LINE_END, SINGLE, SPACE, WORD

CHUNK = 4096  # bytes; the classes and flags of a chunk stay in the L1 cache
_INSIDE = 4  # the class of the second and later bytes of a character that is a word by itself

_TAG = np.uint64(0xFFFFFFFF00000000)
_NUMBER = np.uint64(0x00000000FFFFFFFF)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
"""Masks that keep the first n bytes of a cell."""
_LENGTH = np.array([0xF8 + n << 56 for n in range(8)], dtype=np.uint64)
"""The last byte of the key of a word of n bytes."""
_BATCH = CHUNK + 1
_ROW = _BATCH + 251  # of scratch arrays; rows a power of two apart would evict each other from the cache


# -- finding words ----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _class_and_width(block: Any, i: int, classes: Any) -> Any:
    """Return the class of the character at byte i, and its width in bytes; the block is valid UTF-8."""
    lead = np.int64(block[i])
    if lead < 0x80:
        return classes[lead], 1
    if lead < 0xE0:
        return classes[(lead & 0x1F) << 6 | (np.int64(block[i + 1]) & 0x3F)], 2
    if lead < 0xF0:
        code = (lead & 0x0F) << 12 | (np.int64(block[i + 1]) & 0x3F) << 6 | (np.int64(block[i + 2]) & 0x3F)
        return classes[code], 3
    code = (lead & 0x07) << 18 | (np.int64(block[i + 1]) & 0x3F) << 12
    return classes[code | (np.int64(block[i + 2]) & 0x3F) << 6 | (np.int64(block[i + 3]) & 0x3F)], 4


@njit(cache=True, nogil=True)
def _classify(chunk: Any, classes: Any, found: Any) -> None:
    """Write the class of each byte of a chunk to `found`.

    Where only ASCII matters, comparisons take the place of the lookup, since they become vector instructions.
    """
    if len(classes) == 256:
        for i in range(len(chunk)):
            byte = chunk[i]
            space = np.uint8(byte == 0x20) | np.uint8((byte >= 0x09) & (byte <= 0x0D))
            found[i] = (np.uint8(WORD) - space) + np.uint8(byte == 0x0A) * np.uint8(LINE_END)
        return
    i = 0
    while i < len(chunk):
        kind, width = _class_and_width(chunk, i, classes)
        found[i] = kind
        for k in range(i + 1, i + width):
            found[k] = _INSIDE if kind == SINGLE else kind
        i += width


@njit(cache=True, nogil=True)
def _flag(found: Any, size: int, begins: Any, ends: Any) -> None:
    """Flag the bytes where a token begins, and those right after one; found[0] is the class of the byte before."""
    for i in range(size):
        before, here = found[i], found[i + 1]
        goes_on = np.uint8(here == WORD) & np.uint8(before == WORD)
        alone = np.uint8(here == SINGLE) | np.uint8(here == LINE_END)
        begins[i] = alone | (np.uint8(here == WORD) & (goes_on ^ np.uint8(1)))
        ends[i] = np.uint8(before != SPACE) & np.uint8(here != _INSIDE) & (goes_on ^ np.uint8(1))


@njit(cache=True, nogil=True)
def scan_chunk(block: Any, first: int, size: int, open_words: int, classes: Any, work: Any, places: Any) -> Any:
    """Write the offsets at which the tokens of one chunk begin and end to `places`; a line end is a token too.

    `open_words` is 1 if a token goes on from the chunk before, else 0; that token begins at places[0, 0]. `work` is
    three scratch rows of bytes; `places` has two rows, begins and ends. Returns (number of begins, number of ends,
    offset of the next chunk).
    """
    last = min(first + CHUNK, size)
    while last < size and block[last] & 0xC0 == 0x80:  # do not cut a character
        last -= 1
    kinds, begin_flags, end_flags = work[0], work[1], work[2]
    _classify(block[first:last], classes, kinds[1:])  # kinds[0] is the class of the byte before
    _flag(kinds, last - first, begin_flags, end_flags)
    kinds[0] = kinds[last - first]
    begins: Any = open_words
    ends: Any = 0
    for i in range(last - first):
        places[0, begins] = first + i
        places[1, ends] = first + i
        begins += np.int64(begin_flags[i])
        ends += np.int64(end_flags[i])
    if last == size and ends < begins:
        places[1, ends] = size
        ends += 1
    return begins, ends, last


# -- numbering words --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _key_and_hash(cells: Any, begin: int, length: int) -> Any:
    """Return the key of a word, kept in its slot, and its hash; `cells[i]` is the eight bytes from i on."""
    if length < 8:
        key = (cells[begin] & _FIRST[length]) | _LENGTH[length]
        value = key * _FACTOR
        return key, value ^ (value >> _HALF)
    key = cells[begin]
    value = (key ^ np.uint64(length)) * _FACTOR
    end = begin + length - 8
    while begin < end:  # the last eight bytes may overlap those before
        begin = min(begin + 8, end)
        value = ((value ^ (value >> _HALF)) ^ cells[begin]) * _FACTOR
    return key, value ^ (value >> _HALF)


@njit(cache=True, nogil=True)
def _is(cells: Any, begin: int, length: int, pool: Any, first: int, pool_length: int) -> bool:
    """Return True if a word of eight bytes or more equals a word of the pool that begins with the same eight."""
    if length != pool_length:
        return False
    while length > 16:
        begin, length, first = begin + 8, length - 8, first + 1
        if cells[begin] != pool[first]:
            return False
    return length == 8 or (cells[begin + 8] & _FIRST[length - 8]) == pool[first + 1]


@njit(cache=True, nogil=True)
def _find(cells: Any, begin: int, length: int, key: Any, value: Any, slots: Any, words: Any, pool: Any) -> Any:
    """Return the slot that holds the word, or the empty one where it would go."""
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot, 1] != 0:
        if slots[slot, 0] == key and (slots[slot, 1] ^ value) & _TAG == 0:
            number = np.int64(slots[slot, 1] & _NUMBER)
            if length < 8 or _is(cells, begin, length, pool, words[number, 0], words[number, 1]):
                break
        slot = (slot + _ONE) & mask
    return slot


@njit(cache=True, nogil=True)
def _number_batch(
    cells: Any, places: Any, m: int, slots: Any, words: Any, pool: Any, used: Any, learn: bool, work: Any, out: Any
) -> None:
    """Write the numbers of m words to `out`; a word that the table lacks is added to it if `learn`, else gets 0.

    Each step is a loop over all words: the loads of one loop do not wait for each other, so their cache misses
    overlap. The rare cases, long words and collisions, are gathered without a branch and handled afterwards.
    """
    keys, hashes, held_keys, held, rare = work[0], work[1], work[2], work[3], work[4]
    mask = np.uint64(len(slots) - 1)
    for j in range(m):
        keys[j], hashes[j] = _key_and_hash(cells, places[0, j], places[1, j] - places[0, j])
    for j in range(m):
        held_keys[j], held[j] = slots[hashes[j] & mask, 0], slots[hashes[j] & mask, 1]
    longer: Any = 0
    for j in range(m):
        same = (held_keys[j] == keys[j]) & ((held[j] ^ hashes[j]) & _TAG == 0)
        out[j] = np.uint32(held[j] & _NUMBER) * np.uint32(same)
        rare[longer] = j
        longer += np.int64(same) & np.int64(places[1, j] - places[0, j] >= 8)
    for k in range(longer):
        number = out[rare[k]]
        held_keys[k], held[k] = words[number, 0], words[number, 1]
    for k in range(longer):
        begin, length = places[0, rare[k]], places[1, rare[k]] - places[0, rare[k]]
        if not _is(cells, begin, length, pool, np.int64(held_keys[k]), np.int64(held[k])):
            out[rare[k]] = 0
    missing: Any = 0
    for j in range(m):
        rare[missing] = j
        missing += np.int64(out[j] == 0)
    for k in range(missing):
        begin, length = places[0, rare[k]], places[1, rare[k]] - places[0, rare[k]]
        key, value = keys[rare[k]], hashes[rare[k]]
        slot = _find(cells, begin, length, key, value, slots, words, pool)
        if slots[slot, 1] == 0 and learn:
            slots[slot, 0] = key
            slots[slot, 1] = (value & _TAG) | np.uint64(_put(cells, begin, length, words, pool, used))
        out[rare[k]] = slots[slot, 1] & _NUMBER


@njit(cache=True, nogil=True)
def _put(cells: Any, begin: int, length: int, words: Any, pool: Any, used: Any) -> Any:
    """Copy a new word to the end of the pool, and return its number."""
    number, first = used[0], used[1]
    words[number, 0], words[number, 1] = first, length
    while length > 8:
        pool[first] = cells[begin]
        begin, length, first = begin + 8, length - 8, first + 1
    pool[first] = cells[begin] & _FIRST[length]
    used[0], used[1] = number + 1, first + 1
    return number


@njit(cache=True, nogil=True)
def number_text(
    block: Any, cells: Any, size: int, position: int, classes: Any,
    slots: Any, words: Any, counts: Any, pool: Any, used: Any, learn: bool, out: Any, done: int,
) -> Any:  # fmt: skip
    """Number the words from byte `position` on; to learn them, count them too, and stop when the slots must grow.

    The numbers go to `out`, which holds `done` of them already. Returns (position, done) as they are afterwards.
    """
    work, places = np.zeros((3, CHUNK + 1), np.uint8), np.empty((2, _ROW), np.int64)
    scratch = np.empty((5, _ROW), np.uint64)
    begins = 0  # how many words begin up to here that have not been numbered
    while position < size:
        begins, m, position = scan_chunk(block, position, size, begins, classes, work, places)
        if learn and 2 * (used[0] + m) > len(slots):
            return places[0, 0], done
        part = out[done : done + m]
        _number_batch(cells, places, m, slots, words, pool, used, learn, scratch, part)
        if learn:
            for j in range(m):
                counts[part[j]] += 1
        done += m
        places[0, 0] = places[0, m]
        begins -= m
    return position, done


@njit(cache=True, nogil=True)
def number_given(
    cells: Any, begins: Any, ends: Any, position: int,
    slots: Any, words: Any, pool: Any, used: Any, learn: bool, out: Any,
) -> Any:  # fmt: skip
    """Number the given words from index `position` on; to learn them, stop when the slots must grow.

    Returns the index of the next word to number.
    """
    places, scratch = np.empty((2, _ROW), np.int64), np.empty((5, _ROW), np.uint64)
    while position < len(begins):
        m = min(_BATCH, len(begins) - position)
        if learn and 2 * (used[0] + m) > len(slots):
            break
        for j in range(m):
            places[0, j], places[1, j] = begins[position + j], ends[position + j]
        part = out[position : position + m]
        _number_batch(cells, places, m, slots, words, pool, used, learn, scratch, part)
        position += m
    return position


@njit(cache=True, nogil=True)
def fill(slots: Any, cells: Any, words: Any, size: int) -> None:
    """Put every word of the pool into the empty `slots`."""
    mask = np.uint64(len(slots) - 1)
    for number in range(1, size):
        key, value = _key_and_hash(cells, 8 * words[number, 0], words[number, 1])
        slot = value & mask
        while slots[slot, 1] != 0:
            slot = (slot + _ONE) & mask
        slots[slot, 0] = key
        slots[slot, 1] = (value & _TAG) | np.uint64(number)


@njit(cache=True, nogil=True)
def spell(pool: Any, words: Any, order: Any, out: Any) -> int:
    """Write the words with the numbers in `order` to `out`, a line end after each, and return how many bytes."""
    n = 0
    for number in order:
        first, length = 8 * words[number, 0], words[number, 1]
        for k in range(length):
            out[n + k] = pool[first + k]
        n += length + 1
        out[n - 1] = ord("\n")
    return n
