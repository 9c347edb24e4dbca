"""Backoffs that make the probabilities after every context sum to one.

    α(h) = (1 - Σ p(w | h)) / (1 - Σ p(w | h')), over the words w seen after h

A context that has seen every word, or all but a millionth of the mass of p(w | h'), has nothing to divide by: its
backoff stays as it is, and its probabilities may not sum to one.

An automaton can therefore be stored in fewer bits. Its backoffs are computed from the rounded probabilities, and
stored on a grid of 24 bits, as precisely as single precision would have them. Where rounded probabilities would
leave next to nothing for unseen words, some are rounded down instead of to the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chainrule.ngram.segments import segment_sums
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.codes import words_of_codes
from chainrule.ngram.store.trie import Trie
from chainrule.ngram.store.values import Values, codebook, nearest, on_grids, packed
from chainrule.system.parallel import in_order, worth_a_kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROUNDING = 1e-6
_CONTEXTS_AT_ONCE = 1 << 16
_LEAST_LEFT = 0.5  # the share of what a context leaves for unseen words that rounding must leave it
_NANOSECONDS = 500  # to find an n-gram with NumPy


def normalise_backoffs(automaton: Automaton) -> float:
    """Overwrite the log-backoffs, which must be plain, from short contexts to long; NumPy only.

    Returns how far from one the probabilities after a context sum at most.
    """
    trie, worst = automaton.trie, 0.0
    suffixes: Ints = np.zeros(trie.vocab_size, dtype=np.int64)  # of each context: its node without the first word
    for n in range(1, trie.order):
        size = int(np.diff(trie.first_of_length)[n + 1]) if n + 1 < trie.order else 0
        level = _Level(automaton, n, suffixes, np.zeros(size, dtype=np.int64))
        for _, apart in in_order(level.normalise, trie.blocks(n, _CONTEXTS_AT_ONCE)):
            worst = max(worst, apart)
        suffixes = level.longer
    return worst


@dataclass(frozen=True)
class _Level:
    """The contexts of n words."""

    automaton: Automaton
    n: int
    suffixes: Ints
    """The node of each context without its first word; 0 if it is not in the trie, or has no words."""
    longer: Ints
    """The same for the n-grams of n + 1 words, to be filled in; empty if those are the longest."""

    def normalise(self, contexts: tuple[int, int]) -> float:
        """Overwrite the log-backoffs of some contexts; returns how far from one a sum is at most."""
        trie, (first, last) = self.automaton.trie, contexts
        begin, end = trie.children(np.arange(first, last), self.n)
        bounds = np.append(begin, end[-1]) - begin[0]
        children = np.arange(int(begin[0]), int(end[-1]))
        own = np.exp(self.automaton.log_prob.at(children - 1, self.n).astype(np.float64))
        start = int(trie.first_of_length[self.n])
        shorter = np.repeat(self.suffixes[first - start : last - start], np.diff(bounds))
        lower = np.exp(self._lower_log_probs(children, shorter))
        left, unseen = (1 - segment_sums(mass, bounds) for mass in (own, lower))
        # a view of the automaton's own array: longer contexts are scored with the new values
        backoff = self.automaton.log_backoff.plain[first - 1 : last - 1]
        with np.errstate(divide="ignore"):
            ratio = np.log(np.maximum(left, 0) / np.maximum(unseen, _ROUNDING))
        backoff[:] = np.where(unseen > _ROUNDING, ratio, backoff)
        given = np.where(unseen > _ROUNDING, np.maximum(left, 0), 0.0)
        return float(np.abs(left - given).max(initial=0.0))

    def _lower_log_probs(self, children: Ints, shorter: Ints) -> Floats:
        """Return ln p(w | h') of n-grams h w, given the nodes of their h'."""
        automaton, trie = self.automaton, self.automaton.trie
        found = self._search(shorter, trie.word(children))
        if len(self.longer):
            self.longer[children - int(trie.first_of_length[self.n + 1])] = found
        log_probs: Floats = automaton.log_prob.at(np.maximum(found, 1) - 1, self.n - 1).astype(np.float64)
        missing = np.flatnonzero(found == 0)
        if len(missing):  # in a model that was pruned or read from a file
            first, last = int(children[0]), int(children[-1]) + 1
            log_probs[missing] = lower_log_probs(automaton, first, last, self.n + 1)[missing]
        return log_probs

    def _search(self, nodes: Ints, codes: Ints) -> Ints:
        """Return the child of each node of n - 1 words by the code of its last word; 0 where there is none."""
        if self.n == 1:
            return codes + 1
        here = np.flatnonzero(nodes)
        found: Ints = np.zeros(len(nodes), dtype=np.int64)
        if not worth_a_kernel(self.automaton.trie.nodes, _NANOSECONDS):
            found[here] = self.automaton.trie.child(nodes[here], self.n - 1, codes[here])
            return found
        from chainrule.ngram.store.kernels import search_children

        trie = self.automaton.trie_arrays
        some, low, high = (np.empty(len(here), dtype=np.int64) for _ in range(3))
        search_children(len(here), nodes[here], codes[here], some, self.n - 1, trie.table, trie.size, trie.words,
                        trie.word_bits, trie.base, trie.offset, trie.rest, low, high)  # fmt: skip
        found[here] = some
        return found


def lower_log_probs(automaton: Automaton, first: int, last: int, n: int) -> Floats:
    """Return ln p(w | h') of the n-grams h w first to last - 1, of n words each; h' is h without its first word."""
    to_word = words_of_codes(automaton.trie.vocab_size).astype(np.int64)
    words = to_word[automaton.trie.ngrams(first, last, n)[:, 1:]]
    scores: Floats = automaton.last_word_scores(words)
    return scores


def quantised(automaton: Automaton, bits: int, *, normalised: bool = True) -> tuple[Automaton, float]:
    """Round log-probabilities to `bits` bits; also return how far from one they sum at most. NumPy only.

    Scores, which are not `normalised`, keep their backoffs.
    """
    log_prob = _rounded(automaton.trie, np.asarray(automaton.log_prob.plain), bits)
    log_backoff = np.array(automaton.log_backoff.plain)
    plain = replace(automaton, log_prob=log_prob, log_backoff=Values.of(log_backoff))
    worst = normalise_backoffs(plain) if normalised else 0.0
    grid = on_grids(log_backoff, automaton.trie.first_of_length[1:-1] - 1)
    return replace(automaton, log_prob=log_prob, log_backoff=grid), worst


def _rounded(trie: Trie, log_prob: NDArray[np.float32], bits: int) -> Values:
    """Return the log-probabilities in `bits` bits, such that each context leaves something for unseen words."""
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
    """Lower some indices of rounded log-probabilities by one, so that no context gives away too much.

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
