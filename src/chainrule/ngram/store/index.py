"""A hash index beside the sorted n-grams: a child is found by one hash table lookup instead of a search.

The index makes scoring faster and a model about twice as large, so it is optional (`index=hash`). A slot holds 32
bits of the hash of (parent, code) and the child's node number. With 30% of the slots empty, a lookup of a missing
n-gram finds the entry of another one about once in 10^9 times.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import SettingsError
from chainrule.ngram.store.automaton import Automaton
from chainrule.system.parallel import at_once, cores, stretches

_FULL = 0.7
_MOST_LEFT_OVER = 1 << 16


def slots_for(nodes: int) -> int:
    """The number of slots of an index of `nodes` nodes."""
    return int(nodes / _FULL) + 64


def with_index(automaton: Automaton) -> Automaton:
    """The automaton with a hash index.

    Each thread fills its own range of slots; entries that find no free slot there are inserted last, by one thread.
    """
    from chainrule.ngram.store.kernels import fill_index

    trie = automaton.trie
    if trie.nodes >= 1 << 32:
        raise SettingsError("index=hash goes with models of less than 2^32 n-grams")
    index: NDArray[np.uint64] = np.zeros(slots_for(trie.nodes - int(trie.first_of_length[2])), dtype=np.uint64)
    arrays = automaton.trie_arrays
    parts = stretches(len(index), cores())

    def fill(slots: tuple[int, int]) -> NDArray[np.uint64]:
        left_over = np.zeros(_MOST_LEFT_OVER, dtype=np.uint64)
        over = 0
        for n in range(1, trie.order):
            nodes = (int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]))
            over += fill_index(*nodes, n, arrays, *slots, index, left_over[over:])
        return left_over[:over]

    for (_, slot), entries in zip(parts, at_once(fill, parts), strict=True):
        for entry in entries:
            while index[slot % len(index)] != 0:
                slot += 1
            index[slot % len(index)] = entry
    return replace(automaton, index=index)
