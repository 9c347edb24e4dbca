"""Numba kernels for counting: windows of N words, sorted part by part, become the n-grams of each length.

A window is N words in a row. Sort every window of the text, and the n-grams of every length lie in runs: windows
that begin with the same n words are neighbours. So one sort gives all orders at once.

The sort goes by parts. A window's part follows from its first word (and, after a frequent word, from its second):
the sorted parts in sequence are all windows in sorted order, and each part is small enough to sort in cache.

A column holds a word's code plus 1, or 0 after the end of the text or line. The kernels release the GIL; threads
run them in parallel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.kernels import BLOCK, find_code


@njit(cache=True, nogil=True)
def fill_windows(ids: Any, first: int, last: int, at_start: bool, ends_at: int, code: Any, bos: int, part_of: Any,
                 split_of: Any, from_part: int, next_row: Any, windows: Any) -> None:  # fmt: skip
    """Write the windows that begin in ids[first:last] and fall into the parts from `from_part` on.

    `next_row` holds the next row of each part, which moves on with each window; if `windows` has no rows, the
    windows are only counted there. `at_start` says whether a line begins at `first`; `ends_at` is the token that
    ends a line, or -1.
    """
    columns = np.zeros(last - first + windows.shape[1], np.uint32)
    line_end = np.uint32(code[ends_at] + 1 if ends_at >= 0 else 0)
    for i in range(first, min(first + len(columns), len(ids))):
        columns[i - first] = code[np.int64(ids[i])] + 1
    starts_line, is_written = at_start, len(windows) > 0
    for i in range(first, last):
        if starts_line:
            row = _take_row(bos, columns[i - first], part_of, split_of, from_part, next_row)
            if is_written and row >= 0:
                windows[row, 0] = code[bos] + 1
                _fill(columns, i - first, line_end, windows, row, 1)
        here = np.int64(ids[i])
        starts_line = here == ends_at
        if not starts_line and i + 1 < len(ids):
            row = _take_row(here, columns[i - first + 1], part_of, split_of, from_part, next_row)
            if is_written and row >= 0:
                _fill(columns, i - first, line_end, windows, row, 0)


@njit(cache=True, nogil=True)
def _take_row(word: int, column: Any, part_of: Any, split_of: Any, from_part: int, next_row: Any) -> Any:
    """Return the next row of a window's part, given its first word and its second column; -1 for another part."""
    part = part_of[word] + (np.int64(column) >> split_of[word]) - from_part
    if not 0 <= part < len(next_row):
        return np.int64(-1)
    next_row[part] += 1
    return next_row[part] - 1


@njit(cache=True, nogil=True)
def _fill(columns: Any, place: int, line_end: Any, windows: Any, row: int, first: int) -> None:
    """Write the columns of a window from `first` on: the text from position `place` on, and 0 after a line end."""
    goes_on = True
    for n in range(first, windows.shape[1]):
        windows[row, n] = columns[place] if goes_on else 0
        goes_on &= columns[place] != line_end
        place += 1


@njit(cache=True, nogil=True)
def sort_windows(windows: Any, bits: int) -> Any:
    """Return the indices that sort the windows by all columns: a radix sort, from the last column to the first."""
    rows, order = windows.shape
    passes = (bits + 10) // 11
    digit = (bits + passes - 1) // passes
    mask = (1 << digit) - 1
    place, place_after = np.arange(rows).astype(np.uint32), np.empty(rows, np.uint32)
    key, key_after = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
    bucket = np.empty(1 << digit, np.int64)
    for column in range(order - 1, -1, -1):
        for k in range(rows):
            key[k] = windows[place[k], column]
        for turn in range(passes):
            shift = turn * digit
            bucket[:] = 0
            for k in range(rows):
                bucket[(key[k] >> shift) & mask] += 1
            if rows and bucket[(key[0] >> shift) & mask] == rows:
                continue
            total = 0
            for value in range(mask + 1):
                total, bucket[value] = total + bucket[value], total
            for k in range(rows):
                value = (key[k] >> shift) & mask
                to = bucket[value]
                bucket[value] = to + 1
                place_after[to] = place[k]
                key_after[to] = key[k]
            place, place_after = place_after, place
            key, key_after = key_after, key
    return place


@njit(cache=True, nogil=True)
def shared_columns(windows: Any, place: Any, shared: Any, sizes: Any) -> None:
    """Write to `shared` how many columns each window, in sorted order, has in common with the one before it.

    Adds the number of distinct n-grams of each length to `sizes`. A window equal to the one before it shares all N
    columns, and adds none.
    """
    rows, order = windows.shape
    for k in range(rows):
        here = place[k]
        same = 0
        if k > 0:
            before = place[k - 1]
            while same < order and windows[here, same] == windows[before, same]:
                same += 1
        shared[k] = same
        n = same
        while n < order and windows[here, n] != 0:
            sizes[n] += 1
            n += 1


@njit(cache=True, nogil=True)
def fill_levels(windows: Any, place: Any, shared: Any, first: Any, word: Any, count: Any, children: Any) -> None:
    """Write the n-grams of a sorted part: last word, count, and how many n-grams of one more word begin with each.

    The lengths lie one after the other in each array; `first` holds where each length begins.
    """
    rows, order = windows.shape
    at = first.copy() - 1
    for k in range(rows):
        here = place[k]
        for n in range(order):
            column = windows[here, n]
            if column == 0:
                break
            if n >= shared[k]:
                at[n] += 1
                word[at[n]] = column - 1
                count[at[n]] = 0
                children[at[n]] = 0
                if n > 0:
                    children[at[n - 1]] += 1
            count[at[n]] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def count_places(places: Any, first: int, counts: Any) -> Any:
    """Add to `counts` how often each index from `first` on occurs in `places`, as far as there are counts."""
    for k in range(len(places)):
        place = np.int64(places[k]) - first
        if 0 <= place < len(counts):
            counts[place] += 1
    return counts


@njit(cache=True, nogil=True, error_model="numpy")
def link_suffixes(first: int, last: int, begin: Any, word: Any, context_suffix: Any, begin_below: Any,
                  word_below: Any, size: int, suffix: Any) -> Any:  # fmt: skip
    """Write the index of h' w into `suffix` for each n-gram h w of the contexts h from first to last - 1.

    h' is h without its first word. The arrays `..._below` are of the n-grams that are a word shorter.
    """
    lows, highs = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    differ = np.empty(BLOCK, np.int64)
    touched: Any = 0  # returned, so that the compiler keeps the loads that only warm the cache
    scale = 1.0 / np.float64(size)
    for block in range(first, last, BLOCK):
        many = min(BLOCK, last - block)
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
