"""The documents of a corpus in batches of units, lines or records, each of which is written or left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.text.batches import cut_at_lines, line_ends
from chainrule.text.corpus import Corpus
from chainrule.text.files import form_of, gathered, whole_lines
from chainrule.text.records import Record

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

NOTHING = np.zeros(0, np.int64)
_LONGEST_PARAGRAPH = 1 << 26  # bytes; a longer one is scored in parts


@dataclass(frozen=True)
class Batch:
    """Documents of one file, in units: the lines of a text file, or records."""

    block: bytes
    """Their text, in whole lines."""
    lines_U: Ints
    """The number of lines of each unit."""
    document_U: Ints
    """The number of the document that each unit belongs to; -1 for a blank line."""
    source: bytes
    """The bytes of the units in the file: the block for a text file, none for a parquet file."""
    ends_U: Ints
    """The place in the source where each unit ends."""
    path: Path | None = None
    """The file of the records; None for text."""
    numbers_U: Ints = field(default_factory=lambda: NOTHING)
    """The line or row of each record, from 1."""
    is_first: bool = False
    """True if a text file begins here."""

    @property
    def documents(self) -> int:
        """The number of documents."""
        return int(self.document_U.max(initial=-1)) + 1


def text_batches(blocks: Iterable[bytes], size: int, paragraphs: bool) -> Iterator[Batch]:
    """Yield the lines or paragraphs of a text in batches of about `size` bytes."""
    is_first = True
    for block in whole_lines(blocks, _LONGEST_PARAGRAPH, b"\n\n") if paragraphs else blocks:
        for piece in [block] if paragraphs else cut_at_lines(block, size):
            piece = piece if piece.endswith(b"\n") else piece + b"\n"
            ends = line_ends(piece)
            is_blank = _blank_lines(piece, ends)
            begins = ~is_blank
            if paragraphs:  # a line begins a document if the one before is blank
                begins[1:] &= is_blank[:-1]
            document = np.where(is_blank, -1, np.cumsum(begins) - 1)
            yield Batch(piece, np.ones(len(ends), np.int64), document, piece, ends, is_first=is_first)
            is_first = False


def _blank_lines(block: bytes, ends: Ints) -> Bools:
    """Return True for each line of white space only."""
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    is_blank: Bools = ends - starts == 1
    first = np.frombuffer(block, np.uint8)[starts]
    for line in np.flatnonzero(((first == ord(" ")) | (first == ord("\t"))) & ~is_blank).tolist():
        is_blank[line] = block[starts[line] : ends[line]].isspace()
    return is_blank


def _record_batch(path: Path, records: list[Record]) -> Batch:
    return Batch(
        b"".join(record.text for record in records),
        np.asarray([record.text.count(b"\n") for record in records]),
        np.arange(len(records)),
        b"".join(record.source for record in records),
        np.cumsum([len(record.source) for record in records]),
        path,
        np.asarray([record.number for record in records]),
    )


def batches(corpus: Corpus, size: int, paragraphs: bool) -> Iterator[Batch]:
    """Yield the documents of a corpus in batches of about `size` bytes."""
    corpus.cleaning.begin()
    if corpus.texts:
        yield from text_batches(corpus.texts, size, paragraphs)
    for path in corpus.paths:
        if form_of(path) == "text":
            yield from text_batches(corpus.text_blocks(path), size, paragraphs)
        else:
            for some in gathered(corpus.records(path), size, lambda record: len(record.text)):
                yield _record_batch(path, some)
