"""The model as an automaton: a state is one integer, the node of the longest known end of what was read.

A word that follows the state in the trie has its probability stored there. One that does not costs the state's
backoff, and the search goes on at the state's suffix, down to the empty n-gram, behind which every word is
equally likely:

    p(w | h) = p_stored(h w)                if h w is in the trie
             = backoff(h) · p(w | h')       else; h' is h without its first word
             = backoff() / V                for a word that is not in the trie at all
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chainrule.ngram.count import Ints, Trie

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Automaton:
    """A trie with a log-probability and a log-backoff for every node."""

    trie: Trie
    log_prob: NDArray[np.float32]
    log_backoff: NDArray[np.float32]
    bos: int

    def start(self) -> int:
        """The state after N-1 <s>; shorter if the training text had no line."""
        state = np.zeros(1, dtype=np.int64)
        for _ in range(self.trie.order - 1):
            state = self.step(state, np.asarray([self.bos]))
        return int(state[0])

    def step(self, states: Ints, words: Ints) -> Ints:
        """The states after one more word each."""
        states = states.copy()
        found = self.trie.child(states, words)
        for _ in range(self.trie.order):
            missing = (found == 0) & (states != 0)
            if not missing.any():
                break
            states[missing] = self.trie.suffix[states[missing]]
            found[missing] = self.trie.child(states[missing], words[missing])
        full = found >= self.trie.first_of_length[self.trie.order]
        return np.where(full, self.trie.suffix[found], found)

    def words_of(self, states: Ints) -> Ints:
        """The N-1 words each state stands for, as [B, N-1]; V (nothing) before those it does not know."""
        words = np.full((len(states), self.trie.order - 1), self.trie.vocab_size, dtype=np.int64)
        for place in range(self.trie.order - 2, -1, -1):
            known = states > 0
            words[known, place] = self.trie.word(states[known])
            states = np.where(known, self.trie.parent(np.maximum(states, 1)), 0)
        return words

    def matches(self, text: Ints) -> list[Ints]:
        """For each length 0 to N, the node of the n-gram that begins at each place of a text, 0 if none does."""
        nodes = [np.zeros(len(text), dtype=np.int64)]
        for length in range(1, self.trie.order + 1):
            node = np.zeros(len(text), dtype=np.int64)
            before = nodes[-1][: len(text) - length + 1]
            begins = np.arange(len(before)) if length == 1 else np.flatnonzero(before)
            node[begins] = self.trie.child(before[begins], text[begins + length - 1])
            nodes.append(node)
        return nodes

    def score(self, text: Ints) -> Floats:
        """ln p of each word of a text after the up to N-1 words before it, whatever lies before those."""
        matches = self.matches(text)
        log_probs = np.full(len(text), self.log_uniform + float(self.log_backoff[0]), dtype=np.float64)
        for length in range(1, self.trie.order + 1):
            # the n-gram that ends at place t begins at t - length + 1, and so does its context
            ends = slice(length - 1, len(text))
            node, history = (matches[n][: len(text) - length + 1] for n in (length, length - 1))
            cost = np.where(history > 0, self.log_backoff[history], 0.0)  # the empty one's is in there already
            log_probs[ends] = np.where(node > 0, self.log_prob[node], log_probs[ends] + cost)
        log_probs[text == self.bos] = -np.inf
        return log_probs

    @property
    def log_uniform(self) -> float:
        """-ln of how many words can be predicted: all but <s>."""
        return -float(np.log(self.trie.vocab_size - 1))

    @cached_property
    def _unigrams(self) -> Floats:
        """ln p of every word after nothing."""
        row = np.full(self.trie.vocab_size, self.log_uniform + float(self.log_backoff[0]), dtype=np.float64)
        nodes = self.trie.nodes(1)
        row[self.trie.word(nodes)] = self.log_prob[nodes]
        row[self.bos] = -np.inf
        return row

    def next_log_probs(self, states: Ints) -> Floats:
        """ln p of every word after each state, as [B, V]: from the shortest context to the longest."""
        rows = np.tile(self._unigrams, (len(states), 1))
        chain = [states]
        for _ in range(self.trie.order - 2):
            chain.append(self.trie.suffix[chain[-1]])
        for contexts in reversed(chain):
            known = np.flatnonzero(contexts)
            begins, ends = self.trie.children(contexts[known])
            rows[known] += self.log_backoff[contexts[known], None]
            sizes = ends - begins
            first_of_row = np.cumsum(sizes) - sizes
            nodes = np.repeat(begins - first_of_row, sizes) + np.arange(sizes.sum())
            rows[np.repeat(known, sizes), self.trie.word(nodes)] = self.log_prob[nodes]
        return rows
