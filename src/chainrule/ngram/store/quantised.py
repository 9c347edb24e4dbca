"""Automata in fewer bits: probabilities in a few, and backoffs that make up for what rounding them does to sums.

A backoff is computed from the rounded probabilities, so that the probabilities after every context sum to one. It
is stored on a grid of 24 bits, as precisely as single precision would have it. Where rounded probabilities would
leave next to nothing for unseen words, some are rounded down instead of to the nearest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chainrule.ngram.segments import segment_sums
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.normalise import normalise_backoffs
from chainrule.ngram.store.trie import Trie
from chainrule.ngram.store.values import GRID_BITS, Values, codebook, nearest, packed, quantise
from chainrule.system.parallel import in_order

_CONTEXTS_AT_ONCE = 1 << 16
_LEAST_LEFT = 0.5  # the share of what a context leaves for unseen words that rounding must leave it


def quantised(automaton: Automaton, bits: int, *, normalised: bool = True) -> tuple[Automaton, float]:
    """The automaton with log-probabilities of `bits` bits, and how far from one they sum at most; NumPy only.

    Scores, which are not `normalised`, keep their backoffs.
    """
    log_prob = _rounded(automaton.trie, np.asarray(automaton.log_prob.plain), bits)
    log_backoff = np.array(automaton.log_backoff.plain)
    plain = replace(automaton, log_prob=log_prob, log_backoff=Values.of(log_backoff))
    worst = normalise_backoffs(plain) if normalised else 0.0
    grid = quantise(log_backoff, automaton.trie.first_of_length[1:-1] - 1, GRID_BITS)
    return replace(automaton, log_prob=log_prob, log_backoff=grid), worst


def _rounded(trie: Trie, log_prob: NDArray[np.float32], bits: int) -> Values:
    """The log-probabilities in `bits` bits, such that each context leaves something for unseen words."""
    indices, books = [], []
    for n in range(1, trie.order):
        first, last = int(trie.first_of_length[n + 1]), int(trie.first_of_length[n + 2])
        book = codebook(log_prob[first - 1 : last - 1], 1 << bits)

        def round_some(
            contexts: tuple[int, int], n: int = n, book: NDArray[np.float32] = book
        ) -> NDArray[np.integer]:
            begin, end = trie.children(np.arange(*contexts), n)
            values = log_prob[int(begin[0]) - 1 : int(end[-1]) - 1]
            return leave_something(nearest(book, values), values, book, np.append(begin, end[-1]) - begin[0])

        indices += [index for _, index in in_order(round_some, trie.blocks(n, _CONTEXTS_AT_ONCE))]
        books.append(book)
    return packed(log_prob[: trie.vocab_size], indices, books, bits)


def leave_something(
    indices: NDArray[np.integer], values: NDArray[np.float32], book: NDArray[np.float32], begin: NDArray[np.int64]
) -> NDArray[np.integer]:
    """The indices of rounded log-probabilities, some of them one lower, so that no context gives away too much.

    Where rounding to the nearest leaves less than half of 1 - Σ p(w | h), probabilities that were rounded up are
    rounded down instead, those with the smallest effect first, until the context leaves as much as it did.
    """
    exact, rounded = (np.exp(logs.astype(np.float64)) for logs in (values, book[indices]))
    left, wanted = 1 - segment_sums(rounded, begin), 1 - segment_sums(exact, begin)
    is_tight = left < wanted * _LEAST_LEFT
    if not is_tight.any():
        return indices
    context = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    tight = np.flatnonzero(is_tight[context] & (rounded > exact) & (indices > 0))
    gain = rounded[tight] - np.exp(book[indices[tight] - 1].astype(np.float64))
    order = np.lexsort((gain, context[tight]))
    tight, gain = tight[order], gain[order]
    before = np.cumsum(gain) - gain
    before -= before[np.searchsorted(context[tight], context[tight])]  # gained so far in the same context
    indices[tight[before < (wanted - left)[context[tight]]]] -= 1
    return indices
