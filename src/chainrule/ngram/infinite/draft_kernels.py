"""Numba kernels that guess the next words: what followed the longest of a text's last words in training text."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.infinite.kernels import distinct, read
from chainrule.ngram.sampling.compiled import ZERO, inner, kernel

_LOOKED_AT = 64
"""The most occurrences of a context of which the commonest next word is found."""


@kernel
def draft_words(
    ids: Any, levels: Any, depth: int, ahead: Any, longer: Any, follower: Any, places: Any, starts: Any, start: Any,
    resets: Any, tokens: Any,
) -> Any:  # fmt: skip
    """Read the ids into the levels, then fill `tokens` with guesses; returns the number of levels after the ids.

    `ahead` and `longer` are room for levels.
    """
    for i in range(len(ids)):
        depth = _move_on(levels, depth, np.int64(ids[i]), places, starts, start, resets, longer)
    for k in range(depth):
        for c in range(3):
            ahead[k, c] = levels[k, c]
    many = np.int64(depth)
    for t in range(len(tokens)):
        tokens[t] = _commonest(follower, ahead[many - 1, 0], ahead[many - 1, 1])
        many = _move_on(ahead, many, tokens[t], places, starts, start, resets, longer)
    return depth


@inner
def _move_on(
    levels: Any, depth: int, token: int, places: Any, starts: Any, start: Any, resets: Any, longer: Any
) -> Any:
    """Change the levels to those after a token; returns their number."""
    if resets[token]:
        for k in range(len(start)):
            for c in range(3):
                levels[k, c] = start[k, c]
        return np.int64(len(start))
    read(levels, depth, token, places, starts, longer)
    return np.int64(distinct(longer, depth, levels))


@inner
def _commonest(follower: Any, first: int, last: int) -> Any:
    """The commonest word of a range, of which a part is looked at if it is long; the first among equals."""
    step = max((last - first) // _LOOKED_AT, 1)
    found, times = np.int64(follower[first]), ZERO
    for r in range(first, last, step):
        count = ZERO
        for s in range(r, last, step):
            count += follower[s] == follower[r]
        if count > times:
            found, times = np.int64(follower[r]), count
    return found
