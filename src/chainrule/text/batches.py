"""The records of a corpus in batches: lines of text, or records of jsonl, CSV and parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.text.corpus import Corpus
from chainrule.text.files import form_of, gathered
from chainrule.text.records import Record


@dataclass(frozen=True)
class RecordBatch:
    """Consecutive records of one file."""

    file: str
    """The name of the file; empty for a text in memory."""
    labels: Sequence[int | str]
    """The id of each record, or the number of its line or row."""
    block: bytes
    """The text of all of them, in whole lines."""
    ends: np.ndarray
    """The place in the block where each record ends."""
    lines: np.ndarray
    """The number of lines of each record."""
    starts: np.ndarray
    """The records that begin a new context; the others continue the context of the one before them."""
    independent: bool
    """True if every record begins a new context."""

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, index: int) -> str:
        """Return the text of a record, without its last line end."""
        start = int(self.ends[index - 1]) if index else 0
        return self.block[start : int(self.ends[index])].removesuffix(b"\n").decode()


def record_batches(corpus: Corpus, size: int, *, per_line: bool = False) -> Iterator[RecordBatch]:
    """Yield the records of a corpus in batches of about `size` bytes.

    The records of a text file are its lines. With `per_line`, each line of other files is a record too, labelled by
    the record and the number of the line in it: "7:2".
    """
    corpus.cleaning.begin()
    if corpus.texts:
        yield from batches_of_text("", iter(corpus.texts), size)
    for path in corpus.paths:
        name = corpus.name_of(path)
        if form_of(path) == "text":
            yield from batches_of_text(name, corpus.text_blocks(path), size)
        else:
            for records in gathered(corpus.records(path), size, lambda record: len(record.text)):
                yield _batch_of_records(name, records, per_line)


def batches_of_text(name: str, blocks: Iterator[bytes], size: int) -> Iterator[RecordBatch]:
    """Yield the lines of a text in batches of about `size` bytes."""
    number = 1
    for block in blocks:
        for piece in cut_at_lines(block, size):
            ends = line_ends(piece)
            labels = range(number, number + len(ends))
            starts = np.arange(number == 1)
            yield RecordBatch(name, labels, piece, ends, np.ones_like(ends), starts, independent=False)
            number += len(ends)


def cut_at_lines(block: bytes, size: int) -> Iterator[bytes]:
    """Cut a block after the first line end beyond each `size` bytes."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + size) + 1 or len(block)
        yield block[start:end]
        start = end


def _batch_of_records(name: str, records: list[Record], per_line: bool) -> RecordBatch:
    block = b"".join(record.text for record in records)
    lines = np.asarray([record.text.count(b"\n") for record in records])
    if per_line:
        labels = [f"{one.label}:{line}" for one in records for line in range(1, one.text.count(b"\n") + 1)]
        ends, starts = line_ends(block), np.cumsum(lines) - lines
        return RecordBatch(name, labels, block, ends, np.ones_like(ends), starts, independent=False)
    ends = np.cumsum([len(record.text) for record in records])
    every = np.arange(len(records))
    return RecordBatch(name, [one.label for one in records], block, ends, lines, every, independent=True)


def line_ends(block: bytes) -> np.ndarray:
    """Return the places after each line of a block; the last line may lack its LF."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
    return ends if block.endswith(b"\n") else np.append(ends, len(block))
