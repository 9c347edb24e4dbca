"""The words of a vocabulary within two edits of a typed one: insertions, deletions, substitutions, transpositions.

Two words are within two edits only if deleting at most two letters of each makes them equal (the symmetric delete
method). So every word is filed under what is left of it after up to two deletions; of the words filed under the
same as the typed one, those within two edits remain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_EDITS = 2
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication by it loses nothing
_LONGEST = 40  # letters of words that are filed


def edit_distance(one: str, other: str) -> int:
    """The fewest edits of neighbouring letters, none touched twice, from one word to the other: the reference."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) + 1):
        for j in range(len(other) + 1):
            ways = [i + j] if i == 0 or j == 0 else []
            if i and j:
                ways += [
                    table[i - 1][j] + 1,
                    table[i][j - 1] + 1,
                    table[i - 1][j - 1] + (one[i - 1] != other[j - 1]),
                ]
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                ways.append(table[i - 2][j - 2] + 1)
            table[i][j] = min(ways)
    return table[-1][-1]


class Neighbours:
    """Words filed under what is left of them after up to two deletions."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        lengths = np.asarray([len(word) for word in words], dtype=np.int64)
        self._lengths = lengths
        self._letters = np.zeros((len(words), min(_LONGEST, int(lengths.max(initial=0)))), dtype=np.uint32)
        keys, places = [], []
        for length in range(1, self._letters.shape[1] + 1):
            rows = np.flatnonzero(lengths == length)
            if len(rows):
                letters = _letters([words[row] for row in rows.tolist()], length)
                self._letters[rows, :length] = letters
                filed = _keys(letters)
                keys.append(filed.ravel())
                places.append(np.tile(rows.astype(np.int32), len(filed)))
        every = np.concatenate(keys) if keys else np.empty(0, np.uint64)
        order = np.argsort(every, kind="stable")
        self._keys = every[order]
        self._places = np.concatenate(places)[order] if places else np.empty(0, np.int32)

    def near(self, typed: str, most: int = MOST_EDITS) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the words within `most` edits of a word, ascending, and their distances."""
        if not 0 < len(typed) <= _LONGEST:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        letters = _letters([typed], len(typed))
        keys = np.unique(_keys(letters, most))
        firsts, lasts = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, side="right")
        found = [self._places[first:last] for first, last in zip(firsts, lasts, strict=True) if last > first]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        near = np.unique(np.concatenate(found)).astype(np.int64)
        near = near[np.abs(self._lengths[near] - len(typed)) <= most]
        distances = self._distances(letters[0], near, most)
        return near[distances <= most], distances[distances <= most]

    def _distances(self, typed: np.ndarray, rows: np.ndarray, most: int) -> np.ndarray:
        """The distances of some words; most + 1 stands for all beyond `most`."""
        lengths, size = self._lengths[rows], len(typed)
        longest = int(lengths.max(initial=0))
        words = self._letters[rows, :longest]
        far = most + 1
        table = np.full((longest + 1, size + 1, len(rows)), far, dtype=np.int8)
        for i in range(longest + 1):
            for j in range(max(0, i - most), min(size, i + most) + 1):
                if i == 0 or j == 0:
                    table[i, j] = min(i + j, far)
                    continue
                best = table[i - 1, j - 1] + (words[:, i - 1] != typed[j - 1])
                np.minimum(best, np.minimum(table[i - 1, j], table[i, j - 1]) + 1, out=best)
                if i > 1 and j > 1:
                    crossed = (words[:, i - 1] == typed[j - 2]) & (words[:, i - 2] == typed[j - 1])
                    np.minimum(best, np.where(crossed, table[i - 2, j - 2] + 1, far), out=best)
                np.minimum(best, far, out=table[i, j])
        distances: np.ndarray = table[lengths, size, np.arange(len(rows))].astype(np.int64)
        return distances


def _letters(words: Sequence[str], length: int) -> np.ndarray:
    """The code points of words of one length, [N, length]."""
    return np.frombuffer("".join(words).encode("utf-32-le"), dtype=np.uint32).reshape(len(words), length)


def _keys(letters: np.ndarray, most: int = MOST_EDITS) -> np.ndarray:
    """A number for what is left of each word of one length after every choice of up to `most` deletions, [C, N]."""
    # left[k]: the numbers of what is left of the letters read so far after k deletions
    left = [np.zeros((1, len(letters)), dtype=np.uint64)] + [np.empty((0, len(letters)), dtype=np.uint64)] * most
    for column in letters.T.astype(np.uint64):
        read = [_mixed(some + column + np.uint64(1)) for some in left]
        left = [read[0]] + [np.concatenate([read[k], left[k - 1]]) for k in range(1, most + 1)]
    return np.concatenate(left)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    mixed = numbers * _BASE
    return mixed ^ (mixed >> np.uint64(29))
