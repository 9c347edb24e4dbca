"""Automata assembled from plain arrays (of an estimate, an ARPA file or a mixture), and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.bitstream import bits_for, pack
from chainrule.ngram.store.normalise import normalise_backoffs
from chainrule.ngram.store.trie import Trie, pack_begins
from chainrule.ngram.store.values import Values
from chainrule.ngram.workspace import IN_MEMORY, Workspace


@dataclass
class Parts:
    """A model as plain arrays: for each length from 2 on, the n-grams grouped by context; and all values."""

    vocab_size: int
    bos: int
    words: list[Array]
    """Codes of the last words of the n-grams of 2, 3, ... words."""
    begins: list[Array]
    """For the contexts of 1, 2, ... words, the index of each one's first n-gram, and one past the last n-gram."""
    log_prob: Array
    """Log-probabilities of all n-grams of one and more words, length after length."""
    log_backoff: Array
    """Log-backoffs of all n-grams but the longest, length after length."""
    stream: Array | None = None
    """The words, if they are already packed as `Trie.words`; then `words` is empty."""

    @property
    def first_of_length(self) -> NDArray[np.int64]:
        """The first node of each length, as in Trie."""
        return np.cumsum([0, 1, self.vocab_size, *(int(begin[-1]) for begin in self.begins)])

    def assemble(self, workspace: Workspace = IN_MEMORY) -> Automaton:
        """Return the automaton of these parts; large arrays are allocated in the workspace."""
        base, offset, rest = pack_begins(self.begins, workspace)
        stream = pack_words(self.words, self.vocab_size) if self.stream is None else self.stream
        trie = Trie(self.vocab_size, self.first_of_length, stream, base, offset, rest)
        on_host = isinstance(self.log_prob, np.ndarray)
        where = None if on_host else self.log_prob.device
        return Automaton(trie, Values.of(self.log_prob), Values.of(self.log_backoff), self.bos, where=where)


def pack_words(words: Sequence[Array], vocab_size: int, workspace: Workspace = IN_MEMORY) -> Array:
    """Pack the codes of all lengths into one bit stream, in a file if the workspace spills."""
    empty = partial(workspace.empty, dtype=np.uint32) if workspace.spills else None
    return pack(_joined(words), bits_for(vocab_size - 1), empty, workspace.executor)


def take_apart(automaton: Automaton) -> Parts:
    """Return the parts of an automaton, unpacked; quantised values become plain."""
    trie = automaton.trie
    firsts = trie.first_of_length
    levels = [np.arange(firsts[n], firsts[n + 1]) for n in range(1, trie.order + 1)]
    return Parts(
        trie.vocab_size,
        automaton.bos,
        [trie.word(nodes).astype(np.uint32) for nodes in levels[1:]],
        [trie.begin(np.arange(firsts[n], firsts[n + 1] + 1), n) for n in range(1, trie.order)],
        np.concatenate([automaton.log_prob.at(nodes - 1, n) for n, nodes in enumerate(levels)]),
        np.concatenate([np.zeros(0, np.float32), *(automaton.log_backoff.at(nodes - 1, n)
                                                  for n, nodes in enumerate(levels[:-1]))]),
    )  # fmt: skip


def select(parts: Parts, keep: Sequence[Array]) -> Parts:
    """Return the parts of the n-grams to keep, of their contexts, and of every word.

    `keep` holds a mask of the n-grams of each length from 1 on.
    """
    xp = array_namespace(parts.log_prob)
    keep = [xp.astype(mask, xp.bool, copy=True) for mask in keep]
    keep[0][:] = True
    begins = [xp.astype(begin, xp.int64) for begin in parts.begins]
    for n in range(len(keep) - 1, 0, -1):  # the context of a kept n-gram is kept
        before = _kept_before(keep[n])[begins[n - 1]]
        keep[n - 1] |= before[1:] > before[:-1]
    words, shorter = [], []
    for n in range(1, len(keep)):
        begin = _kept_before(keep[n])[begins[n - 1]]
        words.append(parts.words[n - 1][keep[n]])
        shorter.append(xp.concat([begin[:-1][keep[n - 1]], begin[-1:]]))
    everything = xp.concat(keep)
    contexts = everything[: parts.log_backoff.shape[0]]
    values = parts.log_prob[everything], parts.log_backoff[contexts]
    return Parts(parts.vocab_size, parts.bos, words, shorter, *values)


def _kept_before(mask: Array) -> Array:
    """Return the prefix sums of a mask: how many n-grams are kept before each index, and in all."""
    xp = array_namespace(mask)
    counts = xp.cumulative_sum(xp.astype(mask, xp.int64))
    return xp.concat([xp.zeros(1, dtype=xp.int64, device=device(mask)), counts])


def normalise(parts: Parts) -> Automaton:
    """Assemble the parts, and overwrite their backoffs by those that make every context sum to one."""
    automaton = parts.assemble()
    normalise_backoffs(automaton)
    return automaton


def _joined(arrays: Sequence[Array]) -> Array:
    """Concatenate arrays; without a copy if together they are all of one larger array."""
    if not arrays:
        return np.zeros(0, dtype=np.uint32)
    if not isinstance(arrays[0], np.ndarray):
        return array_namespace(arrays[0]).concat(list(arrays))
    whole = arrays[0].base
    if whole is not None and len(whole) == sum(map(len, arrays)) and all(array.base is whole for array in arrays):
        return whole
    return np.concatenate(arrays)
