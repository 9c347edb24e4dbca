"""A corpus: text from files, folders, patterns, addresses, standard input, memory or the package itself.

>>> corpus = Corpus.from_text("i love cats\\ni love dogs\\n")
>>> [document.decode() for document in corpus.documents()]
['i love cats\\n', 'i love dogs\\n']
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chainrule.errors import CorpusError
from chainrule.system.disk import naming, scratch_file
from chainrule.system.disk.scratch import ScratchFile
from chainrule.system.progress import Progress
from chainrule.text.builtin import BUILTIN, builtin_documents
from chainrule.text.files import (
    BLOCK_SIZE,
    Cleaning,
    EncodingErrors,
    clean_blocks,
    form_of,
    gathered,
    pipe_pieces,
    raw_pieces,
    standard_input,
)
from chainrule.text.hub import is_dataset, open_dataset
from chainrule.text.records import TEXT, Fields, Record, read_records
from chainrule.text.remote import find_remote, is_address, local_path, protocol_of
from chainrule.text.sources import Source, find_files

_BLANK_LINES = re.compile(rb"\n(?:[ \t]*\n)+")
_LINES_PER_BLANK = 100  # if fewer than one line in this number is blank, blank lines do not separate documents
_LONGEST_DOCUMENT = 1 << 16  # bytes


@dataclass(frozen=True)
class Corpus:
    """Text that can be read any number of times, in blocks of whole lines or document by document."""

    paths: tuple[Path, ...] = ()
    texts: tuple[bytes, ...] = field(default=(), repr=False)
    """Documents held in memory."""
    fields: Fields = TEXT
    """The fields of records that hold the text; text files have none."""
    cleaning: Cleaning = field(default_factory=Cleaning, compare=False)
    builtin: str | None = field(default=None, repr=False)
    """The name of the text, if it is one that comes with the package."""
    divide: Callable[[Iterator[bytes]], Iterable[bytes]] | None = field(default=None, repr=False, compare=False)
    """Divides the blocks of a text file into its documents [at blank lines]."""
    _spools: dict[str, ScratchFile] = field(default_factory=dict, repr=False, compare=False)
    """Copies of sources that can be read only once, by their names in messages."""

    @classmethod
    def open(
        cls,
        *sources: Source,
        encoding_errors: EncodingErrors = "strict",
        fields: Fields | str | Sequence[str] | None = None,
        files: Sequence[str] = (),
        mask: bool = False,
    ) -> Corpus:
        """Return a corpus of the given sources; a missing file is an error now, a bad one when it is read.

        `fields` are the fields of records (.jsonl, .csv, .tsv, .parquet) that hold the text: a name, or several.
        `files` are patterns such as "*.txt" that select files of folders; other sources are not affected.
        With `mask`, the times, numbers, hexadecimal strings and addresses of files become zeros (masking.py).
        """
        cleaning = Cleaning(encoding_errors, mask)
        if not sources:
            raise CorpusError(
                "no text given: name a file, a folder, - for standard input, or " + next(iter(BUILTIN))
            )
        if builtin := next((name for name in map(str, sources) if name in BUILTIN), None):
            if len(sources) > 1:
                raise CorpusError(f"{builtin} cannot be mixed with files")
            return cls(texts=builtin_documents(builtin), cleaning=cleaning, builtin=builtin)
        if fields is not None and not isinstance(fields, Fields):
            fields = Fields.parse([fields] if isinstance(fields, str) else fields)
        paths: list[Path] = []
        spools: dict[str, ScratchFile] = {}
        for source in sources:
            if is_address(source):
                if protocol_of(str(source)) != "file":
                    paths += _fetched(str(source), fields or TEXT, files, spools)
                    continue
                source = local_path(str(source))
            for path in [Path("-")] if str(source) == "-" else find_files(source, files):
                name = "standard input" if str(path) == "-" else str(path)
                if name not in spools and (str(path) == "-" or _is_read_once(path)):
                    pieces = standard_input() if str(path) == "-" else pipe_pieces(path)
                    spools[name] = _spooled(pieces, "".join(path.suffixes) or ".txt", name)
                paths.append(Path(spools[name].name) if name in spools else path)
        return cls(paths=tuple(paths), fields=fields or TEXT, cleaning=cleaning, _spools=spools)

    @classmethod
    def from_text(cls, text: str) -> Corpus:
        """Return a corpus of one text in memory; it is split into documents as a file would be."""
        blocks = clean_blocks([_utf8(text, "the text")], "text", Cleaning())
        return cls(texts=tuple(_documents_of_text(iter(blocks))))

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Corpus:
        """Return a corpus of texts in memory, each a document of its own; an empty one is an empty line."""
        encoded = (_utf8(text, f"text {number}") for number, text in enumerate(texts))
        cleaned = (text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n") for text in encoded)
        return cls(texts=tuple(text if text.endswith(b"\n") else text + b"\n" for text in cleaned))

    def blocks(self) -> Iterator[bytes]:
        """Yield clean blocks of whole lines, about 4 MB each; the last line of a file may lack its LF."""
        self.cleaning.begin()
        yield from _gather(iter(self.texts))
        for path in self.paths:
            if form_of(path) == "text":
                yield from self.text_blocks(path)
            else:
                yield from _gather(record.text for record in self.records(path))

    def documents(self, of_file: Callable[[Iterator[bytes]], Iterable[bytes]] | None = None) -> Iterator[bytes]:
        """Yield the documents one by one; joined, they are the same text as the joined `blocks`.

        `of_file` divides the blocks of a text file into its documents [`divide`]; a record is a document.
        """
        self.cleaning.begin()
        yield from self.texts
        for path in self.paths:
            if form_of(path) == "text":
                yield from (of_file or self.divide or _documents_of_text)(self.text_blocks(path))
            else:
                yield from (record.text for record in self.records(path))

    def text_blocks(self, path: Path) -> Iterator[bytes]:
        """Yield clean blocks of whole lines of one of the text files."""
        name = self.name_of(path)
        return map(self.cleaning.masked, clean_blocks(raw_pieces(path, name), name, self.cleaning))

    def records(self, path: Path) -> Iterator[Record]:
        """Yield the records of one of the files of records."""
        found = read_records(path, self.name_of(path), self.fields, self.cleaning)
        return (record._replace(text=self.cleaning.masked(record.text)) for record in found)

    @property
    def is_in_files(self) -> bool:
        """True if all of its text is in files, which another process can open too."""
        return bool(self.paths) and not self.texts and not self._spools

    @property
    def addresses(self) -> list[str] | None:
        """The paths and addresses of all of its text; None if some of it is elsewhere, as in memory."""
        if self.is_in_files:
            return [str(path.absolute()) for path in self.paths]
        if not self.paths or self.texts or not all(map(is_address, self._spools)):
            return None
        kept = {spool.name: name for name, spool in self._spools.items()}
        return [kept.get(str(path)) or str(path.absolute()) for path in self.paths]

    @property
    def replaced(self) -> int:
        """The number of invalid byte sequences that the last pass replaced (encoding_errors="replace")."""
        return self.cleaning.replaced

    def note_losses(self, progress: Progress) -> None:
        """Tell the user how much the last pass replaced or skipped, unless the user already knows."""
        replaced, skipped = counts = self.cleaning.replaced, self.cleaning.skipped
        if replaced and counts != self.cleaning.noted:
            progress.note(f"{self.name}: not UTF-8, replaced by U+FFFD: {replaced:,}")
        if skipped and counts != self.cleaning.noted:
            fields = " and ".join(self.fields.text)
            progress.note(f"{self.name}: records without {fields}, skipped: {skipped:,}")
        self.cleaning.noted = counts

    def size(self) -> int | None:
        """Return the number of bytes to read, for progress; None for compressed files and records."""
        if self.has_records or any(path.suffix.lower() in (".gz", ".zst") for path in self.paths):
            return None
        return sum(map(len, self.texts)) + sum(path.stat().st_size for path in self.paths)

    @property
    def has_records(self) -> bool:
        """True if any of the files holds records rather than plain text."""
        return any(form_of(path) != "text" for path in self.paths)

    @property
    def name(self) -> str:
        """The name of the corpus in messages."""
        if not self.paths:
            return self.builtin or "the text"
        first = self.name_of(self.paths[0])
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"

    def name_of(self, path: Path) -> str:
        """Return the name of a file in messages."""
        return next((name for name, spool in self._spools.items() if spool.name == str(path)), str(path))


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{name}: character {error.start + 1} is a lone surrogate, which usually comes from bytes that are not "
            "UTF-8"
        ) from None


def _is_read_once(path: Path) -> bool:
    """Return True for a pipe or a terminal, whose text can be read only once; other devices are refused."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return False
    if stat.S_ISFIFO(mode):
        return True
    if stat.S_ISCHR(mode):
        with path.open("rb") as file:
            if os.isatty(file.fileno()):
                return True
    raise CorpusError(f"{path} is a device or a socket, not a file or a pipe with text")


def _fetched(address: str, fields: Fields, files: Sequence[str], spools: dict[str, ScratchFile]) -> list[Path]:
    """Copy the files of an address, or the rows of a dataset, each only once, and return the copies."""
    if is_dataset(address):
        found = [] if address in spools else [open_dataset(address, fields.names)]
        names = [address]
    else:
        found = find_remote(address, files)
        names = [file.name for file in found]
    for file in found:
        if file.name not in spools:
            spools[file.name] = _spooled(file.pieces(), file.suffix, file.name)
    return [Path(spools[name].name) for name in names]


def _spooled(pieces: Iterable[bytes], suffix: str, name: str) -> ScratchFile:
    """Return a temporary copy of a text that can be read only once, since a corpus is read several times."""
    spool = scratch_file(suffix)
    with naming(f"{spool.name} (a copy of {name})"):
        for piece in pieces:
            spool.write(piece)
        spool.flush()
    return spool


def _gather(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Join short texts into blocks, with an LF between texts that do not end in one."""
    for some in gathered(texts, BLOCK_SIZE, len):
        ended = (text if text.endswith(b"\n") else text + b"\n" for text in some[:-1])
        yield b"".join([*ended, some[-1]])


def _documents_of_text(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Split a text into documents that end in blank lines or after 64 KB; into lines if blank lines are rare."""
    rest: list[bytes] = []  # lines of an incomplete document; joined once, so that it costs linear time
    separated: bool | None = None
    for block in blocks:
        if rest:  # blank lines may have started in the previous block
            body = rest[-1].rstrip(b" \t\n")
            rest[-1], block = body, rest[-1][len(body) :] + block
        if separated is None:
            blank = len(_BLANK_LINES.findall(block))
            separated = blank * _LINES_PER_BLANK >= block.count(b"\n")
        if separated:
            ends = [match.end() for match in _BLANK_LINES.finditer(block)]
            # blank lines at the end of this block may continue in the next one
            ends = [end for end in ends if end < len(block)]
        else:
            ends = [match.end() for match in re.finditer(rb"\n", block)]
        start = 0
        for end in ends:
            yield from _cut(b"".join([*rest, block[start:end]]), separated)
            start, rest = end, []
        if start < len(block):
            rest.append(block[start:])
            if sum(map(len, rest)) > _LONGEST_DOCUMENT:
                *whole, last = _cut(b"".join(rest), separated)
                yield from whole
                rest = [last]
    if rest:
        yield from _cut(b"".join(rest), bool(separated))


def _cut(document: bytes, separated: bool) -> Iterator[bytes]:
    """Cut a long document at line ends, since a split by document needs many documents."""
    while separated and len(document) > _LONGEST_DOCUMENT:
        end = document.find(b"\n", _LONGEST_DOCUMENT) + 1
        if end in (0, len(document)):
            break
        yield document[:end]
        document = document[end:]
    yield document
