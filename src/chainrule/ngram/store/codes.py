"""Codes: words renumbered so that the numbers of any set of words are spread evenly.

A tokenizer numbers words by frequency, so after any context the small ids are crowded. Multiplied by about the
golden section of V, modulo V, they are spread evenly: the product is the word's code. A word is then found among
the n-grams of its context by interpolation search (a guess at where it should lie) instead of binary search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace

_GOLDEN_SECTION = (math.sqrt(5) - 1) / 2


def multiplier(vocab_size: int) -> int:
    """Return the factor from ids to codes: near the golden section of V, and coprime to V for unique codes."""
    factor = max(1, round(vocab_size * _GOLDEN_SECTION))
    while math.gcd(factor, vocab_size) != 1:
        factor += 1
    return factor


@lru_cache(maxsize=4)
def codes_of_words(vocab_size: int) -> NDArray[np.uint32]:
    """Return the code of every word, indexed by word id; read-only."""
    products = np.arange(vocab_size, dtype=np.int64) * multiplier(vocab_size)
    codes: NDArray[np.uint32] = (products % vocab_size).astype(np.uint32)
    codes.flags.writeable = False
    return codes


@lru_cache(maxsize=4)
def words_of_codes(vocab_size: int) -> NDArray[np.uint32]:
    """Return the word id of every code, indexed by code; read-only."""
    words = np.empty(vocab_size, dtype=np.uint32)
    words[codes_of_words(vocab_size)] = np.arange(vocab_size, dtype=np.uint32)
    words.flags.writeable = False
    return words


def find(code_at: Callable[[Array], Array], first: Array, last: Array, codes: Array) -> Array:
    """Return the position of each code in its range [first, last) of ascending codes; -1 where it is missing.

    `code_at` returns the codes at an array of positions; where a range is empty, it is asked for position 0.
    """
    xp = array_namespace(first)
    longest = int(xp.max(last - first)) if first.shape[0] else 0
    if longest <= 0:
        return xp.full_like(first, -1)
    low, high = first, last
    for _ in range(longest.bit_length()):
        middle = (low + high) // 2
        is_open = low < high
        is_below = is_open & (code_at(xp.where(is_open, middle, 0)) < codes)
        low = xp.where(is_below, middle + 1, low)
        high = xp.where(is_open & ~is_below, middle, high)
    is_inside = low < last
    found = is_inside & (code_at(xp.where(is_inside, low, 0)) == codes)
    return xp.where(found, low, -1)
