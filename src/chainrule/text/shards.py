"""A corpus in shards for workers: ranges of large text files, and other files as a whole.

A range of a file has the lines that begin in it, so that the lines of all shards are those of the corpus, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from chainrule.errors import CorpusError
from chainrule.text.corpus import Corpus
from chainrule.text.files import BLOCK_SIZE, Cleaning, clean_blocks, form_of
from chainrule.text.records import Fields

SHARD_BYTES = 1 << 25


@dataclass(frozen=True)
class Shard:
    """A file of a corpus, or the lines of it that begin in a range of bytes."""

    path: Path
    fields: Fields
    cleaning: Cleaning
    first: int = 0
    last: int | None = None
    """The byte after the range; None for the end of the file, which may be compressed."""

    def blocks(self) -> Iterator[bytes]:
        """Yield clean blocks of whole lines; the last line of a file may lack its LF."""
        if self.first == 0 and self.last is None:
            return Corpus(paths=(self.path,), fields=self.fields, cleaning=self.cleaning).blocks()
        blocks = clean_blocks(self._pieces(), str(self.path), self.cleaning, is_start=self.first == 0)
        return map(self.cleaning.masked, blocks)

    def _pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the lines that begin in the range."""
        try:
            with self.path.open("rb") as file:
                if self.first > 0:
                    file.seek(self.first - 1)
                    file.readline()  # the rest of a line that began before the range, or only its LF
                while self.last is None or file.tell() < self.last:
                    most = BLOCK_SIZE if self.last is None else min(BLOCK_SIZE, self.last - file.tell())
                    piece = file.read(most)
                    if not piece:
                        break
                    if self.last is not None and file.tell() >= self.last and not piece.endswith(b"\n"):
                        piece += file.readline()
                    yield piece
        except OSError as error:
            raise CorpusError(f"{self.path}: {error.strerror or error}") from error


def shards_of(corpus: Corpus, size: int | None = SHARD_BYTES) -> list[Shard]:
    """Return the shards of a corpus of files; ranges have about `size` bytes, None leaves all files whole.

    A compressed file or one of records cannot be read from the middle: it is one shard.
    """
    shards: list[Shard] = []
    for path in corpus.paths:
        cleaning = Cleaning(corpus.cleaning.errors, corpus.cleaning.mask)
        path = path.absolute()
        is_plain = form_of(path) == "text" and path.suffix.lower() not in (".gz", ".zst")
        total = path.stat().st_size
        if size is None or not is_plain or total <= size:
            shards.append(Shard(path, corpus.fields, cleaning))
            continue
        edges = [*range(0, total, size), None]
        shards += [Shard(path, corpus.fields, cleaning, int(first or 0), last) for first, last in pairwise(edges)]
    return shards
