"""Counting by workers that share files: windows shuffled by context, and the n-grams of each partition counted.

    stretch of text   -> a file of its windows, sorted by part                  (one task for each stretch)
    partition         -> the n-grams of some parts in sequence, in a file       (one task for each partition)
    partition         -> its place in the arrays of each level                  (one task for each partition)

The windows, the parts and the counting of a part are those of `count.py`, so the levels are the same. No task
writes what another one reads in the same round, and each writes the same bytes if it is done twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.lm import Context
from chainrule.ngram.estimate.count import (
    Block,
    Ids,
    Index,
    Ints,
    Parts,
    Windows,
    count_part,
    index_type,
    linked,
    unigrams,
)
from chainrule.ngram.estimate.levels import Counts, Level
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.workspace import Workspace
from chainrule.system.disk import scratch_file_at, scratch_folder
from chainrule.system.progress import SILENT, Progress

PARTITION_BYTES = 1 << 25
"""The windows of a partition: with the n-grams in them, what one task has in memory."""
STRETCH = 1 << 21
"""The tokens of a stretch."""

_WIDTH = np.dtype(np.uint32).itemsize


def count_in_partitions(
    ids: Ids,
    order: int,
    vocab_size: int,
    bos: int,
    eos: int,
    context: Context,
    workspace: Workspace,
    progress: Progress = SILENT,
    *,
    partition_bytes: int = PARTITION_BYTES,
    stretch: int = STRETCH,
) -> Counts:
    """The counts of every n-gram, as `count.count_by_sorting` has them, by the workers of an executor."""
    index = index_type(2 * len(ids) + 1, vocab_size)
    with scratch_folder(workspace.folder) as folder, progress.task(f"counting {order}-grams") as task:
        code = codes_of_words(vocab_size)
        text = Windows(ids, code, bos, eos if context == "line" else -1, stretch)
        words = _frequencies(text, vocab_size, workspace)
        counts = Counts(vocab_size, bos, [unigrams(words, index)])
        if order == 1:
            return counts
        words[bos] = words[eos] if context == "line" else 1
        parts = Parts.of(words, code)
        shuffle = _Shuffle(text, parts, order, folder)
        files = [file for _, file in workspace.in_order(shuffle, text.stretches())]
        size = sum(file.stat().st_size for file in files)
        partitions = _partitions(parts.number, -(-size // partition_bytes))
        found = [one for _, one in workspace.in_order(_Count(parts, order, files, folder), partitions)]
        for file in files:
            file.unlink()
        _join(counts, found, index, workspace)
        task.advance(1)
    with progress.task("linking"):
        for n in range(2, order + 1):
            counts.levels[n - 1].suffix = linked(counts.levels[:n], index, workspace)
    return counts


def _partitions(parts: int, wanted: int) -> list[tuple[int, int]]:
    """The parts in so many partitions, each as (first, one past the last); parts are alike in size."""
    edges = np.linspace(0, parts, min(max(wanted, 1), parts) + 1).astype(int).tolist()
    return list(pairwise(edges))


def _frequencies(text: Windows, vocab_size: int, workspace: Workspace) -> Ints:
    """How often each word occurs."""

    def count(place: int) -> Ints:
        return np.bincount(text.ids[place : place + text.at_once], minlength=vocab_size)

    total = np.zeros(vocab_size, dtype=np.int64)
    for _, found in workspace.executor.in_order(count, text.stretches()):
        total += found
    return total


@dataclass(frozen=True)
class _Shuffle:
    """Writes the windows of a stretch to a file, sorted by part; where each part begins stands before them."""

    text: Windows
    parts: Parts
    order: int
    folder: Path

    def __call__(self, place: int) -> Path:
        block = self.text.windows(place, order=self.order, parts=self.parts, first=0, many=self.parts.number)
        path = self.folder / f"windows-{place}"
        with scratch_file_at(path) as file:
            block.begin.tofile(file)
            block.windows.tofile(file)
        return path


def _read_block(path: Path, first: int, last: int, parts: int, order: int) -> Block:
    """The windows of the parts first to last - 1 in a file of windows."""
    begin = np.fromfile(path, np.int64, last - first + 1, offset=8 * first)
    start = 8 * (parts + 1) + int(begin[0]) * order * _WIDTH
    rows = int(begin[-1] - begin[0])
    windows = np.fromfile(path, np.uint32, rows * order, offset=start).reshape(rows, order)
    return Block(windows, begin - begin[0])


@dataclass(frozen=True)
class _Found:
    """The n-grams of a partition, in a file."""

    path: Path
    sizes: list[int]
    """How many n-grams there are of each length."""
    largest: list[int]
    """The largest count of each length."""
    words: NDArray[np.uint32]
    """The first words of its n-grams."""
    children: NDArray[np.uint32]
    """How many bigrams of this partition begin with each of them."""

    def level(self, n: int) -> NDArray[np.uint32]:
        """Last words, counts and numbers of children of its n-grams of n words, as [3, size]."""
        before = sum(self.sizes[1 : n - 1])
        size = self.sizes[n - 1]
        return np.fromfile(self.path, np.uint32, 3 * size, offset=3 * before * _WIDTH).reshape(3, size)


@dataclass(frozen=True)
class _Count:
    """Counts the parts of a partition, one after the other."""

    parts: Parts
    order: int
    files: list[Path]
    folder: Path

    def __call__(self, partition: tuple[int, int]) -> _Found:
        first, last = partition
        blocks = [_read_block(file, first, last, self.parts.number, self.order) for file in self.files]
        counted = [count_part(part, blocks, self.parts.bits) for part in range(last - first)]
        levels = [np.concatenate([np.stack(part[n]) for part in counted], axis=1) for n in range(self.order)]
        path = self.folder / f"ngrams-{first}"
        with scratch_file_at(path) as file:
            for level in levels[1:]:
                level.tofile(file)
        sizes = [level.shape[1] for level in levels]
        largest = [int(level[1].max(initial=0)) for level in levels]
        return _Found(path, sizes, largest, levels[0][0], levels[0][2])


def _join(counts: Counts, found: list[_Found], index: Index, workspace: Workspace) -> None:
    """Append the levels from length 2 on to `counts`: the n-grams of each partition, one after the other."""
    order = len(found[0].sizes)
    sizes = [sum(one.sizes[n] for one in found) for n in range(order)]
    begin: NDArray[Any] = workspace.empty(counts.vocab_size + 1, index)
    begin[:] = 0
    for one in found:
        np.add.at(begin[1:], one.words, one.children)  # a frequent word has several parts
    np.cumsum(begin, out=begin)
    all_words = workspace.empty(sum(sizes[1:]), np.uint32)  # as the trie packs them
    for n in range(2, order + 1):
        word, all_words = all_words[: sizes[n - 1]], all_words[sizes[n - 1] :]
        most = max(one.largest[n - 1] for one in found)
        count = workspace.empty(sizes[n - 1], np.min_scalar_type(most))
        below = workspace.empty(sizes[n - 1] + 1 if n < order else 1, index)
        below[0] = 0
        place = _Place(n, word, count, below if n < order else None)
        for _ in workspace.in_order(place, _offsets(found, n)):
            pass
        counts.levels.append(Level(word, count, begin, word))
        begin = below
    for one in found:
        one.path.unlink()


def _offsets(found: list[_Found], n: int) -> Iterator[tuple[_Found, int, int]]:
    """Each partition, and how many n-grams of n words, and of one more, stand before its own."""
    here = accumulate((one.sizes[n - 1] for one in found), initial=0)
    longer = accumulate((one.sizes[n] if n < len(one.sizes) else 0 for one in found), initial=0)
    yield from zip(found, here, longer, strict=False)


@dataclass(frozen=True)
class _Place:
    """Copies the n-grams of a partition to their place in the arrays of a level."""

    n: int
    word: NDArray[Any]
    count: NDArray[Any]
    begin: NDArray[Any] | None
    """Where the n-grams of one more word begin; None for the longest."""

    def __call__(self, piece: tuple[_Found, int, int]) -> None:
        found, at, longer = piece
        word, count, children = found.level(self.n)
        to = at + len(word)
        self.word[at:to], self.count[at:to] = word, count
        if self.begin is not None:
            self.begin[at + 1 : to + 1] = longer + np.cumsum(children, dtype=np.int64)
