"""Drafts: guesses at the next words, for another model to check.

A draft has to be much faster than one step of the model that checks it. So a single call of a kernel guesses
several words, and does not back off: a guess is the most likely of the words seen after the longest known context.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.sampler import Ints
from chainrule.ngram.sampling.walk_kernels import code_of
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.compiled import ZERO, kernel
from chainrule.ngram.store.kernels import children_of, value_at
from chainrule.ngram.store.scoring_kernels import find_ends

_SLOTS = 1 << 14
"""The number of contexts whose most likely word is kept: those with many words come up again and again."""


class Drafter:
    """Drafts with an automaton, for one text at a time."""

    def __init__(self, automaton: Automaton, bos: int) -> None:
        self.trie, (self.prob, _), self.words = automaton.trie_arrays, automaton.value_arrays, automaton.words
        possible = np.array(self.prob.plain[: automaton.trie.vocab_size], dtype=np.float64)
        possible[int(self.trie.code[bos])] = -np.inf
        self._best_of_all = int(self.words[int(possible.argmax())])
        self._ends = np.zeros((1, automaton.trie.order), np.int64)
        self._known, self._best = np.zeros(_SLOTS, np.int64), np.zeros(_SLOTS, np.int64)

    def after(self, words: Ints, count: int) -> Ints:
        """Return `count` tokens that may follow the last N-1 words; the id V stands for no word."""
        tokens = np.zeros(count, np.int64)
        draft_words(
            words[None].copy(), tokens, self._ends, self._known, self._best, self._best_of_all, self.words,
            self.trie, self.prob,
        )  # fmt: skip
        return tokens


@kernel
def draft_words(
    words_1N: Any, tokens: Any, ends_1N: Any, known: Any, best: Any, best_of_all: int, codes: Any, trie: Any,
    prob: Any,
) -> None:  # fmt: skip
    """Fill `tokens` with guesses after the last words, which move on with them.

    `known` holds nodes of contexts, `best` the codes of their most likely words; `best_of_all` is the most likely
    word without context, and `codes` maps codes to words.
    """
    order = words_1N.shape[1]
    for t in range(len(tokens)):
        find_ends(words_1N, trie, ends_1N)
        token = np.int64(best_of_all)
        for n in range(order, 0, -1):
            node = ends_1N[0, n]
            if node == 0:
                continue
            slot = node & (len(known) - 1)
            if known[slot] != node:
                first, last = children_of(node, n, trie.table, trie.base, trie.offset, trie.rest)
                if first >= last:
                    continue
                top, highest = ZERO, -np.inf
                for child in range(first, last):
                    value = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
                    if value > highest:
                        top, highest = np.int64(child), value
                if top == 0:
                    continue
                known[slot], best[slot] = node, code_of(top, trie)
            token = np.int64(codes[best[slot]])
            break
        tokens[t] = token
        for k in range(order - 1):
            words_1N[0, k] = words_1N[0, k + 1]
        if order > 0:
            words_1N[0, order - 1] = token
