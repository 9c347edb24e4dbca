"""Words under other numbers, so that the numbers of any set of words lie evenly spread.

A tokenizer numbers words by frequency: after any context the small numbers crowd. Multiplied by about the golden
section of V, modulo V, they spread evenly, and a word is found among the n-grams of its context by looking where
it should lie (interpolation search) instead of by halving. A code is a word's number in this order.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_GOLDEN_SECTION = (math.sqrt(5) - 1) / 2


def multiplier(vocab_size: int) -> int:
    """The factor: near the golden section of V, and prime to V, so that no two words share a code."""
    factor = max(1, round(vocab_size * _GOLDEN_SECTION))
    while math.gcd(factor, vocab_size) != 1:
        factor += 1
    return factor


@lru_cache(maxsize=4)
def codes_of_words(vocab_size: int) -> NDArray[np.uint32]:
    """The code of every word."""
    codes: NDArray[np.uint32] = (
        np.arange(vocab_size, dtype=np.int64) * multiplier(vocab_size) % vocab_size
    ).astype(np.uint32)
    codes.flags.writeable = False
    return codes


@lru_cache(maxsize=4)
def words_of_codes(vocab_size: int) -> NDArray[np.uint32]:
    """The word of every code."""
    words = np.empty(vocab_size, dtype=np.uint32)
    words[codes_of_words(vocab_size)] = np.arange(vocab_size, dtype=np.uint32)
    words.flags.writeable = False
    return words
