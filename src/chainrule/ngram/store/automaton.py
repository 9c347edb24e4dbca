"""The model as an automaton: a state is one integer, the node of the longest suffix of the text in the trie.

A word that is a child of the state in the trie has its probability stored there. Any other word costs the state's
backoff, and the search goes on with the state's suffix, down to single words, all of which are in the trie:

    p(w | h) = p_stored(h w)                if h w is in the trie
             = backoff(h) · p(w | h')       else; h' is h without its first word

A context that is not in the trie has a backoff of 1. It costs nothing, so nothing but the state is needed of the
text before. Stupid backoff is the exception: every context of up to N - 1 words costs the same α, in the trie or
not, so that the words of the text are needed beside the state.

Written against the Array API, the same code walks NumPy arrays and torch tensors, on a GPU too. For many tokens in
NumPy, the kernels of kernels.py do the same faster.

Where words are given as arrays of fixed width, the id V means "no word".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace
from chainrule.errors import SettingsError
from chainrule.ngram.store.codes import codes_of_words, words_of_codes
from chainrule.ngram.store.trie import Trie, TrieArrays, move, read_only
from chainrule.ngram.store.values import GRID_BITS, Values
from chainrule.system.parallel import Patience, at_once, cores, stretches

_NANOSECONDS = 1024  # to score one token with NumPy
_CALL = 1000  # tokens that could be scored in the time it takes NumPy to look up a single context
_WORTH_A_THREAD = 1 << 13  # the fewest tokens per thread
_FULL = 0.7  # the share of the slots of a hash index that are taken
_MOST_LEFT_OVER = 1 << 16


def slots_for(nodes: int) -> int:
    """Return the number of slots of a hash index of `nodes` nodes."""
    return int(nodes / _FULL) + 64


@dataclass(frozen=True)
class Automaton:
    """A trie with a log-probability for every node and a log-backoff for every context."""

    trie: Trie
    log_prob: Values
    """Log-probabilities of the nodes 1, 2, ..."""
    log_backoff: Values
    """Log-backoffs of the nodes 1, 2, ... of up to N - 1 words."""
    bos: int
    index: Array | None = None
    """A hash index of every node by its parent and word, for speed; None if there is none."""
    where: Any = None
    """The torch device of the arrays; None for NumPy."""
    log_alpha: float = 0.0
    """Stupid backoff's ln α: the log-backoff of every context, in the trie or not. 0 for other models, whose
    contexts have backoffs of their own."""
    counts: NDArray[np.unsignedinteger] | None = None
    """How often each of the n-grams 1, 2, ... occurred; always in NumPy. None if counts are not kept."""
    keeps_suffixes: bool = False
    """True if each n-gram is also in the trie without its first word, as in the trie of a text."""
    _patience: Patience = field(default_factory=lambda: Patience(_NANOSECONDS), repr=False, compare=False)

    def to(self, where: Any) -> Automaton:
        """Return this automaton with its arrays on a torch device, without the hash index; for None, in NumPy."""
        prob, back = self.log_prob.to(where), self.log_backoff.to(where)
        index = None if where else self.index
        return replace(self, trie=self.trie.to(where), log_prob=prob, log_backoff=back, index=index, where=where)

    def indexed(self) -> Automaton:
        """Return this automaton with a hash index: a child is found by one lookup instead of a search.

        The index makes scoring faster and a model about twice as large, so it is optional (`index=hash`). A slot
        holds 32 bits of the hash of (parent, code) and the child's node number. With 30% of the slots empty, a
        lookup of a missing n-gram finds the entry of another one about once in 10^9 times.

        Each thread fills its own range of slots; entries that find no free slot there are inserted last, by one
        thread.
        """
        from chainrule.ngram.store.kernels import fill_index

        trie = self.trie
        if trie.nodes >= 1 << 32:
            raise SettingsError("index=hash goes with models of less than 2^32 n-grams")
        index: NDArray[np.uint64] = np.zeros(slots_for(trie.nodes - int(trie.first_of_length[2])), dtype=np.uint64)
        parts = stretches(len(index), cores())

        def fill(slots: tuple[int, int]) -> NDArray[np.uint64]:
            left_over = np.zeros(_MOST_LEFT_OVER, dtype=np.uint64)
            over = 0
            for n in range(1, trie.order):
                nodes = (int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]))
                over += fill_index(*nodes, n, self.trie_arrays, *slots, index, left_over[over:])
            return left_over[:over]

        for (_, slot), entries in zip(parts, at_once(fill, parts), strict=True):
            for entry in entries:
                while index[slot % len(index)] != 0:
                    slot += 1
                index[slot % len(index)] = entry
        return replace(self, index=index)

    @property
    def keeps_sums(self) -> bool:
        """True if backoffs make up for the rounding of probabilities: not if they were rounded to as few bits."""
        return self.log_prob.bits == 0 or self.log_backoff.bits in (0, GRID_BITS)

    def array(self, values: Any) -> Array:
        """Return integers as an int64 array on the device of this automaton."""
        if self.where is None:
            return np.asarray(values, dtype=np.int64)
        import torch

        return torch.as_tensor(values, dtype=torch.int64, device=self.where)

    @cached_property
    def codes(self) -> Array:
        """The code of each word; V ("no word") is its own code."""
        codes = np.append(codes_of_words(self.trie.vocab_size).astype(np.int64), self.trie.vocab_size)
        return move(codes, self.where)

    @cached_property
    def words(self) -> Array:
        """The word of each code; V ("no word") for the code V."""
        words = np.append(words_of_codes(self.trie.vocab_size).astype(np.int64), self.trie.vocab_size)
        return move(words, self.where)

    def start(self) -> int:
        """Return the state after <s>; repeating <s> leads to the same state."""
        return 0 if self.trie.order == 1 else 1 + int(codes_of_words(self.trie.vocab_size)[self.bos])

    def state_of(self, history: Array) -> Array:
        """Return the state after the words of each row [B, N-1]: the node of the longest suffix in the trie."""
        if self.where is not None or not self._patience.count(_CALL + history.size):
            return self.state_slowly(history)
        from chainrule.ngram.store.scoring_kernels import find_longest

        states = np.empty(len(history), dtype=np.int64)
        find_longest(self.ends_fast(history), states)
        return states

    def state_slowly(self, history: Array) -> Array:
        """Return the same as `state_of` without the Numba kernel: used on a GPU, and as the reference."""
        xp = array_namespace(history)
        state = xp.zeros(history.shape[0], dtype=xp.int64, device=device(history))
        for node in self.ends_slowly(history):  # from short to long: the longest in the trie wins
            state = xp.where(node > 0, node, state)
        return state

    def ends_fast(self, history: Array) -> Array:
        """Return the nodes of the last 1, 2, ... T words of each row [B, T], as [B, T + 1]; 0 where there is none.

        They are in the columns from 1 on; column 0 is the number of words back to the last <s>.
        """
        from chainrule.ngram.store.scoring_kernels import find_ends

        ends_BN = np.empty((history.shape[0], history.shape[1] + 1), dtype=np.int64)
        find_ends(history, self.trie_arrays, ends_BN)
        return ends_BN

    def ends_slowly(self, history: Array) -> list[Array]:
        """Return the same nodes as a list by length, without the Numba kernel: on a GPU, and as the reference."""
        rows = self._apart(history)
        matches = self.matches(self.codes[rows.reshape(-1)], history.shape[1])
        return [nodes.reshape(rows.shape)[:, -1] for nodes in matches[: history.shape[1]]]

    def words_of(self, states: Array) -> Array:
        """Return the words of each state, right-aligned in [B, N-1], after V ("no word") for shorter states."""
        xp = array_namespace(states)
        reach, length = self.trie.order - 1, self.trie.length(states)
        words = xp.full((states.shape[0], reach), self.trie.vocab_size, dtype=xp.int64, device=device(states))
        for n in range(1, reach + 1):
            rows = xp.nonzero(length == n)[0]
            nodes = states[rows]
            for k in range(n if rows.shape[0] else 0, 0, -1):  # from the last word to the first
                words[rows, reach - n + k - 1] = self.words[self.trie.word(nodes)]
                nodes = self.trie.parent(nodes, k)
        return words

    def matches(self, codes: Array, longest: int) -> list[Array]:
        """Return, for lengths up to `longest`, the node of the n-gram that ends at each position; 0 for none."""
        xp = array_namespace(codes)
        nodes = [self.trie.child(xp.zeros_like(codes), 0, codes)]
        for n in range(1, longest):
            node = xp.zeros_like(codes)
            before = nodes[-1][:-1]  # the nodes of n words that end one position earlier
            ends = xp.nonzero(before)[0]
            node[ends + 1] = self.trie.child(before[ends], n, codes[ends + 1])
            nodes.append(node)
        return nodes

    def score(self, text: Array, threads: int | None = None) -> Array:
        """Return ln p of each word of a text, given the up to N-1 words before it."""
        if self.where is None and self._patience.count(text.shape[0]):
            return self._score_fast(text, threads or cores())
        return self.score_slowly(text)

    def score_slowly(self, text: Array) -> Array:
        """Do the same as `score`, to the last bit, without the kernel: used on a GPU, and as the reference."""
        xp = array_namespace(text)
        matches = self.matches(self.codes[text], self.trie.order)
        known = matches[0] > 0
        log_probs = xp.where(known, self.log_prob.at(xp.where(known, matches[0], 1) - 1, 0), -xp.inf)
        log_probs = xp.astype(log_probs, xp.float64)
        for n, cost in enumerate(self._costs(text, matches), start=2):
            node = matches[n - 1][1:]
            own = self.log_prob.at(xp.where(node > 0, node, 1) - 1, n - 1)
            log_probs[1:] = xp.where(node > 0, xp.astype(own, xp.float64), log_probs[1:] + cost)
        return log_probs

    def _costs(self, text: Array, matches: list[Array]) -> Iterator[Array]:
        """Yield, for contexts of 1 to N-1 words, the log-backoff of the one before each position but the first."""
        xp = array_namespace(text)
        known = matches[0] > 0
        reaches = known[:-1]  # whether a context of n words ends at each position
        for n, nodes in enumerate(matches[:-1], start=1):
            if self.log_alpha:
                yield xp.where(reaches, self.log_alpha, 0.0)
                longer = known[1:-1] & (text[1:-1] != self.bos) & reaches[:-1]  # <s> is in no context but first
                reaches = xp.concat([xp.zeros_like(reaches[:1]), longer])
            else:
                context = nodes[:-1]
                own = self.log_backoff.at(xp.where(context > 0, context, 1) - 1, n - 1)
                yield xp.where(context > 0, own, 0.0)

    def last_word_scores(self, words: Array) -> Array:
        """Return ln p of the last word of each row [K, n], given the others."""
        rows = self._apart(words)
        return self.score(rows.reshape(-1)).reshape(rows.shape)[:, -1]

    def _apart(self, rows: Array) -> Array:
        """Return the rows with "no word" before each, over which no n-gram reaches."""
        xp = array_namespace(rows)
        nothing = xp.full((rows.shape[0], 1), self.trie.vocab_size, dtype=xp.int64, device=device(rows))
        return xp.concat([nothing, rows], axis=1)

    def _score_fast(self, text: Array, threads: int) -> Array:
        from chainrule.ngram.store.scoring_kernels import score_text

        text = text.astype(np.uint32, copy=False)  # so that the kernel is compiled for one dtype only
        scores = np.empty(len(text), dtype=np.float64)
        arrays = self.trie_arrays, *self.value_arrays

        def score_stretch(stretch: tuple[int, int]) -> None:
            score_text(text, *stretch, scores, *arrays, self.log_alpha or None, self.keeps_suffixes)

        at_once(score_stretch, stretches(len(text), min(threads, len(text) // _WORTH_A_THREAD)))
        return scores

    @cached_property
    def trie_arrays(self) -> TrieArrays:
        """The trie and its index as the kernels take them: read-only."""
        trie = self.trie
        return TrieArrays(
            self.codes.astype(np.uint32),
            trie.vocab_size,
            trie.table,
            read_only(trie.words),
            read_only(trie.base),
            read_only(trie.offset),
            read_only(trie.rest),
            trie.word_bits,
            read_only(np.zeros(0, np.uint64) if self.index is None else self.index),
            int(self.codes[self.bos]),
        )

    @cached_property
    def value_arrays(self) -> tuple[Values, Values]:
        """The log-probabilities and the log-backoffs as the kernels take them: read-only."""
        prob, back = (
            Values(read_only(values.plain), read_only(values.codes), read_only(values.books), values.bits)
            for values in (self.log_prob, self.log_backoff)
        )
        return prob, back

    @cached_property
    def _unigrams(self) -> Array:
        """ln p of every word without context, indexed by word."""
        xp = array_namespace(self.codes)
        return xp.astype(self.log_prob.at(self.codes[:-1], 0), xp.float64)

    @cached_property
    def _unigram_probs(self) -> NDArray[np.float64]:
        """p of every word without context, indexed by word."""
        return np.asarray(np.exp(self._unigrams))

    def next_log_probs(self, states: Array) -> Array:
        """Return ln p of every word after each state, as [B, V], for a text of no words but those of the state."""
        return self.next_after(self.words_of(states))

    def next_after(self, history: Array) -> Array:
        """Return ln p of every word after the last N-1 words of each row, as [B, V]."""
        if not self._is_worth_kernels(history):
            return self.next_slowly(history)
        from chainrule.ngram.store.scoring_kernels import fill_next

        log_probs = np.tile(self._unigrams, (history.shape[0], 1))
        fill_next(self.ends_fast(history), self.words, log_probs, self.trie_arrays, *self.value_arrays)
        return log_probs

    def next_probs_after(self, history: Array) -> NDArray[np.float32] | None:
        """Return e to `next_after`, in single precision, by a kernel; None where that does it without a kernel."""
        if not self._is_worth_kernels(history):
            return None
        from chainrule.ngram.store.scoring_kernels import fill_next_probs

        probs = np.empty((history.shape[0], self.trie.vocab_size), dtype=np.float32)
        arrays = self.trie_arrays, *self.value_arrays
        fill_next_probs(self.ends_fast(history), self.words, self._unigram_probs, probs, *arrays)
        return probs

    def prepare(self) -> None:
        """Load the kernels of `state_of` and `next_after` now, before they pay off."""
        self._patience.end()
        if self.where is None and not self.log_alpha:
            history = self.words_of(self.array([self.start()]))
            self.state_of(history)
            self.next_after(history)
            self.next_probs_after(history)

    def _is_worth_kernels(self, history: Array) -> bool:
        """Return True if kernels compute the words after these contexts; stupid backoff has no kernels."""
        amount = _CALL + history.shape[0] * self.trie.vocab_size // 64
        return self.where is None and not self.log_alpha and self._patience.count(amount)

    def next_slowly(self, history: Array) -> Array:
        """Do the same as `next_after`, to the last bit, without the kernel: longer contexts overwrite shorter."""
        xp = array_namespace(history)
        rows = xp.tile(self._unigrams, (history.shape[0], 1))
        for n, context in enumerate(self.ends_slowly(history), start=1):
            if self.log_alpha:
                words = history[:, history.shape[1] - n :]  # without gaps, and without <s> after the first word
                is_context = (words < self.trie.vocab_size).all(axis=1) & (words[:, 1:] != self.bos).all(axis=1)
                rows[is_context] += self.log_alpha
            known = xp.nonzero(context)[0]
            if known.shape[0] == 0:
                continue
            node = context[known]
            if not self.log_alpha:
                rows[known] += self.log_backoff.at(node - 1, n - 1)[:, None]
            begin, end = self.trie.children(node, n)
            sizes = end - begin
            before = xp.cumulative_sum(sizes) - sizes
            every = xp.arange(int(xp.sum(sizes)), dtype=xp.int64, device=device(node))
            child = xp.repeat(begin - before, sizes) + every
            row = xp.repeat(known, sizes)
            rows[row, self.words[self.trie.word(child)]] = xp.astype(self.log_prob.at(child - 1, n), xp.float64)
        return rows
