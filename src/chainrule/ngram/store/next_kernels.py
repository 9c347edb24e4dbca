"""Numba kernels for what follows a context: the nodes of its suffixes, and ln p of every next word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.kernels import backoff_at, bits_at, children_of, find_code, value_at


@njit(cache=True, nogil=True, error_model="numpy")
def find_ends(history: Any, ends: Any, trie: Any) -> None:
    """Write the nodes of the last 1, 2, ... words of each row [B, T] into `ends` [T, B], as `Automaton.ends_of`."""
    code, size, table, words, word_bits = trie.code, trie.size, trie.table, trie.words, trie.word_bits
    rows, width = history.shape
    for row in range(rows):
        for n in range(1, width + 1):
            first_code = np.int64(code[history[row, width - n]])
            node = first_code + 1 if first_code < size else np.int64(0)
            for m in range(1, n):
                wanted = np.int64(code[history[row, width - n + m]])
                if node == 0 or wanted >= size:
                    node = np.int64(0)
                    break
                low, high = children_of(node, m, table, trie.base, trie.offset, trie.rest)
                place = find_code(
                    words, word_bits, low - table[2, 0], high - table[2, 0], np.int64(-1), size, wanted
                )
                node = place + table[2, 0] if place >= 0 else np.int64(0)
            ends[n - 1, row] = node


@njit(cache=True, nogil=True, error_model="numpy")
def fill_next(ends: Any, word_of_code: Any, log_probs: Any, trie: Any, prob: Any, back: Any) -> None:
    """Turn ln p without context, in each row [B, V] of `log_probs`, into ln p after the contexts of the row.

    `ends` are the nodes that `find_ends` finds. From short contexts to long ones, every word pays the backoff, and
    a word that was seen after the context gets its own probability.
    """
    table, words, word_bits = trie.table, trie.words, trie.word_bits
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    lengths, rows = ends.shape
    size = log_probs.shape[1]
    for row in range(rows):
        for n in range(1, lengths + 1):
            node = ends[n - 1, row]
            if node == 0:
                continue
            cost = np.float64(backoff_at(node - 1, n - 1, back_plain, back_codes, back_books, back_bits))
            for word in range(size):
                log_probs[row, word] += cost
            first, last = children_of(node, n, table, trie.base, trie.offset, trie.rest)
            for child in range(first, last):
                code = bits_at(words, (child - table[2, 0]) * word_bits, word_bits)
                if code < size:  # a damaged file does not lead out of bounds
                    value = value_at(child - 1, n, prob_plain, prob_codes, prob_books, prob_bits)
                    log_probs[row, word_of_code[code]] = np.float64(value)
