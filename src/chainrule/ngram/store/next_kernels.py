"""Numba kernels for what follows a context: the nodes of its suffixes, and ln p of every next word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.kernels import backoff_at, bits_at, children_of, find_code, value_at


@njit(cache=True, nogil=True, error_model="numpy")
def find_ends(history: Any, ends: Any, trie: Any) -> None:
    """Write the nodes of the last 1, 2, ... words of each row [B, T] into `ends` [T, B], as `ends_slowly`."""
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
def find_longest(ends: Any, longest: Any) -> None:
    """Write the node of the longest suffix of each row into `longest`: of what `find_ends` found; 0 if nothing."""
    lengths, rows = ends.shape
    for row in range(rows):
        longest[row] = 0
        for n in range(lengths):
            if ends[n, row] > 0:
                longest[row] = ends[n, row]


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


@njit(cache=True, nogil=True, error_model="numpy")
def fill_next_probs(
    ends: Any, word_of_code: Any, without_context: Any, probs: Any, trie: Any, prob: Any, back: Any
) -> None:
    """Write p of every word after the contexts of each row into `probs` [B, V]: e to what `fill_next` computes.

    `without_context` is p of every word without context. Powers of e are taken of the words seen after a context
    alone: all others have that probability, times the backoffs of all contexts.
    """
    table, words, word_bits = trie.table, trie.words, trie.word_bits
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    lengths, rows = ends.shape
    size = probs.shape[1]
    costs = np.zeros(lengths + 1)  # [n]: ln of the backoffs of all contexts of more than n words
    for row in range(rows):
        for n in range(lengths, 0, -1):
            node = ends[n - 1, row]
            cost = backoff_at(node - 1, n - 1, back_plain, back_codes, back_books, back_bits) if node > 0 else 0.0
            costs[n - 1] = costs[n] + np.float64(cost)
        factor = np.exp(costs[0])
        for word in range(size):
            probs[row, word] = without_context[word] * factor
        for n in range(1, lengths + 1):
            if ends[n - 1, row] == 0:
                continue
            first, last = children_of(ends[n - 1, row], n, table, trie.base, trie.offset, trie.rest)
            for child in range(first, last):
                code = bits_at(words, (child - table[2, 0]) * word_bits, word_bits)
                if code < size:  # a damaged file does not lead out of bounds
                    value = value_at(child - 1, n, prob_plain, prob_codes, prob_books, prob_bits)
                    probs[row, word_of_code[code]] = np.exp(np.float64(value) + costs[n])
