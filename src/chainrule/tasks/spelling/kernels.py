"""Numba kernels that find the words of a vocabulary near a typed one, and what each costs the channel.

Words lie one after the other in flat arrays, the shortest first: their letters as code points, which are compared,
and as the classes of a channel, for its costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FAR = 1 << 20  # more edits than any word has


@njit(cache=True, nogil=True)
def near(
    typed: Any, typed_set: Any, letters: Any, starts_N: Any, sets_N: Any, first: int, last: int, most: int
) -> Any:
    """Return the places of the words first .. last within `most` edits of the typed one, and their distances."""
    places, distances = np.empty(last - first, np.int64), np.empty(last - first, np.int64)
    table = np.empty((3, len(typed) + 1), np.int64)
    found = 0
    for n in range(first, last):
        # an edit removes at most one letter from the set of letters, and adds at most one
        if _exceeds(typed_set & ~sets_N[n], most) or _exceeds(sets_N[n] & ~typed_set, most):
            continue
        distance = _distance(typed, letters[starts_N[n] : starts_N[n + 1]], most, table)
        if distance <= most:
            places[found], distances[found] = n, distance
            found += 1
    return places[:found], distances[:found]


@njit(cache=True, nogil=True)
def _exceeds(bits: Any, most: int) -> Any:
    """Return True if more than `most` bits are set."""
    for _ in range(most):
        bits &= bits - np.uint64(1)  # the lowest bit is cleared
    return bits != np.uint64(0)


@njit(cache=True, nogil=True)
def _distance(typed: Any, word: Any, most: int, table: Any) -> int:
    """Return the distance by insertions, deletions, substitutions and swaps (optimal string alignment).

    Rows are letters of the word. Only cells that `most` edits can reach are computed; a row without any ends it.
    """
    size = len(typed)
    before, above, here = table[0], table[1], table[2]
    for j in range(min(size, most + 1) + 1):
        above[j] = j if j <= most else _FAR
        before[j] = _FAR
    for i in range(1, len(word) + 1):
        least, first, last = _FAR, max(0, i - most), min(size, i + most)
        if first > 0:
            here[first - 1] = _FAR
        if last < size:
            here[last + 1] = _FAR
        for j in range(first, last + 1):
            best = above[j] + 1
            if j > 0:
                best = min(best, here[j - 1] + 1)
                best = min(best, above[j - 1] + (word[i - 1] != typed[j - 1]))
            if i > 1 and j > 1 and word[i - 1] == typed[j - 2] and word[i - 2] == typed[j - 1]:
                best = min(best, before[j - 2] + 1)
            here[j] = best
            least = min(least, best)
        if least > most:
            return _FAR
        before, above, here = above, here, before
    return int(above[size])


@njit(cache=True, nogil=True)
def costs(
    typed: Any,
    typed_classes: Any,
    letters: Any,
    classes: Any,
    starts_N: Any,
    places: Any,
    most: int,
    start: int,
    tables: Any,
) -> Any:
    """Return -ln p(typed | word) of the words at some places, as `Channel.cost` does.

    At most `most` more letters are inserted than deleted up to any point, or the reverse.
    """
    delete, insert, substitute, transpose = tables
    found = np.empty(len(places), np.float64)
    size = len(typed)
    table = np.empty((3, size + 1), np.float64)
    for number in range(len(places)):
        first = starts_N[places[number]]
        length = starts_N[places[number] + 1] - first
        before, above, here = table[0], table[1], table[2]
        above[:] = np.inf
        for i in range(length + 1):
            now = classes[first + i - 1] if i > 0 else start
            last = classes[first + i - 2] if i > 1 else start
            here[:] = np.inf
            for j in range(max(0, i - most), min(size, i + most) + 1):
                best = 0.0 if i == 0 and j == 0 else np.inf
                if i > 0:
                    best = min(best, above[j] + delete[last, now])
                if j > 0:
                    best = min(best, here[j - 1] + insert[now, typed_classes[j - 1]])
                if i > 0 and j > 0:
                    is_right = letters[first + i - 1] == typed[j - 1]
                    best = min(best, above[j - 1] + (0.0 if is_right else substitute[now, typed_classes[j - 1]]))
                if i > 1 and j > 1:
                    is_swapped = letters[first + i - 1] == typed[j - 2] and letters[first + i - 2] == typed[j - 1]
                    if is_swapped:
                        best = min(best, before[j - 2] + transpose[last, now])
                here[j] = best
            before, above, here = above, here, before
        found[number] = above[size]
    return found
