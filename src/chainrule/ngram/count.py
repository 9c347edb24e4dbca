"""N-grams counted: every one of length 1 to N, as a trie in flat arrays.

A node is an n-gram; node 0 is the empty one. Nodes are numbered length by length, and within a length by
(node of all words but the last, last word). So the key `parent * (V + 1) + word` grows with the node's number,
and a child is found by binary search in one sorted array. (V + 1, so that the word V can stand for nothing: no
n-gram holds it.)

Each line has N-1 <s> before it and one </s> behind it. What is counted is events, a word after its context;
<s> is context and never an event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Context

Ints = NDArray[np.int64]
Ids = NDArray[np.integer]


@dataclass(frozen=True)
class Trie:
    """The shape of a set of n-grams that holds every part of each of its members."""

    order: int
    vocab_size: int
    keys: Ints
    """parent * (V + 1) + word of nodes 1, 2, ..., ascending."""
    suffix: Ints
    """The node without its first word; 0 for words."""
    first_of_length: Ints
    """The first node of each length, and one past the last node: N + 2 numbers, starting 0, 1."""

    @property
    def stride(self) -> int:
        """What the parent is multiplied by in a key."""
        return self.vocab_size + 1

    def nodes(self, length: int) -> slice:
        """The nodes of one length."""
        return slice(int(self.first_of_length[length]), int(self.first_of_length[length + 1]))

    def parent(self, nodes: Ints | slice) -> Ints:
        """The n-grams without their last words."""
        return self._keys_of(nodes) // self.stride

    def word(self, nodes: Ints | slice) -> Ints:
        """The last words."""
        return self._keys_of(nodes) % self.stride

    def _keys_of(self, nodes: Ints | slice) -> Ints:
        return self.keys[slice(nodes.start - 1, nodes.stop - 1) if isinstance(nodes, slice) else nodes - 1]

    def child(self, nodes: Ints, words: Ints) -> Ints:
        """The node of each n-gram and one more word; 0 where there is none."""
        wanted = nodes * self.stride + words
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, place + 1, 0)

    def children(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The first child of each node, and one past the last."""
        return (
            np.searchsorted(self.keys, nodes * self.stride) + 1,
            np.searchsorted(self.keys, (nodes + 1) * self.stride) + 1,
        )


@dataclass(frozen=True)
class Counts:
    """How often each n-gram occurred as an event."""

    trie: Trie
    count: Ints
    """c(h w) of each node h w."""
    total: Ints
    """c(h ·) = Σ_w c(h w) of each node h."""


def count_ngrams(ids: Ids, order: int, vocab_size: int, bos: int, eos: int, context: Context) -> Counts:
    """Every n-gram up to `order` of a text whose lines each end in `eos`."""
    text = pad_text(ids, order, bos, eos, context)
    begins_in_line = np.ones(len(text), dtype=bool)  # places from which an n-gram of the present length can go on
    node = np.zeros(len(text), dtype=np.int64)  # of the n-gram that begins at each place
    keys, suffixes, counts, first_of_length = [], [np.zeros(1, np.int64)], [np.zeros(1, np.int64)], [0, 1]
    for length in range(1, order + 1):
        begins_in_line[len(text) - length + 1 :] = False
        begins = np.flatnonzero(begins_in_line)
        words = text[begins + length - 1]
        unique, inverse, count = np.unique(
            node[begins] * (vocab_size + 1) + words, return_inverse=True, return_counts=True
        )
        numbers = first_of_length[-1] + inverse
        suffix = np.zeros(len(unique), dtype=np.int64)
        if length > 1:
            suffix[inverse] = node[begins + 1]  # the n-gram one shorter that begins one later
        node[begins] = numbers
        keys.append(unique)
        suffixes.append(suffix)
        counts.append(np.where(unique % (vocab_size + 1) == bos, 0, count))
        first_of_length.append(first_of_length[-1] + len(unique))
        if context == "line":
            begins_in_line[begins] = words != eos  # no n-gram reaches over a line's end
    trie = Trie(order, vocab_size, np.concatenate(keys), np.concatenate(suffixes), np.asarray(first_of_length))
    count = np.concatenate(counts)
    total = np.bincount(trie.parent(slice(1, len(count))), weights=count[1:], minlength=len(count)).astype(np.int64)
    return Counts(trie, count, total)


def pad_text(ids: Ids, order: int, bos: int, eos: int, context: Context) -> Ints:
    """The text with N-1 <s> before each line, or before the whole of it where context flows across lines."""
    starts = np.zeros(1, dtype=np.int64)
    if context == "line":
        starts = np.concatenate([starts, np.flatnonzero(np.asarray(ids[:-1]) == eos) + 1])
    return np.insert(np.asarray(ids, dtype=np.int64), np.repeat(starts, order - 1), bos)
