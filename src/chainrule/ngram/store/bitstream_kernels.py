"""Numba kernels that write bit streams; bitstream.py and trie.py define the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pack_bits(values: Any, first: int, last: int, bits: int, stream: Any) -> None:
    """Write the numbers first to last - 1 into a bit stream that is 0 there.

    Thread-safe if `first` is a multiple of 32: 32 numbers fill whole words, so no two threads write the same word.
    """
    for k in range(first, last):
        place = k * bits
        moved = np.uint64(values[k]) << np.uint64(place & 31)
        stream[place >> 5] |= np.uint32(moved & np.uint64(0xFFFFFFFF))
        if (place & 31) + bits > 32:
            stream[(place >> 5) + 1] |= np.uint32(moved >> np.uint64(32))


@njit(cache=True, nogil=True, error_model="numpy")
def group_widths(begin: Any, base: Any, width: Any) -> None:
    """Compute for each group of 32 contexts where its first children begin, and the bits of its largest rest."""
    for group in range(len(base)):
        first, last = group * 32, min(group * 32 + 31, len(begin) - 1)
        base[group] = begin[first]
        rest, bits = np.int64(begin[last]) - np.int64(begin[first]), 1
        while rest >> bits:
            bits += 1
        width[group] = bits


@njit(cache=True, nogil=True, error_model="numpy")
def pack_groups(begin: Any, offset: Any, stream: Any) -> None:
    """Write the rests of each group of 32 contexts, in as few bits as the group needs, into a stream of zeros."""
    for group in range(len(offset) - 1):
        bits = np.int64(offset[group + 1]) - np.int64(offset[group])
        for k in range(32):
            context = min(group * 32 + k, len(begin) - 1)
            rest = np.uint64(np.int64(begin[context]) - np.int64(begin[group * 32]))
            place = k * bits
            word = np.int64(offset[group]) + (place >> 5)
            moved = rest << np.uint64(place & 31)
            stream[word] |= np.uint32(moved & np.uint64(0xFFFFFFFF))
            if (place & 31) + bits > 32:
                stream[word + 1] |= np.uint32(moved >> np.uint64(32))
