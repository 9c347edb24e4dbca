"""The commonest token after each short context of a text, as a table that another device can keep."""

from __future__ import annotations

import numpy as np

from chainrule.contract.capabilities import Likeliest
from chainrule.ngram.infinite.suffixes import Suffixes
from chainrule.ngram.sampling.likeliest import MOST_CONTEXTS, first_best


def likeliest_tokens(suffixes: Suffixes, bos: int, boundary: int, longest: int) -> list[Likeliest]:
    """The contexts of 1 to `longest` tokens, with the commonest of the tokens that followed.

    A context does not go back beyond a token `boundary`, which stands for <s>.
    """
    token_of_rank = np.repeat(np.arange(suffixes.vocab_size), np.diff(suffixes.starts))
    follower = suffixes.follower.astype(np.int64)
    rank, is_whole = np.arange(len(suffixes)), np.ones(len(suffixes), dtype=bool)
    is_new = np.zeros(len(suffixes), dtype=bool)
    is_new[:1] = True
    tokens, found, total = list[np.ndarray](), list[Likeliest](), 0
    for _ in range(longest):
        token = token_of_rank[rank]
        is_new[1:] |= token[1:] != token[:-1]
        total += int(is_new.sum())
        if total > MOST_CONTEXTS:
            break
        tokens.insert(0, np.where(token == boundary, bos, token))
        # contexts of which the last tokens are the same have neighbouring ranks
        group = np.cumsum(is_new) - 1
        pairs, counts = np.unique(group * suffixes.vocab_size + follower, return_counts=True)
        group_of_pair = pairs // suffixes.vocab_size
        best = first_best(counts, np.flatnonzero(np.diff(group_of_pair, prepend=-1)))
        first = np.flatnonzero(is_new)
        whole = is_whole[first]
        contexts = np.stack([column[first] for column in tokens], axis=1)
        found.append(Likeliest(contexts[whole], (pairs[best] % suffixes.vocab_size)[whole]))
        is_whole &= token != boundary
        rank = suffixes.places[rank].astype(np.int64)  # the rank of the context without its last token
    return found
