"""Guesses at the next words, for another model to check: the call of the kernel that reads and guesses."""

from __future__ import annotations

import numpy as np

from chainrule.ngram.infinite.draft_kernels import draft_words
from chainrule.ngram.infinite.suffixes import Ints
from chainrule.ngram.infinite.walk import MOST_LEVELS, Walker


class AnyLengthDrafter:
    """Guesses with the contexts of a training text."""

    def __init__(self, walker: Walker) -> None:
        suffixes = walker.suffixes
        self._arrays = suffixes.follower, suffixes.places, suffixes.starts, np.asarray(walker.start), walker.resets
        self._ahead, self._longer = np.zeros((2, MOST_LEVELS, 3), np.int64)

    def start(self) -> tuple[Ints, int]:
        """The levels after <s>, and how many there are."""
        start, levels = self._arrays[3], np.zeros((MOST_LEVELS, 3), np.int64)
        levels[: len(start)] = start
        return levels, len(start)

    def after(self, levels: Ints, depth: int, ids: Ints, count: int) -> tuple[Ints, int, Ints]:
        """The levels after the ids, their number, and `count` tokens that may follow."""
        levels, tokens = levels.copy(), np.zeros(count, np.int64)
        depth = draft_words(ids, levels, depth, self._ahead, self._longer, *self._arrays, tokens)
        return levels, depth, tokens
