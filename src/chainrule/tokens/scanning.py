"""Where the words of a block begin and end, found without a branch per byte; compiled by Numba.

A chunk is gone through three times: once for the class of each byte, once for flags where a token begins and
where one ends (which the compiler turns into vector instructions), and once to gather the flagged places. One loop
with branches takes twice as long, because the lengths of words cannot be predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.tokens.splitting import LINE_END, SINGLE, SPACE, WORD

CHUNK = 8192  # bytes; what is known of a chunk stays in the first-level cache
_INSIDE = 4  # the class of the second and later bytes of a character that is a word by itself


@njit(cache=True, nogil=True)
def _class_and_width(block: Any, i: int, classes: Any) -> Any:
    """The class of the character at byte i, and its width in bytes; the block is valid UTF-8."""
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
def _classify(block: Any, first: int, last: int, classes: Any, found: Any) -> None:
    """The class of each byte; found[0] is left alone, it is that of the byte before."""
    if len(classes) == 256:
        for i in range(last - first):
            found[i + 1] = classes[block[first + i]]
        return
    i = first
    while i < last:
        kind, width = _class_and_width(block, i, classes)
        found[i - first + 1] = kind
        for k in range(i + 1, i + width):
            found[k - first + 1] = _INSIDE if kind == SINGLE else kind
        i += width


@njit(cache=True, nogil=True)
def _flag(found: Any, size: int, begins: Any, ends: Any) -> None:
    """Flag the bytes where a token begins, and those right after one."""
    for i in range(size):
        before, here = found[i], found[i + 1]
        goes_on = np.uint8(here == WORD) & np.uint8(before == WORD)
        alone = np.uint8(here == SINGLE) | np.uint8(here == LINE_END)
        begins[i] = alone | (np.uint8(here == WORD) & (goes_on ^ np.uint8(1)))
        ends[i] = np.uint8(before != SPACE) & np.uint8(here != _INSIDE) & (goes_on ^ np.uint8(1))


@njit(cache=True, nogil=True)
def scan_chunk(block: Any, first: int, size: int, open_words: int, classes: Any, work: Any, places: Any) -> Any:
    """Gather the begins and ends of the tokens of one chunk; a line end is a token too.

    `open_words` is 1 where a token goes on from the chunk before; its begin is places[0, 0]. `work` are three rows
    of bytes, `places` two rows: begins and ends. Returns (begins, ends, where the next chunk starts).
    """
    last = min(first + CHUNK, size)
    while last < size and block[last] & 0xC0 == 0x80:  # do not cut a character
        last -= 1
    kinds, begin_flags, end_flags = work[0], work[1], work[2]
    _classify(block, first, last, classes, kinds)
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
