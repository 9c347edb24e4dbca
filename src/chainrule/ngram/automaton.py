"""The model as an automaton: a state is one integer, the node of the longest known end of what was read.

A word that follows the state in the trie has its probability stored there. One that does not costs the state's
backoff, and the search goes on with the state's suffix, down to the words, all of which are in the trie:

    p(w | h) = p_stored(h w)                if h w is in the trie
             = backoff(h) · p(w | h')       else; h' is h without its first word

Written against the Array API: the same lines walk NumPy's arrays and torch's, on a GPU. For NumPy and many tokens,
kernels.py does the same faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from chainrule.arrays import Array
from chainrule.ngram.codes import codes_of_words, words_of_codes
from chainrule.ngram.trie import Trie, move
from chainrule.ngram.values import Values, quantise
from chainrule.parallel import Patience, cores

WORTH_A_KERNEL = 1 << 16
"""Tokens; below, NumPy is done before Numba is imported."""

_WORTH_A_THREAD = 1 << 13


@dataclass(frozen=True)
class Automaton:
    """A trie with a log-probability for every node and a log-backoff for every context."""

    trie: Trie
    log_prob: Values
    """Of nodes 1, 2, ..."""
    log_backoff: Values
    """Of nodes 1, 2, ... of up to N - 1 words."""
    bos: int
    index: Array | None = None
    """A hash index of every node by its parent and word, for speed (index.py)."""
    where: Any = None
    """The torch device of the arrays; None for NumPy."""
    _patience: Patience = field(default_factory=lambda: Patience(WORTH_A_KERNEL), repr=False, compare=False)

    def to(self, where: Any) -> Automaton:
        """The same on a torch device, or, for None, in NumPy."""
        values = self.log_prob.to(where), self.log_backoff.to(where)
        return Automaton(self.trie.to(where), *values, self.bos, None if where else self.index, where)

    def quantised(self, bits: int) -> Automaton:
        """The same with probabilities and backoffs of so many bits."""
        firsts = self.trie.first_of_length
        log_prob = quantise(np.asarray(self.log_prob.plain), firsts[1:] - 1, bits)
        log_backoff = quantise(np.asarray(self.log_backoff.plain), firsts[1:-1] - 1, bits)
        return replace(self, log_prob=log_prob, log_backoff=log_backoff)

    def array(self, values: Any) -> Array:
        """Integers as an array beside this automaton's."""
        if self.where is None:
            return np.asarray(values, dtype=np.int64)
        import torch

        return torch.as_tensor(values, dtype=torch.int64, device=self.where)

    @cached_property
    def codes(self) -> Array:
        """The code of each word; V stands for nothing and is its own code."""
        codes = np.append(codes_of_words(self.trie.vocab_size).astype(np.int64), self.trie.vocab_size)
        return move(codes, self.where)

    @cached_property
    def words(self) -> Array:
        """The word of each code."""
        words = np.append(words_of_codes(self.trie.vocab_size).astype(np.int64), self.trie.vocab_size)
        return move(words, self.where)

    def start(self) -> int:
        """The state after <s>: how often it is repeated before that makes no difference."""
        return 0 if self.trie.order == 1 else 1 + int(codes_of_words(self.trie.vocab_size)[self.bos])

    def step(self, states: Array, words: Array) -> Array:
        """The states after one more word each."""
        xp = array_namespace(states)
        history = self.words_of(states)
        return self.state_of(xp.concat([history, words[:, None]], axis=1)[:, 1:])

    def state_of(self, history: Array) -> Array:
        """The node of the longest known end of up to N - 1 words, from words [B, N-1]; V stands for nothing."""
        xp = array_namespace(history)
        state = xp.zeros(history.shape[0], dtype=xp.int64, device=device(history))
        for node in self.ends_of(history):  # the longest that is known wins
            state = xp.where(node > 0, node, state)
        return state

    def ends_of(self, history: Array) -> list[Array]:
        """The nodes of the last word, the last two words, ... of each row [B, T]; 0 where the trie has no such."""
        xp = array_namespace(history)
        rows, width = history.shape
        codes = self.codes[history]
        # column s holds the n-gram that begins there, for all columns at once, one word longer with every turn
        node = xp.where(codes < self.trie.vocab_size, codes + 1, 0)
        ends = [node[:, width - 1]] if width else []
        for n in range(1, width):
            shorter, word = (xp.reshape(columns, (-1,)) for columns in (node[:, :-1], codes[:, n:]))
            here = xp.nonzero(shorter)[0]
            longer = xp.zeros_like(shorter)
            longer[here] = self.trie.child(shorter[here], n, word[here])
            node = xp.reshape(longer, (rows, width - n))
            ends.append(node[:, width - 1 - n])
        return ends

    def words_of(self, states: Array) -> Array:
        """The N-1 words each state stands for, as [B, N-1]; V (nothing) before those it does not know."""
        xp = array_namespace(states)
        reach, length = self.trie.order - 1, self.trie.length(states)
        total = length
        columns = []
        for n in range(reach, 0, -1):
            if self.trie.first_of_length[n] == self.trie.first_of_length[n + 1]:  # no state is that long
                columns.append(xp.full_like(states, self.trie.vocab_size))
                continue
            here = length == n
            node = xp.where(here, states, int(self.trie.first_of_length[n]))
            columns.append(xp.where(here, self.words[self.trie.word(node)], self.trie.vocab_size))
            states = xp.where(here, self.trie.parent(node, n), states)
            length = xp.where(here, n - 1, length)
        if not columns:
            return xp.zeros((states.shape[0], 0), dtype=xp.int64, device=device(states))
        # so far word k of a state is in column k: move the shorter states to the right
        by_place = xp.flip(xp.stack(columns, axis=1), axis=1)
        source = xp.arange(reach, dtype=xp.int64, device=device(states))[None, :] - (reach - total)[:, None]
        rows = xp.arange(states.shape[0], dtype=xp.int64, device=device(states))[:, None]
        return xp.where(source >= 0, by_place[rows, xp.clip(source, 0, None)], self.trie.vocab_size)

    def matches(self, codes: Array) -> list[Array]:
        """For each length 1 to N, the node of the n-gram that ends at each place of a text, 0 if none does."""
        xp = array_namespace(codes)
        nodes = [self.trie.child(xp.zeros_like(codes), 0, codes)]
        for n in range(1, self.trie.order):
            node = xp.zeros_like(codes)
            before = nodes[-1][:-1]  # of n words, ending one place earlier
            ends = xp.nonzero(before)[0]
            node[ends + 1] = self.trie.child(before[ends], n, codes[ends + 1])
            nodes.append(node)
        return nodes

    def score(self, text: Array, threads: int | None = None) -> Array:
        """ln p of each word of a text after the up to N-1 words before it, whatever lies before those."""
        if self.where is None and self._patience.ends_with(text.shape[0]):
            return self._score_fast(text, threads or cores())
        return self.score_slowly(text)

    def score_slowly(self, text: Array) -> Array:
        """The same without the kernel, bit by bit: on a GPU the way, on a CPU the reference."""
        xp = array_namespace(text)
        matches = self.matches(self.codes[text])
        known = matches[0] > 0
        log_probs = xp.where(known, self.log_prob.at(xp.where(known, matches[0], 1) - 1, 0), -xp.inf)
        log_probs = xp.astype(log_probs, xp.float64)
        for n in range(2, self.trie.order + 1):
            node, context = matches[n - 1][1:], matches[n - 2][:-1]  # the latter of n - 1 words, before this one
            cost = xp.where(context > 0, self.log_backoff.at(xp.where(context > 0, context, 1) - 1, n - 2), 0.0)
            own = self.log_prob.at(xp.where(node > 0, node, 1) - 1, n - 1)
            log_probs[1:] = xp.where(node > 0, xp.astype(own, xp.float64), log_probs[1:] + cost)
        return log_probs

    def last_word_scores(self, words: Array) -> Array:
        """ln p of the last word of each row [K, n] after the others; V stands for nothing."""
        xp = array_namespace(words)
        nothing = xp.full((words.shape[0], 1), self.trie.vocab_size, dtype=xp.int64, device=device(words))
        rows = xp.concat([nothing, words], axis=1)
        return xp.reshape(self.score(xp.reshape(rows, (-1,))), rows.shape)[:, -1]

    def _score_fast(self, text: Array, threads: int) -> Array:
        from concurrent.futures import ThreadPoolExecutor

        from chainrule.ngram.kernels import score_text

        text = text.astype(np.uint32, copy=False)  # the one type that is compiled for
        scores = np.empty(len(text), dtype=np.float64)
        arrays = self._arrays

        def part(edges: tuple[int, int]) -> None:
            score_text(text, *edges, scores, *arrays)

        threads = min(threads, len(text) // _WORTH_A_THREAD)
        if threads < 2:
            part((0, len(text)))
            return scores
        edges = np.linspace(0, len(text), threads + 1).astype(np.int64).tolist()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, pairwise(edges)))
        return scores

    @cached_property
    def _arrays(self) -> tuple[Any, ...]:
        """What the kernels walk, as plain arrays."""
        trie = self.trie
        values = (self.log_prob, self.log_backoff)
        return (
            self.codes.astype(np.uint32),
            trie.vocab_size,
            trie.table,
            *(np.asarray(array) for array in (trie.words, trie.base, trie.offset, trie.rest)),
            trie.word_bits,
            np.zeros(0, np.uint64) if self.index is None else np.asarray(self.index),
            *(
                part
                for v in values
                for part in (np.asarray(v.plain), np.asarray(v.codes), np.asarray(v.books), v.bits)
            ),
        )

    @cached_property
    def _unigrams(self) -> Array:
        """ln p of every word after nothing, in the order of words."""
        xp = array_namespace(self.codes)
        return xp.astype(self.log_prob.at(self.codes[:-1], 0), xp.float64)

    def draw(self, history: Array, uniforms: Array, forbid: Sequence[int]) -> tuple[Array, Array]:
        """A word x ~ p(x | h), no forbidden one, after the last N-1 words of each row, and its ln p; NumPy only.

        The work grows with what was seen after the contexts, not with V.
        """
        from chainrule.ngram.kernels import draw_words

        rows = history.shape[0]
        codes, log_probs = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.float64)
        ends = np.asarray(self.ends_of(history), dtype=np.int64).reshape(history.shape[1], rows)
        size, arrays = self.trie.vocab_size, self._arrays
        # the kernel needs neither the words' codes nor the index
        forbidden = self.codes[np.asarray(forbid, dtype=np.int64)]
        draw_words(ends, uniforms, forbidden, self._cumulative, codes, log_probs, size, *arrays[2:8], *arrays[9:])
        return self.words[codes], np.where(np.isin(codes, forbidden), -np.inf, log_probs)

    @cached_property
    def _cumulative(self) -> Array:
        """Σ p of the words up to each code."""
        codes = np.arange(self.trie.vocab_size)
        return np.cumsum(np.exp(self.log_prob.at(codes, 0).astype(np.float64)))

    def next_log_probs(self, states: Array) -> Array:
        """ln p of every word after each state, as [B, V]."""
        return self.next_after(self.words_of(states))

    def next_after(self, history: Array) -> Array:
        """ln p of every word after the last N-1 words of each row, as [B, V]: from the shortest context on."""
        xp = array_namespace(history)
        rows = xp.tile(self._unigrams, (history.shape[0], 1))
        for n, context in enumerate(self.ends_of(history), start=1):
            known = xp.nonzero(context)[0]
            if known.shape[0] == 0:
                continue
            node = context[known]
            rows[known] += self.log_backoff.at(node - 1, n - 1)[:, None]
            begin, end = self.trie.children(node, n)
            sizes = end - begin
            before = xp.cumulative_sum(sizes) - sizes
            every = xp.arange(int(xp.sum(sizes)), dtype=xp.int64, device=device(node))
            child = xp.repeat(begin - before, sizes) + every
            row = xp.repeat(known, sizes)
            rows[row, self.words[self.trie.word(child)]] = xp.astype(self.log_prob.at(child - 1, n), xp.float64)
        return rows
