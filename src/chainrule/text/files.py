"""Files of any supported form, as blocks of clean text.

A block is bytes that are valid UTF-8 and whole lines: LF is the only line end, a byte-order mark is gone, and
only the last line of a file may lack its LF. Blocks are about 4 MB, so memory does not grow with the file;
only a line longer than that makes its block longer.

    form               what is text                             what is a document (see corpus.py)
    *.txt, any other   the file                                 lines up to a blank line, or one line
    *.jsonl, *.ndjson  the string under "text" of each object   an object
    *.parquet          the string column "text"                 a row
    .gz or .zst after any of these but parquet: compressed
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

import numpy as np

from chainrule.errors import CorpusError, EncodingError, MissingExtraError

EncodingErrors: TypeAlias = Literal["strict", "replace"]

BLOCK_SIZE = 4 << 20
_VALIDATE_AT_ONCE = 1 << 16  # decoding in pieces that stay in cache is 10x as fast as in one go
_REPLACEMENT = "\ufffd".encode()


@dataclass
class Cleaning:
    """What to do about bytes that are not UTF-8, and how many sequences of them were replaced by U+FFFD."""

    errors: EncodingErrors = "strict"
    replaced: int = 0

    def valid_utf8(self, block: bytes, name: str, line: int) -> bytes:
        """The block itself if it is UTF-8; else a copy with U+FFFD for what is not, or an EncodingError.

        `name`, and `line`, the number of the block's first line, are for the error's message.
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


def clean_blocks(raw: Iterable[bytes], name: str, cleaning: Cleaning) -> Iterator[bytes]:
    """Clean blocks of whole lines from the raw pieces of one text; `name` is what errors call it."""
    line = 1
    for number, block in enumerate(whole_lines(raw)):
        block = cleaning.valid_utf8(block, name, line)
        if number == 0:
            block = block.removeprefix(codecs.BOM_UTF8)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if block:
            yield block
            # for error messages; NumPy counts the ends of short lines several times as fast as bytes.count
            line += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))


_BINARY_SIGNATURES = {
    b"%PDF-": "a PDF; extract its text first",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"PK\x03\x04": "a zip archive (.docx, .xlsx and .epub are such); extract its text first",
    b"\x1f\x8b": "compressed with gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; let its name end in .zst",
    b"\xff\xfe": "UTF-16; convert it to UTF-8",
    b"\xfe\xff": "UTF-16; convert it to UTF-8",
}


def _refuse_binary(block: bytes, name: str) -> None:
    """Raise an error if the first block of a file starts as a known binary format does.

    Read as text, such a file would give nonsense, or fail with an obscure message.
    """
    for start, what in _BINARY_SIGNATURES.items():
        if block.startswith(start):
            raise CorpusError(f"{name}: expected text, found {what}")


def whole_lines(raw: Iterable[bytes], longest: int | None = None) -> Iterator[bytes]:
    """Blocks of whole lines from pieces of a text; only the last line of the text may lack its line end.

    A line of more than `longest` bytes comes in several blocks, which are then not whole lines.
    """
    rest: list[bytes] = []  # pieces without a line end; joined once, so that one long line costs linear time
    size = 0
    for piece in raw:
        end = piece.rfind(b"\n") + 1
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


# -- forms ------------------------------------------------------------------------------------------------


def form_of(path: Path) -> Literal["text", "jsonl", "parquet"]:
    """The form of a file, judged by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    return {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(last, "text")  # type: ignore[return-value]


def raw_pieces(path: Path, name: str) -> Iterator[bytes]:
    """The bytes of a file, decompressed; `name` is what errors call it."""
    try:
        with _open(path) as file:
            piece = file.read(BLOCK_SIZE)
            _refuse_binary(piece, name)
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
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError("pyarrow", "files", f"reading {path}") from None
        return cast(IO[bytes], pyarrow.CompressedInputStream(str(path), "zstd"))
    return path.open("rb")


def records(path: Path, cleaning: Cleaning) -> Iterator[bytes]:
    """The texts of a jsonl or parquet file, each clean and ending in LF."""
    texts = _jsonl_texts(path, cleaning) if form_of(path) == "jsonl" else _parquet_texts(path)
    for place, raw in texts:
        if not raw:
            continue
        clean = b"".join(clean_blocks([raw], place, cleaning))
        yield clean if clean.endswith(b"\n") else clean + b"\n"


def _jsonl_texts(path: Path, cleaning: Cleaning) -> Iterator[tuple[str, bytes]]:
    """The place and the text of each object of a jsonl file; a text need not be valid UTF-8."""
    line = 0
    for block in clean_blocks(raw_pieces(path, str(path)), str(path), cleaning):
        for source in block.removesuffix(b"\n").split(b"\n"):
            line += 1
            if source.strip():
                place = f"{path}: line {line}"
                # a JSON escape can spell a lone surrogate (half a character), whose encoding is not valid UTF-8
                yield place, _text_of(source, place).encode("utf-8", "surrogatepass")


def _text_of(source: bytes, place: str) -> str:
    try:
        record: Any = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        found = f"the keys {sorted(record)[:8]}" if isinstance(record, dict) else type(record).__name__
        raise CorpusError(f'{place}: expected an object with a string under "text", found {found}')
    text: str = record["text"]
    return text


def _parquet_texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """The place and the text of each row of a parquet file; a text need not be valid UTF-8."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "files", f"reading {path}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                raise CorpusError(f'{path}: expected a column "text", found {names[:8]}')
            row = 0
            for batch in file.iter_batches(columns=["text"], batch_size=4096):
                for value in _as_bytes(batch.column(0), path):
                    row += 1
                    if value is not None:
                        yield f"{path}: row {row}", value
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise CorpusError(f"{path}: not a parquet file, or a damaged one: {problem}") from error


def _as_bytes(column: Any, path: Path) -> list[bytes | None]:
    """The values of a column of strings, in bytes: Arrow's own conversion to text fails if one is not UTF-8."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pyarrow.types.is_null(kind):
        return [None] * len(column)
    types = pyarrow.types
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise CorpusError(f'{path}: the column "text" holds {kind}, not strings')
    wide = pyarrow.large_binary() if types.is_large_string(kind) else pyarrow.binary()
    values: list[bytes | None] = column.cast(wide).to_pylist()
    return values


def pipe_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a pipe, as they are: what is in it may be compressed."""
    with path.open("rb") as file:
        while piece := file.read(BLOCK_SIZE):
            yield piece


def standard_input() -> Iterator[bytes]:
    """The bytes of standard input."""
    stream: IO[bytes] = sys.stdin.buffer if hasattr(sys.stdin, "buffer") else io.BytesIO(sys.stdin.read().encode())
    while piece := stream.read(BLOCK_SIZE):
        yield piece
