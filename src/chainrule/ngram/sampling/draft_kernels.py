"""A Numba kernel that guesses how a text goes on: what most often followed the longest of its last words.

One call with few arguments for several tokens: it has to be much faster than one step of the model that checks the
guess. So backing off is left out: a guess is the likeliest of the words seen after the longest known context.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.compiled import ZERO, kernel
from chainrule.ngram.sampling.walk_kernels import code_of, find_all_ends
from chainrule.ngram.store.kernels import children_of, value_at

SLOTS = 1 << 14
"""The contexts whose likeliest word is kept: those with many words are asked for again and again."""


@kernel
def draft_words(
    words_1N: Any,
    tokens: Any,
    ends_1N: Any,
    known: Any,
    best: Any,
    likeliest: int,
    codes: Any,
    trie: Any,
    prob: Any,
) -> None:
    """Fill `tokens` with guesses after the last words, which move on with them.

    `known` and `best` keep contexts and the codes of their likeliest words; `likeliest` is the likeliest word of
    all, and `codes` has the word of each code.
    """
    order = words_1N.shape[1]
    for t in range(len(tokens)):
        find_all_ends(words_1N, trie, ends_1N)
        token = np.int64(likeliest)
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
