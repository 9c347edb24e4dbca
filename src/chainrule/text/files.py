"""Files as blocks of clean text, decompressed.

A block is bytes that are valid UTF-8 and whole lines: LF is the only line end, a byte-order mark is gone, and
only the last line of a file may lack its LF. Blocks are about 4 MB, so memory does not grow with the file;
only a line longer than that makes its block longer.

The name of a file tells its form; .gz or .zst may come last:

    *.jsonl, *.ndjson, *.csv, *.tsv, *.parquet   records (records.py)
    any other                                    text
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from chainrule.errors import CorpusError, EncodingError, importing
from chainrule.text.masking import mask_variables

Item = TypeVar("Item")
EncodingErrors: TypeAlias = Literal["strict", "replace"]

BLOCK_SIZE = 4 << 20
_VALIDATE_AT_ONCE = 1 << 16  # decoding in pieces that stay in cache is 10x as fast as in one go
_REPLACEMENT = "\ufffd".encode()


@dataclass
class Cleaning:
    """The treatment of bytes that are not UTF-8, and counts of changes in the last pass over a corpus."""

    errors: EncodingErrors = "strict"
    mask: bool = False
    """True if times, numbers, hexadecimal strings and addresses are masked, as is useful for logs."""
    replaced: int = 0
    """The number of byte sequences that were not UTF-8, and were replaced by U+FFFD."""
    skipped: int = 0
    """The number of records without text."""
    noted: tuple[int, int] = (0, 0)
    """The two counts that were last shown to the user."""

    def begin(self) -> None:
        """Start a new pass: count from zero."""
        self.replaced = self.skipped = 0

    def masked(self, text: bytes) -> bytes:
        """Return the text as a model is to read it."""
        return mask_variables(text) if self.mask else text

    def valid_utf8(self, block: bytes, name: str, line: int) -> bytes:
        """Return the block if it is UTF-8; else a copy with U+FFFD for invalid bytes, or raise an EncodingError.

        The error names `name`, and counts lines from `line`, the number of the block's first line.
        """
        view, position = memoryview(block), 0
        try:
            while position < len(block):
                end = min(position + _VALIDATE_AT_ONCE, len(block))
                _, used = codecs.utf_8_decode(view[position:end], "strict", end == len(block))
                position += used
        except UnicodeDecodeError as error:
            start, stop = position + error.start, position + error.end
        else:
            return block
        if self.errors == "replace":
            mended = block.decode(errors="replace").encode()
            self.replaced += mended.count(_REPLACEMENT) - block.count(_REPLACEMENT)
            return mended
        line_start = block.rfind(b"\n", 0, start) + 1
        line += block.count(b"\n", 0, start)
        raise EncodingError(name, line, start - line_start + 1, block[start:stop])


def clean_blocks(raw: Iterable[bytes], name: str, cleaning: Cleaning, *, is_start: bool = True) -> Iterator[bytes]:
    """Yield clean blocks of whole lines from the raw pieces of one text; errors name it `name`.

    A byte-order mark is removed at the start of a file only.
    """
    line = 1
    for number, block in enumerate(whole_lines(raw)):
        block = cleaning.valid_utf8(block, name, line)
        if number == 0 and is_start:
            block = block.removeprefix(codecs.BOM_UTF8)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if block:
            yield block
            # for errors; NumPy counts the ends of short lines several times as fast as bytes.count
            line += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))


_BINARY_SIGNATURES = {
    b"%PDF-": "a PDF; extract its text first",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"PK\x03\x04": "a zip archive (.docx, .xlsx and .epub are such); extract its text first",
    b"\x1f\x8b": "compressed with gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; let its name end in .zst",
    b"BZh91AY&SY": "compressed with bzip2; decompress it first",
    b"\xfd7zXZ": "compressed with xz; decompress it first",
    b"GIF87a": "a GIF picture",
    b"GIF89a": "a GIF picture",
    b"\x7fELF": "a program",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xd0\xcf\x11\xe0": "an old Office document (.doc, .xls); extract its text first",
    b"\xff\xfe": "UTF-16; convert it to UTF-8",
    b"\xfe\xff": "UTF-16; convert it to UTF-8",
}
"""The starts of files that, read as text, would give nonsense, or fail with an obscure message."""


def whole_lines(raw: Iterable[bytes], longest: int | None = None, line_end: bytes = b"\n") -> Iterator[bytes]:
    """Yield blocks of whole lines from pieces of a text; only the last line of the text may lack its line end.

    A line of more than `longest` bytes is cut into several blocks. Two line ends as the `line_end` give paragraphs.
    """
    rest: list[bytes] = []  # pieces without a line end; joined once, so that one long line costs linear time
    size = 0
    for piece in raw:
        last = piece.rfind(line_end)
        end = 0 if last < 0 else last + len(line_end)
        if end:
            yield b"".join([*rest, piece[:end]])
            rest, size = [], 0
        if end < len(piece):
            rest.append(piece[end:])
            size += len(rest[-1])
        if longest is not None and size > longest:
            yield b"".join(rest)
            rest, size = [], 0
    if rest:
        yield b"".join(rest)


def lines_in(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of blocks of whole lines, without their ends."""
    for block in blocks:
        yield from block.removesuffix(b"\n").split(b"\n")


def gathered(items: Iterable[Item], size: int, size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield lists of items whose sizes add up to at least `size`; the last list may be smaller."""
    some: list[Item] = []
    total = 0
    for item in items:
        some.append(item)
        total += size_of(item)
        if total >= size:
            yield some
            some, total = [], 0
    if some:
        yield some


# -- forms ------------------------------------------------------------------------------------------------


Form: TypeAlias = Literal["text", "jsonl", "csv", "tsv", "parquet"]

_FORMS: dict[str, Form] = {".ndjson": "jsonl", **{f".{form}": form for form in get_args(Form)}}


def form_of(path: Path) -> Form:
    """Return the form of a file by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return _FORMS.get(suffixes[-1], "text") if suffixes else "text"


def raw_pieces(path: Path, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed; errors name it `name`."""
    try:
        with _open(path) as file:
            piece = file.read(BLOCK_SIZE)
            for start, what in _BINARY_SIGNATURES.items():
                if piece.startswith(start):
                    raise CorpusError(f"{name}: expected text, found {what}")
            while piece:
                yield piece
                piece = file.read(BLOCK_SIZE)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise CorpusError(f"{path}: damaged or not gzip: {error}") from error
    except OSError as error:
        if error.errno is None and path.suffix.lower() == ".zst":
            raise CorpusError(f"{path}: damaged or not zstd: {error}") from error
        raise CorpusError(f"{path}: {error.strerror or error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(path))
    if path.suffix.lower() == ".zst":
        with importing("pyarrow", "files", f"reading {path}"):
            import pyarrow
        return cast(IO[bytes], pyarrow.CompressedInputStream(str(path), "zstd"))
    return path.open("rb")


def pipe_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a pipe without decompressing them."""
    with path.open("rb") as file:
        while piece := file.read(BLOCK_SIZE):
            yield piece


def standard_input() -> Iterator[bytes]:
    """Yield the bytes of standard input."""
    stream: IO[bytes] = sys.stdin.buffer if hasattr(sys.stdin, "buffer") else io.BytesIO(sys.stdin.read().encode())
    while piece := stream.read(BLOCK_SIZE):
        yield piece
