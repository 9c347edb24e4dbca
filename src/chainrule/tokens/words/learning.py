"""A word vocabulary and the ids of its text, learned in one pass.

The id of a word depends on the counts of all words, which are known only at the end. So words are numbered as they
are seen, by as many tables as there are threads. At the end the tables are merged, the words are ranked, and each
table gets an array that maps its numbers to ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from chainrule.system.parallel import at_once, worth_a_kernel
from chainrule.tokens.base import Ids
from chainrule.tokens.vocabulary import Limit, choose
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.table import Numbers, SlowTable, WordTable

NANOSECONDS = 64
"""The time per byte of text to split it into words and number or look them up in plain Python."""

_CELLS = 4  # of eight bytes, compared by NumPy; words that agree in all are rare enough to be compared in Python


@dataclass(frozen=True)
class Vocabulary:
    """A learned vocabulary; ids are those of `WordTokenizer`: 0 unknown, 2 a line end, 3 the first word."""

    size: int
    spell: Callable[[], list[bytes]]
    """A function that returns the words, most frequent first."""
    ids: list[Ids]
    """For each table, the array that maps its numbers to ids."""
    lines: int
    unknown: int
    """How many of the text's words are not in the vocabulary."""


class WordLearner:
    """A learner that numbers the words of blocks; thread-safe, and blocks may come in any order."""

    def __init__(self, splitting: Splitting) -> None:
        self._splitting = splitting
        self._slow = SlowTable(splitting)
        self._tables: list[WordTable] = []
        self._idle: list[int] = []
        self._bytes = 0
        self._lock = Lock()

    def learn(self, block: bytes) -> tuple[Numbers, int]:
        """Return the numbers of the words and line ends of a block, and the index of the table that gave them."""
        with self._lock:
            self._bytes += len(block)
            if not worth_a_kernel(self._bytes, NANOSECONDS):
                return self._slow.learn(block), 0
            if not self._idle:
                self._idle.append(len(self._tables))
                self._tables.append(WordTable(self._splitting))
            which = self._idle.pop()
        numbers = self._tables[which].learn(block)
        with self._lock:
            self._idle.append(which)
        return numbers, which + 1

    def vocabulary(self, limit: Limit) -> Vocabulary:
        """Return the words within the limit, most frequent first; no block can be learned after this."""
        words, counts = self._slow.words(), self._slow.counts()
        if not self._tables:
            return _ranked_slowly(words, counts.tolist(), limit)
        table, *others = self._tables
        into = [table.merge_words(words, counts), *(table.merge(other) for other in others)]
        into.insert(1, np.arange(len(table) + 1, dtype=np.uint32))
        return _ranked(table, into, limit)


def merged_vocabulary(
    counted: Sequence[tuple[list[bytes], NDArray[np.int64]]], limit: Limit, splitting: Splitting
) -> Vocabulary:
    """Return the vocabulary of several tables, given their words and counts; it does not depend on their number."""
    table = WordTable(splitting)
    return _ranked(table, [table.merge_words(*one) for one in counted], limit)


def _ranked(table: WordTable, into: list[Numbers], limit: Limit) -> Vocabulary:
    """Return the vocabulary of a table that others were merged into; the arrays map their numbers to its own."""
    counts = table.counts()
    known = rank(table, limit)
    ids = np.zeros(len(table) + 1, dtype=np.uint32)
    ids[1] = 2
    ids[known] = np.arange(3, 3 + len(known))
    unknown = int(counts[1:].sum() - counts[known - 1].sum())
    spell = partial(table.spelled, known)
    return Vocabulary(len(known), spell, [ids[numbers] for numbers in into], int(counts[0]), unknown)


def _ranked_slowly(words: list[bytes], counts: list[int], limit: Limit) -> Vocabulary:
    (_, *words), (lines, *counts) = words, counts
    known = choose(dict(zip(words, counts, strict=True)), limit)
    place = {word: i for i, word in enumerate(known, start=3)}
    ids = np.array([0, 2, *(place.get(word, 0) for word in words)], dtype=np.uint32)
    unknown = sum(count for word, count in zip(words, counts, strict=True) if word not in place)
    return Vocabulary(len(known), lambda: known, [ids], lines, unknown)


def rank(table: WordTable, limit: Limit) -> NDArray[np.int64]:
    """Return the numbers of the words within the limit, in the order of `choose`: by count, then alphabetically."""
    counts = table.counts()
    numbers = np.flatnonzero(counts[1:] >= limit.min_count) + 2
    # the median count, often 1, halves the words: words above it rank before the rest, so two threads can sort
    middle = np.partition(counts, len(counts) // 2)[len(counts) // 2]
    halves = [numbers[counts[numbers - 1] > middle], numbers[counts[numbers - 1] <= middle]]
    ranked = np.concatenate(at_once(partial(_in_order, table), halves))
    return ranked[: limit.keeps(len(numbers), len(counts) - 1)]


def _in_order(table: WordTable, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort words by count, then by their first eight bytes; ties by the next eight, and at last by whole words."""
    numbers = numbers[np.argsort(table.cell(numbers, 0))]
    numbers = numbers[np.argsort(-table.counts()[numbers - 1], kind="stable")]
    tied = _same(table.counts()[numbers - 1]) & _same(table.cell(numbers, 0))
    for which in range(1, _CELLS):
        places = _members(tied)
        group, cells = np.cumsum(~tied)[places], table.cell(numbers[places], which)
        order = np.lexsort((cells, group))
        numbers[places] = numbers[places[order]]
        tied[places] = _same(group) & _same(cells[order])
    places = _members(tied)
    words = dict(zip(places.tolist(), table.spelled(numbers[places]), strict=True))
    group = np.cumsum(~tied)
    numbers[places] = numbers[sorted(words, key=lambda place: (group[place], words[place]))]
    return numbers


def _same(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return True if each value equals the one before it."""
    return np.concatenate([np.zeros(1, dtype=bool), values[1:] == values[:-1]])[: len(values)]


def _members(tied: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the indices of the items that are tied with the one before or the one after."""
    return np.flatnonzero(tied | np.append(tied[1:], False)[: len(tied)])
