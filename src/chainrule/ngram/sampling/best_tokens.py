"""The most likely word after each context of an n-gram model, as a table that another device can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.capabilities import BestTokens

if TYPE_CHECKING:
    from chainrule.ngram.store.automaton import Automaton

Ints = NDArray[np.int64]

MOST_CONTEXTS = 1 << 25
"""The most contexts of a table: it ends before the length that would exceed this."""


def best_words(automaton: Automaton, bos: int, longest: int) -> list[BestTokens]:
    """Return the contexts of 1 to `longest` words that words were seen after, with the most likely of these."""
    trie, found, total = automaton.trie, list[BestTokens](), 0
    nodes = np.arange(1, trie.vocab_size + 1)
    contexts = np.asarray(automaton.words)[trie.word(nodes)][:, None]
    for n in range(1, min(longest, trie.order - 1) + 1):
        total += len(nodes)
        if total > MOST_CONTEXTS:
            break
        first, last = trie.children(nodes, n)
        children = np.arange(int(trie.first_of_length[n + 1]), int(trie.first_of_length[n + 2]))
        words = np.asarray(automaton.words)[trie.word(children)]
        log_prob = np.where(words == bos, -np.inf, automaton.log_prob.at(children - 1, n))
        has = last > first
        best = first_maxima(log_prob, first[has] - trie.first_of_length[n + 1])
        possible = log_prob[best] > -np.inf
        found.append(BestTokens(contexts[has][possible], words[best[possible]]))
        contexts = np.concatenate([np.repeat(contexts, last - first, axis=0), words[:, None]], axis=1)
        nodes = children
    return found


def first_maxima(values: np.ndarray, begins: Ints) -> Ints:
    """Return the index of the largest value of each stretch, the first of equals; stretches follow each other."""
    highest = np.maximum.reduceat(values, begins) if len(begins) else values
    places = np.flatnonzero(values == np.repeat(highest, np.diff(np.append(begins, len(values)))))
    found: Ints = places[np.searchsorted(places, begins)]
    return found
