"""Guesses at the next words by an n-gram model: the arrays of the kernel, and its call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chainrule.ngram.sampling.draft_kernels import SLOTS, draft_words
from chainrule.ngram.sampling.writer import frozen
from chainrule.ngram.store.automaton import Automaton

Ints = NDArray[np.int64]


class Drafter:
    """Guesses with an automaton. One text at a time: what it keeps of contexts serves every text."""

    def __init__(self, automaton: Automaton, bos: int) -> None:
        self.trie, self.prob, _, self.words = frozen(automaton)
        self.length = automaton.trie.order - 1
        self.nothing = automaton.trie.vocab_size
        possible = np.array(self.prob.plain[: automaton.trie.vocab_size], dtype=np.float64)
        possible[int(self.trie.code[bos])] = -np.inf
        self.likeliest = int(self.words[int(possible.argmax())])
        self._ends = np.zeros((1, automaton.trie.order), np.int64)
        self._known, self._best = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)

    def after(self, words: Ints, count: int) -> Ints:
        """`count` tokens that may follow the last words, given as [N-1]; where there is none stands the id V."""
        tokens = np.zeros(count, np.int64)
        draft_words(
            words[None].copy(), tokens, self._ends, self._known, self._best, self.likeliest, self.words, self.trie,
            self.prob,
        )  # fmt: skip
        return tokens
