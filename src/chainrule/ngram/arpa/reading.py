r"""ARPA files, which are back-off n-gram models as text, read without adding or changing anything.

    text before \data\ is skipped
    \data\
    ngram 1=4                     how many n-grams of each length there are
    ngram 2=3

    \1-grams:                     log10 p(w), the word, and perhaps log10 of its backoff
    -0.7	<unk>
    -99	<s>	-0.3
    ...
    \2-grams:                     log10 p(w | h), the words h w, and perhaps log10 of the backoff of h w
    -0.5	<s> a	-0.2
    ...
    \end\

Fields are separated by spaces or tabs; lines may end in CRLF, and blank lines are skipped. N-grams that a complete
model would have are not filled in here, and the file's value for <s> is passed on (0 from KenLM, -99 from SRILM),
although <s> is never predicted. numbers.py says what -99 is.

A file is read in blocks of whole lines. `_Reader` reads any line in plain Python and reports what is wrong with it;
in large files a kernel reads ordinary n-grams, which are nearly all lines, and leaves the others to `_Reader`.
The sizes in the header are compared with the n-grams found, and never trusted: arrays grow as lines arrive.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ArpaError
from chainrule.ngram.arpa.numbers import read_number
from chainrule.system.parallel import worth_a_kernel
from chainrule.system.progress import SILENT, Progress, Task
from chainrule.text.files import whole_lines

if TYPE_CHECKING:
    from chainrule.tokens.words.table import WordTable

_BLOCK = 2 << 20  # bytes read at a time
_LONGEST_LINE = 1 << 24  # bytes; a file with a longer line is not an ARPA file, and must not fill the memory
_NANOSECONDS = 64  # to read a byte in Python

_PROSE, _HEADER = -1, 0  # the sections before \1-grams:, which is section 1
_BLANKS = re.compile(rb"[ \t]+")
_COUNT = re.compile(rb"ngram[ \t]+(\d{1,9})[ \t]*=[ \t]*(\d{1,18})")
_SECTION = re.compile(rb"\\\d+-grams:|\\end\\")


@dataclass(frozen=True)
class ArpaLevel:
    """The n-grams of one length, in the order of the file."""

    ids: NDArray[np.int32]
    """The words of each n-gram [K, n], as indices into ArpaModel.words."""
    log_prob: NDArray[np.float32]
    """ln p of each n-gram [K]."""
    log_backoff: NDArray[np.float32]
    """ln backoff of each n-gram [K]; 0 where the file gives none."""


@dataclass(frozen=True)
class ArpaModel:
    """The contents of an ARPA file."""

    words: list[bytes]
    """The words in the order of the unigrams; the unknown word, if any, is <unk> whatever its case in the file."""
    levels: list[ArpaLevel]
    """The n-grams of each length; levels[0] holds the unigrams."""


def read_arpa(path: str | Path, progress: Progress = SILENT, encoding: str = "utf-8") -> ArpaModel:
    """Return the contents of an ARPA file, plain or gzip; an error names the line that is wrong."""
    path, reader = Path(path), None
    try:
        size = path.stat().st_size if path.is_file() else None  # a pipe has none
        with path.open("rb") as raw, progress.task(f"reading {path.name}", size, "B") as task:
            for block in _blocks(_as_utf8(_pieces(raw, task), encoding, path), path):
                reader = reader or _Reader(path, fast=worth_a_kernel(len(block), _NANOSECONDS))
                reader.feed(block)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        line = f" after line {reader.line - 1}" if reader else ""
        raise ArpaError(f"{path}: damaged gzip{line}: {error}; copy the file again") from error
    except OSError as error:
        raise ArpaError(f"{path}: {error.strerror or error}") from error
    reader = reader or _Reader(path, fast=False)
    if reader.more:
        progress.note(f"{path}: the text after \\end\\ is not read")
    return reader.model()


def _as_utf8(pieces: Iterator[bytes], encoding: str, path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in UTF-8; those of a file in UTF-8 as they are."""
    try:
        found = codecs.lookup(encoding)
    except LookupError:
        raise ArpaError(f"there is no encoding {encoding!r}: latin-1, cp1252, koi8-r, ... are some") from None
    if found.name == "utf-8":
        yield from pieces
        return
    try:
        for text in codecs.iterdecode(pieces, found.name):
            yield text.encode()
    except UnicodeError as error:
        raise ArpaError(f"{path}: not {encoding}: {error}") from None


def _pieces(raw: IO[bytes], task: Task) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed; gzip is recognised by its first bytes, not by the file's name."""
    is_gzip = cast(io.BufferedReader, raw).peek(2)[:2] == b"\x1f\x8b"
    file = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if is_gzip else raw
    done = 0
    while piece := file.read(_BLOCK):
        yield piece
        now = raw.tell() if raw.seekable() else 0
        task.advance(now - done)
        done = now


def _blocks(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yield blocks of whole lines, each with its line end; refuse a file with a line longer than any n-gram."""
    for number, block in enumerate(whole_lines(pieces, longest=_LONGEST_LINE)):
        if len(block) > _LONGEST_LINE and b"\n" not in block:
            raise ArpaError(f"{path}: not an ARPA file: a line of more than {_LONGEST_LINE >> 20} MB")
        block = block.removeprefix(codecs.BOM_UTF8) if number == 0 else block
        yield block if block.endswith(b"\n") else block + b"\n"


class _Rows:
    """The n-grams of one length, collected as they arrive, and the lines they stand on."""

    def __init__(self, n: int) -> None:
        self.n, self.count = n, 0
        self._chunks: list[tuple[NDArray[Any], ...]] = []  # columns: ids, ln p, ln backoff, line
        self._single: list[tuple[list[int], float, float, int]] = []

    def add(self, ids: list[int], log_prob: float, log_backoff: float, line: int) -> None:
        """Add one n-gram."""
        self._single.append((ids, log_prob, log_backoff, line))
        self.count += 1

    def extend(self, ids: NDArray[Any], log_prob: NDArray[Any], log_backoff: NDArray[Any], line: int) -> None:
        """Add the n-grams of consecutive lines; `line` is the number of the first."""
        self._flush()
        self._chunks.append((ids, log_prob, log_backoff, np.arange(line, line + len(ids))))
        self.count += len(ids)

    def _flush(self) -> None:
        ids, *numbers, lines = zip(*self._single, strict=True) if self._single else [()] * 4
        floats = (np.array(column, np.float32) for column in numbers)
        self._chunks.append((np.array(ids, np.int32).reshape(-1, self.n), *floats, np.array(lines, np.int64)))
        self._single = []

    def level(self) -> tuple[ArpaLevel, NDArray[np.int64]]:
        """Return all n-grams collected, and the line of each; they are no longer kept here."""
        self._flush()
        chunks, self._chunks = self._chunks, []
        *level, lines = map(np.concatenate, zip(*chunks, strict=True))
        return ArpaLevel(*level), lines


class _Reader:
    """Parses an ARPA file block by block; keeps the n-grams read so far and the current section."""

    def __init__(self, path: Path, fast: bool) -> None:
        self.path, self.fast = path, fast
        self.line = 1  # the number of the next line
        self.section, self.ended, self.more = _PROSE, False, False
        self.counts: list[int] = []  # n-grams of each length, according to the header
        self.words: list[bytes] = []
        self.index: dict[bytes, int] = {}
        self.table: WordTable | None = None
        self.levels: list[ArpaLevel] = []
        self.rows = _Rows(1)

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        raise ArpaError(f"{self.path}: line {line or self.line}: {reason}")

    def feed(self, block: bytes) -> None:
        """Read a block of whole lines."""
        position = 0
        if self.section == _PROSE and b"\\data\\" not in block:
            self.line += block.count(b"\n")
            return
        while position < len(block) and not self.ended:
            if self.fast and self.section > 0:
                position = self._read_many(block, position)
            if position < len(block):
                end = block.index(b"\n", position)
                self._read_line(block[position:end].removesuffix(b"\r").strip(b" \t"))
                self.line += 1
                position = end + 1
        self.more = self.more or bool(block[position:].strip())

    def model(self) -> ArpaModel:
        """Return the contents of the file, once all of it was fed; an error if it was cut off."""
        last = max(self.line - 1, 1)
        if self.section == _PROSE:
            self.fail("the file ends without a line \\data\\: it is not an ARPA file", last)
        if not self.ended:
            self.fail("the file ends without a line \\end\\: it was cut off; copy it again", last)
        return ArpaModel(_with_unk(self.words), self.levels)

    # -- one line, in plain Python ------------------------------------------------------------------------

    def _read_line(self, line: bytes) -> None:
        if self.section == _PROSE:
            self.section = _HEADER if line == b"\\data\\" else _PROSE
        elif line.startswith(b"\\"):
            self._open_section(line)
        elif line and self.section == _HEADER:
            self._read_count(line)
        elif line:
            self._read_ngram(line)

    def _read_count(self, line: bytes) -> None:
        found, n = _COUNT.fullmatch(line), len(self.counts) + 1
        if not found or int(found[1]) != n:
            self.fail(f"expected 'ngram {n}=' and how many there are, found {_shown(line)}")
        self.counts.append(int(found[2]))

    def _open_section(self, line: bytes) -> None:
        if not _SECTION.fullmatch(line):
            self.fail(f"expected {self._next_section()} or what goes before it, found {_shown(line)}")
        if not self.counts:
            self.fail(f"expected 'ngram 1=' and how many there are, found {_shown(line)}")
        if self.section > 0:
            self._close_level()
        if line != self._next_section().encode():
            self.fail(f"expected the section {self._next_section()}, found {_shown(line)}")
        self.ended = line == b"\\end\\"
        self.section += 1
        self.rows = _Rows(self.section)

    def _next_section(self) -> str:
        last = self.section == len(self.counts) and self.counts
        return "\\end\\" if last else f"\\{self.section + 1}-grams:"

    def _read_ngram(self, line: bytes) -> None:
        n = self.section
        if self.rows.count == self.counts[n - 1]:
            self.fail(f"expected {self._counted()}, found more")
        fields = _BLANKS.split(line)
        if len(fields) not in (n + 1, n + 2):
            few = "1 word" if n == 1 else f"{n} words"
            self.fail(f"expected a log-probability, {few} and perhaps a backoff, found {len(fields)} fields")
        log_prob = self._number(fields[0], "log-probability")
        if log_prob > 0:
            self.fail(f"expected a log-probability, found {_shown(fields[0])}, which is above 0")
        log_backoff = self._number(fields[n + 1], "backoff") if len(fields) == n + 2 else 0.0
        ids = [self._id(word) for word in fields[1 : n + 1]]
        self.rows.add(ids, log_prob, log_backoff, self.line)

    def _number(self, field: bytes, what: str) -> float:
        value = read_number(field)
        if value is None:
            self.fail(f"expected a {what}, found {_shown(field)}, which is not a finite number")
        return value

    def _id(self, word: bytes) -> int:
        try:
            word.decode()
        except UnicodeDecodeError as error:
            self.fail(f"expected UTF-8, found {word[error.start : error.end].hex(' ')} in {_shown(word)}")
        if self.section == 1:
            self.words.append(word)
            return len(self.words) - 1
        if word not in self.index:
            self.fail(f"expected words that are among the 1-grams, found {_shown(word)}, which is not")
        return self.index[word]

    # -- a length that is complete ------------------------------------------------------------------------

    def _counted(self) -> str:
        return f"{self.counts[self.section - 1]:,} {self.section}-grams, as the header says"

    def _close_level(self) -> None:
        if self.rows.count < self.counts[self.section - 1]:
            self.fail(f"expected {self._counted()}, found {self.rows.count:,}")
        level, lines = self.rows.level()
        twice = self._number_words() if self.section == 1 else _first_duplicate(level.ids)
        if twice is not None:
            ngram = b" ".join(self.words[i] for i in level.ids[twice])
            self.fail(f"the {self.section}-gram {_shown(ngram)} is there twice", int(lines[twice]))
        self.levels.append(level)

    def _number_words(self) -> int | None:
        """Index the words for the lookups of longer n-grams, and return the first repeated word, or None."""
        self.index = {word: number for number, word in enumerate(self.words)}
        if len(self.index) < len(self.words):
            first = {word: number for number, word in reversed(list(enumerate(self.words)))}
            return next(number for number, word in enumerate(self.words) if first[word] != number)
        if self.fast:
            from chainrule.tokens.words.table import WordTable

            self.table = WordTable("whitespace", self.words)
        return None

    # -- many lines, by a kernel --------------------------------------------------------------------------

    def _read_many(self, block: bytes, position: int) -> int:
        """Read n-grams up to the first line that needs `_read_line`, and return the position of that line."""
        from chainrule.ngram.arpa.kernels import read_lines

        n, data = self.section, np.frombuffer(block, np.uint8)
        room = (len(block) - position) // (2 * n + 2)  # the shortest lines look like "0 a b"
        room = min(room, self.counts[n - 1] - self.rows.count)
        begins, ends = np.empty(room * n, np.int64), np.empty(room * n, np.int64)
        log_prob, log_backoff = np.empty(room, np.float32), np.empty(room, np.float32)
        count, after = read_lines(data, position, n, begins, ends, log_prob, log_backoff)
        begins, ends = begins[: count * n], ends[: count * n]
        if self.table is None:
            good = _count_utf8(block, position, after, ends)
            ids = np.arange(len(self.words), len(self.words) + good)
            self.words += [block[b:e] for b, e in zip(begins[:good].tolist(), ends[:good].tolist(), strict=True)]
        else:
            # the table returns 0 for a word it does not have, 1 for a line end, and 2 for its first word
            found = self.table.find(block[position:after], begins - position, ends - position)
            ids = found.astype(np.int64) - 2
            good = int(np.argmax(ids < 0)) // n if ids.size and ids.min() < 0 else count
        if good < count:
            after = block.rindex(b"\n", 0, begins[good * n]) + 1 if good else position
        if good:
            rows = ids[: good * n].reshape(good, n).astype(np.int32)
            self.rows.extend(rows, log_prob[:good].copy(), log_backoff[:good].copy(), self.line)
            self.line += good
        return int(after)


def _count_utf8(block: bytes, begin: int, end: int, ends: NDArray[np.int64]) -> int:
    """Return the number of unigrams, whose words end at `ends`, before the first byte that is not UTF-8."""
    try:
        block[begin:end].decode()
    except UnicodeDecodeError as error:
        return int(np.searchsorted(ends, begin + error.start, side="right"))
    return len(ends)


def _first_duplicate(ids: NDArray[np.int32]) -> int | None:
    """Return the index of the first row that equals an earlier one, or None."""
    hashes = np.zeros(len(ids), dtype=np.uint64)
    for column in ids.T:
        hashes = (hashes ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(32)
    in_order = np.sort(hashes)
    repeated = in_order[1:][in_order[1:] == in_order[:-1]]
    if not len(repeated):
        return None
    seen: set[tuple[int, ...]] = set()
    for row in np.flatnonzero(np.isin(hashes, repeated, kind="sort")).tolist():  # different n-grams may collide
        ngram = tuple(ids[row].tolist())
        if ngram in seen:
            return int(row)
        seen.add(ngram)
    return None


def _with_unk(words: list[bytes]) -> list[bytes]:
    """Rename <UNK>, as CMU's tools spell it, to <unk>, unless <unk> is among the words already."""
    if b"<unk>" not in words:
        for number, word in enumerate(words):
            if word.lower() == b"<unk>":
                return [*words[:number], b"<unk>", *words[number + 1 :]]
    return words


def _shown(text: bytes) -> str:
    shown = text.decode(errors="replace")
    return repr(shown if len(shown) <= 60 else shown[:60] + "…")
