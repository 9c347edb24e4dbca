"""Counting by workers that share files: windows shuffled by context, and the n-grams of each partition counted.

    stretch of text   -> a file of its windows, sorted by part                  (one task for each stretch)
    partition         -> the n-grams of some parts in sequence, in a file       (one task for each partition)
    partition         -> its place in the arrays of each level                  (one task for each partition)

The windows, the parts, the counting of a part and the last round are those of `count.py`, so the levels are the
same. No task writes what another one reads in the same round, and each writes the same bytes if it is done twice.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from chainrule.ngram.estimate.count import Block, Chunk, Ngrams, Parts, Windows, count_part, joined
from chainrule.ngram.workspace import Workspace
from chainrule.system.disk import scratch_file_at
from chainrule.system.progress import Task

PARTITION_BYTES = 1 << 25
"""The windows of a partition: with the n-grams in them, what one task has in memory."""

_WIDTH = np.dtype(np.uint32).itemsize


def count_in_files(
    text: Windows, parts: Parts, order: int, workspace: Workspace, task: Task, *, folder: Path
) -> list[list[Chunk]]:
    """Shuffle the windows of the text into files, and count one partition of its parts after the other."""
    shuffle = partial(_shuffle, text=text, parts=parts, order=order, folder=folder)
    files = [file for _, file in workspace.in_order(shuffle, text.stretches())]
    wanted = -(-sum(file.stat().st_size for file in files) // PARTITION_BYTES)
    edges = np.linspace(0, parts.number, min(max(wanted, 1), parts.number) + 1).astype(int).tolist()
    found, count = [], partial(_count, parts=parts, order=order, files=files, folder=folder)
    for (first, last), chunks in workspace.in_order(count, pairwise(edges)):
        found.append(chunks)
        task.advance(len(text.ids) * (last - first) / parts.number)
    for file in files:
        file.unlink()
    return [list(level) for level in zip(*found, strict=True)]


def _shuffle(place: int, text: Windows, parts: Parts, order: int, folder: Path) -> Path:
    """Write the windows of a stretch to a file, sorted by part; where each part begins stands before them."""
    block = text.windows(place, order=order, parts=parts, first=0, many=parts.number)
    path = folder / f"windows-{place}"
    with scratch_file_at(path) as file:
        block.begin.tofile(file)
        block.windows.tofile(file)
    return path


def _read_block(path: Path, first: int, last: int, parts: int, order: int) -> Block:
    """Return the windows of the parts first to last - 1 in a file of windows."""
    begin = np.fromfile(path, np.int64, last - first + 1, offset=8 * first)
    start = 8 * (parts + 1) + int(begin[0]) * order * _WIDTH
    rows = int(begin[-1] - begin[0])
    windows = np.fromfile(path, np.uint32, rows * order, offset=start).reshape(rows, order)
    return Block(windows, begin - begin[0])


def _count(partition: tuple[int, int], parts: Parts, order: int, files: list[Path], folder: Path) -> list[Chunk]:
    """Count the parts of a partition, one after the other, and write their n-grams to a file."""
    first, last = partition
    blocks = [_read_block(file, first, last, parts.number, order) for file in files]
    counted = [count_part(part, blocks, parts.bits) for part in range(last - first)]
    path, chunks, before = folder / f"ngrams-{first}", [], 0
    with scratch_file_at(path) as file:
        for parts_of_level in zip(*counted, strict=True):
            ngrams = joined(parts_of_level)
            for array in ngrams:
                array.astype(np.uint32).tofile(file)
            size = len(ngrams[0])
            chunks.append(Chunk.of(ngrams, partial(_read_ngrams, path, before, size)))
            before += 3 * size
    return chunks


def _read_ngrams(path: Path, before: int, size: int) -> Ngrams:
    """Read the last words, counts and numbers of children of n-grams after the first `before` numbers of a file."""
    word, count, children = np.fromfile(path, np.uint32, 3 * size, offset=before * _WIDTH).reshape(3, size)
    return word, count, children
