"""A hash index beside the sorted n-grams: a child is found by one look instead of a search.

It makes scoring faster and a model about twice as large, so it is there on demand (`index=hash`). A slot holds 32
bits of the hash of (parent, code) and the child's number. With a seventh to a third of the slots empty, two n-grams
are taken for each other about once in 10^9 looks that should have failed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import SettingsError
from chainrule.ngram.automaton import Automaton
from chainrule.parallel import cores

_FULL = 0.7
_MOST_LEFT_OVER = 1 << 16


def slots_for(nodes: int) -> int:
    """How many slots hold so many nodes."""
    return int(nodes / _FULL) + 64


def with_index(automaton: Automaton) -> Automaton:
    """The same automaton with an index. Each thread fills a part of it; what does not fit there comes last."""
    from chainrule.ngram.kernels import fill_index

    trie = automaton.trie
    if trie.nodes >= 1 << 32:
        raise SettingsError("index=hash goes with models of less than 2^32 n-grams")
    index: NDArray[np.uint64] = np.zeros(slots_for(trie.nodes - int(trie.first_of_length[2])), dtype=np.uint64)
    arrays = tuple(np.asarray(array) for array in (trie.words, trie.base, trie.offset, trie.rest))
    edges = np.linspace(0, len(index), cores() + 1).astype(np.int64).tolist()

    def fill(edge: tuple[int, int]) -> NDArray[np.uint64]:
        left_over = np.zeros(_MOST_LEFT_OVER, dtype=np.uint64)
        over = 0
        for n in range(1, trie.order):
            nodes = (int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]))
            over += fill_index(*nodes, n, trie.table, *arrays, trie.word_bits, *edge, index, left_over[over:])
        return left_over[:over]

    with ThreadPoolExecutor(cores()) as pool:
        left_over = list(pool.map(fill, pairwise(edges)))
    for slot, entries in zip(edges[1:], left_over, strict=True):
        for entry in entries:
            while index[slot % len(index)] != 0:
                slot += 1
            index[slot % len(index)] = entry
    return replace(automaton, index=index)
