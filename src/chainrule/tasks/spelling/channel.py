"""The error model: p(typed | right) as a product over edits (Kernighan, Church and Gale 1990).

    deletion       xy typed as x     del[x, y]
    insertion      x typed as xy     ins[x, y]
    substitution   y typed as x      sub[y, x]
    transposition  xy typed as yx    trans[x, y]

Each is a probability given that a word is misspelled; letters that are typed correctly cost nothing. If several
sequences of edits lead from the right word to the typed one, the most likely counts. Letters are the lower-case
ones of the Latin alphabet; all others share their costs, and the beginning of a word is another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import TypeAlias

import numpy as np

from chainrule.errors import CorpusError
from chainrule.text.files import Cleaning, clean_blocks, lines_in, raw_pieces

LETTERS = "abcdefghijklmnopqrstuvwxyz'-"
OTHER, START = len(LETTERS), len(LETTERS) + 1
SYMBOLS = len(LETTERS) + 2
APOSTROPHE = LETTERS.index("'")

Edit: TypeAlias = tuple[str, int, int]
"""The array of an edit, and its two letters."""
Way: TypeAlias = tuple[float, tuple[Edit, ...]]
"""A way to type a word: its cost and its edits."""

_VOWELS = "aeiouy"
_ALIKE = ("ck", "cs", "sz", "fv", "mn", "gj", "td", "bp", "kq", "sx", "rl", "wu", "ct", "gd", "hk", "vw")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_RANK = {letter: number for number, letter in enumerate(LETTERS)}


@dataclass(frozen=True)
class Channel:
    """-ln of the probability of each edit, by its two letters; arrays [SYMBOLS, SYMBOLS]."""

    delete: np.ndarray
    """[x, y]: y is left out after x."""
    insert: np.ndarray
    """[x, y]: a wrong y is typed after x."""
    substitute: np.ndarray
    """[y, x]: x is typed for y, if they are not the same letter."""
    transpose: np.ndarray
    """[x, y]: yx is typed for xy."""

    @classmethod
    def default(cls) -> Channel:
        """Return costs for human misspellings: letters left out or doubled, vowels and similar sounds confused."""
        vowels = [_RANK[vowel] for vowel in _VOWELS]
        delete = np.full((SYMBOLS, SYMBOLS), 3.4)
        delete[:, vowels] = 2.0
        delete[:, _RANK["h"]] = 1.0
        np.fill_diagonal(delete, 0.7)  # one of a double letter
        insert = np.full((SYMBOLS, SYMBOLS), 6.3)
        np.fill_diagonal(insert, 1.4)  # a letter doubled
        insert[:, vowels] -= 0.8
        substitute = np.full((SYMBOLS, SYMBOLS), 7.0)
        for row in _ROWS:
            for one, other in pairwise(row):
                _both(substitute, one, other, 6.0)
        for alike in _ALIKE:
            _both(substitute, alike[0], alike[1], 5.0)
        for one in _VOWELS:
            for other in _VOWELS:
                _both(substitute, one, other, 4.6)
        substitute[APOSTROPHE, APOSTROPHE] = 0.0  # ’ for '
        transpose = np.full((SYMBOLS, SYMBOLS), 3.1)
        delete[START] += 2.3  # the first letter is seldom wrong
        insert[START] += 2.3
        return cls(delete, insert, substitute, transpose)

    @classmethod
    def learned(cls, pairs: Iterable[tuple[str, str]]) -> Channel:
        """Count the edits from the right to the typed words of pairs (typed, right), with add-one smoothing.

        p = (edits + 1) / (occurrences of the letters in the right words + SYMBOLS)
        """
        # counts of edits and of the letters that they apply to; edits are found by the default costs
        costs, learned_from = cls.default(), 0
        letters, bigrams = np.zeros((SYMBOLS, 1)), np.zeros((SYMBOLS, SYMBOLS))
        occurrences = {"delete": bigrams, "insert": letters, "substitute": letters, "transpose": bigrams}
        edits = {name: np.ones((SYMBOLS, SYMBOLS)) for name in occurrences}
        for typed, right in pairs:
            if typed == right:
                continue
            learned_from += 1
            codes = [START, *encoded(right)]
            np.add.at(letters, codes, 1)
            np.add.at(bigrams, (codes[:-1], codes[1:]), 1)
            for name, one, other in costs.edits(typed, right):
                edits[name][one, other] += 1
        if not learned_from:
            raise CorpusError("there are no misspelled words to learn errors from")
        learned = {name: -np.log(edits[name] / (count + SYMBOLS)) for name, count in occurrences.items()}
        learned["substitute"][APOSTROPHE, APOSTROPHE] = 0.0
        return cls(**learned)

    def cost(self, typed: str, right: str) -> float:
        """Return -ln p(typed | right), letter by letter: the reference for `Lexicon.costs`."""
        return self._way(typed.lower(), right.lower())[0]

    def edits(self, typed: str, right: str) -> list[Edit]:
        """Return the most likely edits from the right to the typed word: the array and the two letters of each."""
        return [*self._way(typed.lower(), right.lower())[1]]

    def _way(self, typed: str, right: str) -> Way:
        """Return the most likely way to type a word for the right one: its cost and its edits."""
        t, r = encoded(typed), [START, *encoded(right)]
        best: dict[tuple[int, int], Way] = {}  # of typing the first j letters for the first i of the right word
        for i, j in product(range(len(r)), range(len(typed) + 1)):
            ways: list[Way] = []
            if i and j:
                is_right, before = right[i - 1] == typed[j - 1], best[i - 1, j - 1]
                ways.append(before if is_right else self._edited(before, "substitute", r[i], t[j - 1]))
            if i:
                ways.append(self._edited(best[i - 1, j], "delete", r[i - 1], r[i]))
            if j:
                ways.append(self._edited(best[i, j - 1], "insert", r[i], t[j - 1]))
            if i > 1 and j > 1 and right[i - 1] == typed[j - 2] and right[i - 2] == typed[j - 1]:
                ways.append(self._edited(best[i - 2, j - 2], "transpose", r[i - 1], r[i]))
            best[i, j] = min(ways, key=lambda way: way[0], default=(0.0, ()))
        return best[len(right), len(typed)]

    def _edited(self, before: Way, name: str, one: int, other: int) -> Way:
        cost, edits = before
        return cost + float(getattr(self, name)[one, other]), (*edits, (name, one, other))


def encoded(word: str) -> list[int]:
    """Return the letters of a word as indices of a channel's arrays."""
    return [_RANK.get(letter, OTHER) for letter in word.lower().replace("’", "'")]


def _both(table: np.ndarray, one: str, other: str, cost: float) -> None:
    table[_RANK[one], _RANK[other]] = table[_RANK[other], _RANK[one]] = cost


def read_misspellings(path: str | Path) -> list[tuple[str, str]]:
    """Read pairs (typed, right) of a file whose lines are "typed TAB right" or "right: typed typed ..."."""
    pairs: list[tuple[str, str]] = []
    blocks = clean_blocks(raw_pieces(Path(path), str(path)), str(path), Cleaning())
    for line, source in enumerate((line.decode() for line in lines_in(blocks)), 1):
        if not source.strip():
            continue
        typed, tab, right = source.partition("\t")
        if tab and typed.strip() and right.strip():
            pairs.append((typed.strip(), right.strip()))
            continue
        right, colon, typed = source.partition(":")
        if tab or not colon or not right.strip() or not typed.split():
            form = "typed TAB right, or right: typed typed ..."
            raise CorpusError(f"{path}: line {line}: expected {form}, found {source[:40]!r}")
        pairs.extend((word, right.strip()) for word in typed.split())
    if not pairs:
        raise CorpusError(f"{path}: there are no misspelled words in it")
    return pairs
