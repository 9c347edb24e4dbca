"""Distinct words, numbered in the order they were first seen, with their counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from chainrule.tokens.base import lines_of
from chainrule.tokens.words.splitting import Splitting, character_classes, split_words

Numbers = NDArray[np.uint32]

LINE_END = b"\n"
"""The line end, which is word number 1 of every table; 0 is the number of unknown words."""


_PADDING = b"\n" + bytes(8)


class SlowTable:
    """A table in plain Python: the reference for `WordTable`, and faster on short texts, as it needs no Numba."""

    def __init__(self, splitting: Splitting) -> None:
        self._splitting = splitting
        self._numbers = {LINE_END: 1}
        self._counts: Counter[int] = Counter()

    def learn(self, block: bytes) -> Numbers:
        found: list[int] = []
        for line in lines_of(block):
            words = [*split_words(line, self._splitting), LINE_END]
            found.extend(self._numbers.setdefault(word, len(self._numbers) + 1) for word in words)
        self._counts.update(found)
        return np.asarray(found, dtype=np.uint32)

    def words(self) -> list[bytes]:
        return list(self._numbers)

    def counts(self) -> NDArray[np.int64]:
        return np.asarray([self._counts[number] for number in self._numbers.values()], dtype=np.int64)


class WordTable:
    """A hash table: the arrays that the Numba kernels (kernels.py) work on."""

    def __init__(self, splitting: Splitting, words: list[bytes] | None = None) -> None:
        self._classes = character_classes(splitting)
        self._used = np.array([1, 0], dtype=np.int64)  # how many words, number 0 included; cells of the pool
        # each word's first cell in the pool, and its length in bytes
        self._words = np.zeros((0, 2), dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)
        self._pool = np.zeros(2, dtype=np.uint64)
        self._grow_slots(max(1 << 16, 1 << (2 * len(words or [])).bit_length()))
        self.put([LINE_END, *(words or [])])

    def __len__(self) -> int:
        """Return how many words there are, the line end among them."""
        return int(self._used[0]) - 1

    def learn(self, block: bytes) -> Numbers:
        """Return the numbers of the words and line ends of a block; new words get the next numbers."""
        return self._number(block, learn=True)

    def look_up(self, block: bytes) -> Numbers:
        """Return the numbers of the words and line ends of a block, 0 for words that the table lacks."""
        return self._number(block, learn=False)

    def put(self, words: list[bytes]) -> Numbers:
        """Add the given words where the table lacks them, without counting them, and return their numbers."""
        ends = np.cumsum(np.fromiter(map(len, words), dtype=np.int64, count=len(words)))
        begins = ends - np.diff(ends, prepend=0)
        return self._numbers(_cells(b"".join(words) + bytes(8)), begins, ends, learn=True)

    def find(self, block: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Numbers:
        """Return the numbers of the words at the given offsets of a block, 0 for words that the table lacks."""
        return self._numbers(_cells(block + bytes(8)), begins, ends, learn=False)

    def merge(self, other: WordTable) -> Numbers:
        """Add the words and counts of another table; returns the array that maps its numbers to those here."""
        begins, lengths = 8 * other._words[1 : len(other) + 1, 0], other._words[1 : len(other) + 1, 1]
        numbers = self._numbers(_cells(other._pool), begins, begins + lengths, learn=True)
        return self._counted(numbers, other.counts())

    def merge_words(self, words: list[bytes], counts: NDArray[np.int64]) -> Numbers:
        """Do the same for the words of a table in plain Python, or of a table in another process."""
        return self._counted(self.put(words), counts)

    def _counted(self, numbers: Numbers, counts: NDArray[np.int64]) -> Numbers:
        self._counts[numbers] += counts
        return np.concatenate([np.zeros(1, np.uint32), numbers])

    def words(self) -> list[bytes]:
        """Return the words in the order of their numbers, the line end first."""
        return [LINE_END, *self.spelled(np.arange(2, len(self) + 1))]

    def spelled(self, numbers: NDArray[np.integer]) -> list[bytes]:
        """Return the words with the given numbers."""
        from chainrule.tokens.words.kernels import spell

        out = np.empty(int(self._words[numbers, 1].sum()) + len(numbers), dtype=np.uint8)
        spell(self._pool.view(np.uint8), self._words, numbers, out)
        return out.tobytes().split(b"\n")[:-1]  # no word has a line end in it

    def counts(self) -> NDArray[np.int64]:
        """Return how often each word was seen, in the order of their numbers, the line end first."""
        return self._counts[1 : len(self) + 1]

    def cell(self, numbers: NDArray[np.integer], which: int) -> NDArray[np.uint64]:
        """Return eight bytes of each word from byte 8 * `which` on, padded with 0, as integers that sort alike."""
        firsts, lengths = self._words[numbers, 0], self._words[numbers, 1]
        there = 8 * which < lengths
        return np.where(there, self._pool[np.where(there, firsts + which, 0)], 0).byteswap()

    # -- the arrays ---------------------------------------------------------------------------------------

    def _number(self, block: bytes, *, learn: bool) -> Numbers:
        from chainrule.tokens.words.kernels import number_text

        size = len(block) if block.endswith(b"\n") else len(block) + 1
        padded = block + _PADDING  # so that eight bytes can be loaded from any offset
        data, cells = np.frombuffer(padded, dtype=np.uint8), _cells(padded)
        out = np.empty(size, dtype=np.uint32)  # every token takes a byte at least
        if learn:
            self._make_room(size)
        position = done = 0
        while position < size:
            position, done = number_text(
                data, cells, size, position, self._classes,
                self._slots, self._words, self._counts, self._pool, self._used, learn, out, done,
            )  # fmt: skip
            if position < size:
                self._grow_slots(2 * len(self._slots))
        return out[:done]

    def _numbers(
        self, cells: NDArray[np.uint64], begins: NDArray[np.int64], ends: NDArray[np.int64], *, learn: bool
    ) -> Numbers:
        """Return the numbers of the words at the given offsets, 0 for words that the table lacks unless `learn`."""
        from chainrule.tokens.words.kernels import number_given

        out, position = np.empty(len(begins), dtype=np.uint32), 0
        if learn:
            self._make_room(int((ends - begins).sum()) // 8 + len(begins))
        while True:
            arrays = self._slots, self._words, self._pool, self._used
            position = number_given(cells, begins, ends, position, *arrays, learn, out)
            if position >= len(begins):
                return out
            self._grow_slots(2 * len(self._slots))

    def _make_room(self, cells: int) -> None:
        """Make space for `cells` more cells in the pool; memory that is never written to costs nothing."""
        room = int(self._used[1]) + cells
        if room > len(self._pool):
            longer = np.empty(max(room, 2 * len(self._pool)), dtype=np.uint64)
            longer[: self._used[1]] = self._pool[: self._used[1]]
            self._pool = longer

    def _grow_slots(self, slots: int) -> None:
        """Grow the hash table to a number of slots, and fill it again.

        At most every other slot is taken, so the arrays with a row for each word are half as long.
        """
        from chainrule.tokens.words.kernels import fill

        missing = slots // 2 + 1 - len(self._counts)
        self._words = np.concatenate([self._words, np.zeros((missing, 2), dtype=np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros(missing, dtype=np.int64)])
        self._slots = np.zeros((slots, 2), dtype=np.uint64)
        fill(self._slots, _cells(self._pool), self._words, self._used[0])


def _cells(buffer: bytes | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a view of a buffer with the eight bytes from every offset on, as one integer each."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    return np.ndarray((len(data) - 7,), dtype=np.uint64, buffer=data, strides=(1,))
