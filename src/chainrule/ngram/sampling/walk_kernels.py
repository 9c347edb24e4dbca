"""Numba kernels that walk an n-gram model word by word: the nodes of a text's last words, and their children.

Nearly all time goes into waiting for memory. So several rows of a batch take turns, and each loads the items that
it needs at its next turn in advance (`prefetch`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.cut_kernels import effective
from chainrule.ngram.store.compiled import ZERO, inner
from chainrule.ngram.store.kernels import backoff_at, bits_at, children_of, find_child, value_at
from chainrule.system.intrinsics import prefetch

_AHEAD = 128  # children whose words and values are loaded in advance
_LINE = 16  # numbers of 4 bytes in a cache line


@inner
def code_of(child: int, trie: Any) -> Any:
    """Return the code of the last word of a node of two or more words; clamped, in case a file is damaged."""
    code = bits_at(trie.words, (child - trie.table[2, 0]) * trie.word_bits, trie.word_bits)
    return min(code, np.int64(trie.size) - 1)


@inner
def locate(ends: Any, context: Any, backoff: Any, trie: Any, prob: Any, back: Any, log_alpha: float) -> Any:
    """Write the node, first child, end of children, and backoff of each context; returns the longest length.

    With stupid backoff, α is the backoff of every context of the text, in the trie or not.
    """
    top, empty = ZERO, trie.table[2, 0]
    for n in range(1, len(ends)):
        backoff[n] = 0.0
        context[n, 0], context[n, 1], context[n, 2] = ends[n], empty, empty
        if ends[n] > 0:
            top = n
            if log_alpha == 0.0:
                backoff[n] = backoff_at(ends[n] - 1, n - 1, back.plain, back.codes, back.books, back.bits)
            first, last = children_of(ends[n], n, trie.table, trie.base, trie.offset, trie.rest)
            context[n, 1], context[n, 2] = first, last
            near = min(last, first + _AHEAD)
            for child in range(first, near, _LINE):
                prefetch(trie.words, ((child - empty) * trie.word_bits) >> 5)
                if prob.bits == 0:
                    prefetch(prob.plain, child - 1)
            if first < last and prob.bits == 0:
                prefetch(prob.plain, near - 2)
    if log_alpha != 0.0:
        top = ends[0]
        backoff[1 : top + 1] = log_alpha
    return top


@inner
def walk(ends: Any, top: int, code: int, context: Any, backoff: Any, trie: Any, prob: Any, back: Any) -> Any:
    """Replace the nodes of the contexts by those after one more word; returns ln p of the word."""
    score = -np.inf
    is_found = False
    for n in range(top, -1, -1):
        child = ZERO
        if n == 0:
            child = np.int64(code) + 1
        elif ends[n] > 0:
            child = find_child(context[n, 1], context[n, 2], code, trie)
        if child > 0 and not is_found:
            is_found = True
            own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
            score = effective(own, n, top, backoff)
        if n + 1 < len(ends):
            ends[n + 1] = child
            if child > 0:
                group = trie.table[n + 1, 1] + ((child - trie.table[n + 1, 0]) >> 5)
                prefetch(trie.base, group)
                prefetch(trie.offset, group)
                if back.bits == 0:
                    prefetch(back.plain, child - 1)
    ends[0] = 1 if code == trie.bos else min(ends[0] + 1, len(ends) - 1)
    return score


@inner
def value_after(code: int, n: int, context: Any, backoff: Any, trie: Any, prob: Any) -> Any:
    """Return ln p of a word after the last n words; `context` has the children of the nodes of their suffixes."""
    for m in range(n, 0, -1):
        child = find_child(context[m, 1], context[m, 2], code, trie)
        if child > 0:
            own = value_at(child - 1, m, prob.plain, prob.codes, prob.books, prob.bits)
            return effective(np.float64(own), m, n, backoff)
    return effective(np.float64(prob.plain[code]), ZERO, n, backoff)


@inner
def prefetch_word(code: int, n: int, context: Any, trie: Any) -> None:
    """Load the place at which `value_after` looks for a word first."""
    if n > 0:
        first, last = context[n, 1] - trie.table[2, 0], context[n, 2] - trie.table[2, 0]
        guess = first + np.int64(np.float64(code + 1) * np.float64(last - first) / np.float64(trie.size + 1))
        prefetch(trie.words, (guess * trie.word_bits) >> 5)
