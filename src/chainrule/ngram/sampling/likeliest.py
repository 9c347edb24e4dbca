"""The likeliest word after each context of an n-gram model, as a table that another device can keep."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.capabilities import Likeliest
from chainrule.ngram.store.automaton import Automaton

Ints = NDArray[np.int64]

MOST_CONTEXTS = 1 << 25
"""Lengths whose contexts would make the table larger than this are left out, and with them all longer ones."""


def likeliest_words(automaton: Automaton, bos: int, longest: int) -> list[Likeliest]:
    """The contexts of 1 to `longest` words that something followed, with the likeliest of what did."""
    trie, found, total = automaton.trie, list[Likeliest](), 0
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
        best = first_best(log_prob, first[has] - trie.first_of_length[n + 1])
        possible = log_prob[best] > -np.inf
        found.append(Likeliest(contexts[has][possible], words[best[possible]]))
        contexts = np.concatenate([np.repeat(contexts, last - first, axis=0), words[:, None]], axis=1)
        nodes = children
    return found


def first_best(values: np.ndarray, begins: Ints) -> Ints:
    """The index of the largest value of each stretch, the first of equals; the stretches fill the array."""
    if not len(begins):
        return np.zeros(0, np.int64)
    highest = np.maximum.reduceat(values, begins)
    stretch = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(values))))
    places = np.flatnonzero(values == highest[stretch])
    _, firsts = np.unique(stretch[places], return_index=True)
    found: Ints = places[firsts]
    return found
