"""What the games share: the functions by which a game asks and reports, and the lines that it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from chainrule.errors import CorpusError

Ask: TypeAlias = Callable[[str], str | None]
"""Asks the player a question and returns the answer, or None when there are no more answers."""
Tell: TypeAlias = Callable[[str], None]
"""Tells the player what happens, a line at a time."""

GIVEN_WORDS = 2
"""The words of a line that are shown before the first guess, or that both texts of a quiz begin with."""
FEWEST_WORDS = 6
"""The words that a line of a game has at least."""
MOST_WORDS = 20


def drawn_lines(lines: Sequence[str], seed: int) -> Iterator[str]:
    """Yield the lines of enough words in random order, cut after `MOST_WORDS`.

    >>> list(drawn_lines(["too short", "the cat sat on the mat"], seed=0))
    ['the cat sat on the mat']
    """
    long = [" ".join(words[:MOST_WORDS]) for line in lines if len(words := line.split()) >= FEWEST_WORDS]
    if not long:
        raise CorpusError(f"a game needs lines of {FEWEST_WORDS} words or more, and the text has none")
    for place in np.random.default_rng(seed % 2**64).permutation(len(long)).tolist():
        yield long[place]
