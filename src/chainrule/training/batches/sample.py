"""A sample of a text, for validations that would take too long on all of it."""

from __future__ import annotations

import numpy as np

from chainrule.contract.lm import Context
from chainrule.tokens.base import line_bounds

STRETCHES = 16
"""The number of stretches that make up the sample of a text whose context flows from line to line."""


def sample_of(ids: np.ndarray, eos: int, context: Context, tokens: int) -> np.ndarray:
    """About `tokens` tokens, evenly spread over the text: whole lines or, of a stream, a few long stretches.

    >>> ids = np.array([5, 0, 6, 0, 7, 0, 8, 0])
    >>> sample_of(ids, 0, "line", 4)
    array([5, 0, 7, 0])
    """
    if tokens >= len(ids):
        return ids
    if context == "stream":
        length = max(1, tokens // STRETCHES)
        starts = np.linspace(0, len(ids) - length, STRETCHES).astype(np.int64)
        return np.concatenate([ids[start : start + length] for start in starts])
    starts, ends = line_bounds(ids, eos)
    every = max(1, round(len(ids) / tokens))
    return np.concatenate([ids[start:end] for start, end in zip(starts[::every], ends[::every], strict=True)])
