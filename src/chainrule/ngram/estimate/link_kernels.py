"""The Numba kernel that links each n-gram to the one without its first word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.kernels import TOGETHER, find_code


@njit(cache=True, nogil=True, error_model="numpy")
def link_suffixes(first: int, last: int, begin: Any, word: Any, context_suffix: Any, begin_below: Any,
                  word_below: Any, size: int, suffix: Any) -> Any:  # fmt: skip
    """Write the index of h' w into `suffix` for each n-gram h w of the contexts h from first to last - 1.

    h' is h without its first word. The arrays `..._below` are of the n-grams that are a word shorter.
    """
    lows, highs = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    differ = np.empty(TOGETHER, np.int64)
    touched: Any = 0  # returned, so that the compiler keeps the loads that only warm the cache
    scale = 1.0 / np.float64(size)
    for block in range(first, last, TOGETHER):
        many = min(TOGETHER, last - block)
        for k in range(many):
            shorter = np.int64(context_suffix[block + k])
            lows[k], highs[k] = begin_below[shorter], begin_below[shorter + 1]
        m = 0
        for k in range(many):
            at = np.int64(begin[block + k])
            children: Any = np.int64(begin[block + k + 1]) - at
            differ[m] = k
            if highs[k] - lows[k] == children:  # words seen after h were seen after h': equally many are the same
                for j in range(children):
                    suffix[at + j] = lows[k] + j
            else:
                m += children > 0
        for j in range(m):
            k = differ[j]
            code = np.float64(word[np.int64(begin[block + k])])
            touched += np.int64(word_below[lows[k] + np.int64(code * np.float64(highs[k] - lows[k]) * scale)])
        for j in range(m):
            k = differ[j]
            low, least = lows[k], np.int64(-1)
            for child in range(np.int64(begin[block + k]), np.int64(begin[block + k + 1])):
                code_of_word = np.int64(word[child])
                low = find_code(word_below, 0, low, highs[k], least, size, code_of_word)
                suffix[child] = low
                low, least = low + 1, code_of_word
    return touched
