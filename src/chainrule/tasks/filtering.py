"""Filtering: the fluent part of a corpus, judged by a language model, as web corpora are cleaned (CCNet, 2020).

    perplexity(document) = exp(-1/T Σ_t ln p(x_t | x_<t)),   T tokens, of which the end of each line is one

A document is a line of a text file, a paragraph of one (`paragraphs`: lines up to a blank one), or a record of a
jsonl, CSV or parquet file. It is kept if its perplexity is at most a limit: one that is given, or the quantile that
leaves a share of the documents, found exactly in a first pass. Each is judged by itself, whatever stands before it.
What is kept is written as it was, in its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import checked
from chainrule.errors import CorpusError, MissingExtraError, SettingsError
from chainrule.evaluation.metrics import perplexity_of
from chainrule.fast_paths import ScoresSequences
from chainrule.lm import LanguageModel, score_sequences
from chainrule.progress import SILENT, Reports, Task, as_progress
from chainrule.system.disk import replaced_path
from chainrule.system.parallel import in_order
from chainrule.text.corpus import Corpus
from chainrule.text.files import Cleaning, Form, clean_blocks, form_of
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.text.records import Sourced, csv_header, read_sourced
from chainrule.tokens.base import line_bounds

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_AT_ONCE = 1 << 20  # bytes of text that a thread judges at once
_AT_ONCE_BY_NETWORK = 1 << 18
_LONGEST_PARAGRAPH = 1 << 26  # bytes; a longer one is judged in parts
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Filtered:
    """What a filter kept and dropped."""

    documents: int
    kept: int
    bytes: int
    """Of the text of all documents."""
    kept_bytes: int
    max_perplexity: float
    """The highest perplexity of a document that is kept, or the limit that was given."""
    quantiles: dict[float, float]
    """Of the perplexities of all documents, to one part in a thousand."""
    without_text: int = 0
    """Records that have no text, which are dropped and not counted as documents."""

    @property
    def dropped(self) -> int:
        """Documents that were not kept."""
        return self.documents - self.kept

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "documents": self.documents,
            "kept": self.kept,
            "dropped": self.dropped,
            "without_text": self.without_text,
            "bytes": self.bytes,
            "kept_bytes": self.kept_bytes,
            "max_perplexity": self.max_perplexity,
            "perplexity_quantiles": {f"{share:g}": value for share, value in self.quantiles.items()},
        }


def filter_texts(
    lm: LanguageModel, texts: Iterable[str], *, keep: float | None = None, max_perplexity: float | None = None
) -> list[str]:
    """The fluent ones of some texts, in their order: those of the lowest perplexities, `keep` being their share.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs", "cats chase mice"], order=2, smoothing="laplace")
    >>> cr.filter_texts(lm, ["i love mice", "mice dogs love", "cats chase dogs"], keep=0.5)
    ['i love mice', 'cats chase dogs']
    """
    from chainrule.evaluation.surprisal import score

    _check(keep, max_perplexity)
    every = as_items(texts)
    scores = score(LanguageModel.expect(lm), every)
    limit = _limit_of_share(scores.nats, keep) if keep is not None else math.log(max_perplexity or math.nan)
    return [text for text, nats in zip(scores.texts, scores.nats, strict=True) if nats <= limit]


def filter_corpus(
    lm: LanguageModel,
    text: Text,
    out: str | Path | IO[bytes],
    *,
    keep: float | None = None,
    max_perplexity: float | None = None,
    paragraphs: bool = False,
    progress: Reports = False,
) -> Filtered:
    """Write the fluent documents of a corpus to a file, or to a stream of bytes, in the form in which they are.

    `keep` is the share of documents to keep, those of the lowest perplexities; documents as perplexing as the last
    of them are kept too. `max_perplexity` is the highest perplexity to keep, and takes a single pass.
    """
    _check(keep, max_perplexity)
    corpus, lm = as_corpus(text), LanguageModel.expect(lm)
    form, reports = check_forms(corpus, out), as_progress(progress)
    work = _Work(lm, lambda: _batches(corpus, _at_once(lm), paragraphs))
    stored: list[Floats] = []
    limit = math.inf if max_perplexity is None else math.log(max_perplexity)
    if keep is not None:
        with reports.task("scoring", corpus.size(), "B") as task:
            stored = [nats_D for _, nats_D in work.judged(task)]
        limit = _limit_of_share(np.concatenate([*stored, np.zeros(0)]), keep)
    with reports.task("filtering", corpus.size(), "B") as task:
        judged = zip(work.read(), stored, strict=True) if stored else work.judged(task)
        counts = _write_kept(judged, limit, _sink(form, corpus, out))
    corpus.note_losses(reports)
    if not counts.documents:
        raise CorpusError(f"{corpus.name}: there is no document in it to filter")
    return counts.result(limit, corpus.cleaning.skipped)


def filter_stream(
    lm: LanguageModel,
    pieces: Iterable[bytes],
    out: IO[bytes],
    *,
    max_perplexity: float,
    paragraphs: bool = False,
    cleaning: Cleaning | None = None,
    name: str = "the text",
) -> Filtered:
    """Write the fluent documents of a text that is read only once, such as that of a pipe, as they come."""
    _check(None, max_perplexity)
    cleaning = cleaning or Cleaning()
    work = _Work(lm, lambda: _text_batches(clean_blocks(pieces, name, cleaning), _at_once(lm), paragraphs))
    limit = math.log(max_perplexity)
    with SILENT.task("filtering") as task:
        counts = _write_kept(work.judged(task), limit, nullcontext(_writing(out)))
    if not counts.documents:
        raise CorpusError(f"{name}: there is no document in it to filter")
    return counts.result(limit, 0)


def _write_kept(
    judged: Iterable[tuple[_Batch, Floats]], limit: float, sink: AbstractContextManager[_Write]
) -> _Counts:
    """Write the documents whose mean surprisal is not above the limit."""
    counts, lines = _Counts(), _BlankLines()
    with sink as write:
        for batch, nats_D in judged:
            kept_D = nats_D <= limit
            counts.add(batch, nats_D, kept_D)
            write(batch, kept_D if batch.path else lines.kept_units(batch, kept_D))
    return counts


def _check(keep: float | None, max_perplexity: float | None) -> None:
    if (keep is None) == (max_perplexity is None):
        raise SettingsError("choose a share of documents to keep, or the highest perplexity (one of the two)")
    if keep is not None and not 0 < keep <= 1:
        raise SettingsError(f"the share of documents to keep should be above 0 and at most 1, not {keep}")
    if max_perplexity is not None and not max_perplexity >= 1:
        raise SettingsError(f"the highest perplexity should be at least 1, not {max_perplexity}")


def _limit_of_share(nats_D: Floats, keep: float) -> float:
    """The mean surprisal that ⌈keep · D⌉ of the documents do not exceed: an exact quantile."""
    if not len(nats_D):
        return math.inf
    place = min(max(math.ceil(keep * len(nats_D) - 1e-9), 1), len(nats_D)) - 1
    return float(np.partition(nats_D, place)[place])


# -- documents in batches ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batch:
    """Documents of one file, in units that are written or left out: lines of a text file, or records."""

    block: bytes
    """Their text, in whole lines."""
    lines_U: Ints
    """How many lines of the block each unit has."""
    document_U: Ints
    """The document of the batch that each unit is part of; -1 for a blank line."""
    source: bytes
    """What the units are in the file; that is the block in a text file, and nothing in a parquet file."""
    ends_U: Ints
    """Where each unit ends in the source."""
    path: Path | None = None
    """The file of the records; None for text."""
    numbers_U: Ints = field(default_factory=lambda: _NOTHING)
    """The lines or rows of the records, from 1."""
    is_first: bool = False
    """Whether a text file begins here."""

    @property
    def documents(self) -> int:
        return int(self.document_U.max(initial=-1)) + 1


def _text_batches(blocks: Iterable[bytes], size: int, paragraphs: bool) -> Iterator[_Batch]:
    is_first = True
    for block in _whole_paragraphs(blocks) if paragraphs else blocks:
        for piece in [block] if paragraphs else _cut(block, size):
            piece = piece if piece.endswith(b"\n") else piece + b"\n"
            ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n")) + 1
            is_blank = _blank_lines(piece, ends)
            begins = ~is_blank
            if paragraphs:  # a line begins a document if the one before is blank
                begins[1:] &= is_blank[:-1]
            document = np.where(is_blank, -1, np.cumsum(begins) - 1)
            yield _Batch(piece, np.ones(len(ends), np.int64), document, piece, ends, is_first=is_first)
            is_first = False


def _cut(block: bytes, size: int) -> Iterator[bytes]:
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + size) + 1 or len(block)
        yield block[start:end]
        start = end


def _blank_lines(block: bytes, ends: Ints) -> Bools:
    """Which lines hold white space only."""
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    is_blank: Bools = ends - starts == 1
    first = np.frombuffer(block, np.uint8)[starts]
    for line in np.flatnonzero(((first == ord(" ")) | (first == ord("\t"))) & ~is_blank).tolist():
        is_blank[line] = block[starts[line] : ends[line]].isspace()
    return is_blank


def _whole_paragraphs(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks that end in a blank line, each of whole paragraphs; the last one as the text ends."""
    rest = b""
    for block in blocks:
        rest += block
        end = rest.rfind(b"\n\n") + 2
        if end > 1 or len(rest) > _LONGEST_PARAGRAPH:
            end = end if end > 1 else len(rest)
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _record_batches(path: Path, records: Iterator[Sourced], size: int) -> Iterator[_Batch]:
    some: list[Sourced] = []
    gathered = 0
    for sourced in records:
        some.append(sourced)
        gathered += len(sourced.record.text)
        if gathered >= size:
            yield _record_batch(path, some)
            some, gathered = [], 0
    if some:
        yield _record_batch(path, some)


def _record_batch(path: Path, records: list[Sourced]) -> _Batch:
    return _Batch(
        b"".join(sourced.record.text for sourced in records),
        np.asarray([sourced.record.text.count(b"\n") for sourced in records]),
        np.arange(len(records)),
        b"".join(sourced.source for sourced in records),
        np.cumsum([len(sourced.source) for sourced in records]),
        path,
        np.asarray([sourced.number for sourced in records]),
    )


def _batches(corpus: Corpus, size: int, paragraphs: bool) -> Iterator[_Batch]:
    """The documents of a corpus."""
    corpus.cleaning.begin()
    if corpus.texts:
        yield from _text_batches(corpus.texts, size, paragraphs)
    for path in corpus.paths:
        if form_of(path) == "text":
            yield from _text_batches(corpus.text_blocks(path), size, paragraphs)
        else:
            records = read_sourced(path, corpus.name_of(path), corpus.fields, corpus.cleaning)
            yield from _record_batches(path, records, size)


def _at_once(lm: LanguageModel) -> int:
    return _AT_ONCE if isinstance(lm, ScoresSequences) else _AT_ONCE_BY_NETWORK


# -- perplexities -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """Judging documents."""

    lm: LanguageModel
    read: Callable[[], Iterator[_Batch]]

    def judged(self, task: Task) -> Iterator[tuple[_Batch, Floats]]:
        """The documents, and the mean surprisal of each; an n-gram model judges a batch on each core at once."""
        if isinstance(self.lm, ScoresSequences):
            every: Iterable[tuple[_Batch, Floats]] = in_order(self.score, self.read())
        else:
            every = ((batch, self.score(batch)) for batch in self.read())
        for batch, nats_D in every:
            yield batch, nats_D
            task.advance(len(batch.source) or len(batch.block))

    def score(self, batch: _Batch) -> Floats:
        """The mean surprisal of each document: -1/T ln p."""
        lm = self.lm
        ids = lm.tokenizer.encode_lines(batch.block)
        starts_L, ends_L = line_bounds(ids, lm.tokenizer.eos)
        document_L = np.repeat(batch.document_U, batch.lines_U)
        starts, ends = starts_L, ends_L
        if lm.context == "stream":  # the lines of a document are one sequence
            begins = np.flatnonzero(np.diff(document_L, prepend=-2) | (document_L < 0))
            starts, ends = starts_L[begins], ends_L[np.append(begins[1:], len(ends_L)) - 1]
        scores = checked(score_sequences(lm, ids, starts, ends), normalised=lm.normalised)
        in_document = document_L >= 0
        numbers, documents = document_L[in_document], batch.documents
        nats_L = -np.add.reduceat(scores, starts_L)[in_document]
        tokens = np.bincount(numbers, (ends_L - starts_L)[in_document], documents)
        return np.asarray(np.bincount(numbers, nats_L, documents) / tokens)


class _BlankLines:
    """Which units are written: those of kept documents, and of blank lines those after one that is kept.

    Blank lines separate paragraphs. They stay if anything of the paragraph before them does.
    """

    def __init__(self) -> None:
        self._after_kept = self._after_blank = True

    def kept_units(self, batch: _Batch, kept_D: Bools) -> Bools:
        """Whether each unit is written."""
        if batch.is_first:
            self._after_kept = self._after_blank = True
        is_blank = batch.document_U < 0
        kept = np.append(kept_D, False)[batch.document_U]  # -1 is the one appended
        begins = ~is_blank & np.concatenate([[self._after_blank], is_blank[:-1]])
        paragraph = np.cumsum(begins)  # 0 is the one that the batch before has begun
        has_kept = np.bincount(paragraph, kept, int(paragraph[-1]) + 1) > 0
        has_kept[0] |= self._after_kept
        self._after_kept, self._after_blank = bool(has_kept[-1]), bool(is_blank[-1])
        return np.asarray(kept | (is_blank & has_kept[paragraph]))


# -- what is written --------------------------------------------------------------------------------------

_Write: TypeAlias = Callable[[_Batch, Bools], None]


def check_forms(corpus: Corpus, out: str | Path | IO[bytes]) -> Form:
    """The one form of all files of a corpus, in which what is kept is written; several are an error."""
    forms: set[Form] = {form_of(path) for path in corpus.paths}
    if corpus.texts:
        forms.add("text")
    if len(forms) > 1:
        raise CorpusError(
            f"{corpus.name}: {' and '.join(sorted(forms))} files together; filter each form by itself"
        )
    (form,) = forms
    if isinstance(out, (str, Path)):
        wanted = form_of(Path(out))
        if wanted != form and (form == "parquet" or wanted != "text"):
            raise CorpusError(f"{out}: what is kept of {corpus.name} is {form}, and this name is one of {wanted}")
    elif form == "parquet":
        raise CorpusError(
            f"{corpus.name}: what is kept of a parquet file needs a file of its own, --out KEPT.parquet"
        )
    return form


@contextmanager
def _sink(form: Form, corpus: Corpus, out: str | Path | IO[bytes]) -> Iterator[_Write]:
    """A function that writes the kept units of a batch."""
    if form == "parquet":
        rows: dict[Path | None, list[Ints]] = {}
        yield lambda batch, kept_U: rows.setdefault(batch.path, []).append(batch.numbers_U[kept_U])
        _copy_rows(corpus, rows, Path(str(out)))
        return
    place: AbstractContextManager[Path | None]
    place = replaced_path(Path(out)) if isinstance(out, (str, Path)) else nullcontext(None)
    with place as path, _opened(path, Path(str(out)).suffix) if path else nullcontext(out) as file:
        if form in ("csv", "tsv"):
            file.write(_header(corpus))  # type: ignore[union-attr]
        yield _writing(file)  # type: ignore[arg-type]


def _writing(file: IO[bytes]) -> _Write:
    """A function that writes the kept units of a batch to a file, neighbours together."""

    def write(batch: _Batch, kept_U: Bools) -> None:
        edges = np.flatnonzero(np.diff(kept_U, prepend=False, append=False)).tolist()
        ends = np.concatenate([np.zeros(1, np.int64), batch.ends_U])
        runs = zip(edges[::2], edges[1::2], strict=True)
        file.write(b"".join(batch.source[ends[first] : ends[last]] for first, last in runs))

    return write


def _opened(path: Path, suffix: str) -> AbstractContextManager[IO[bytes]]:
    """A file for writing, compressed as the ending of its name says."""
    if suffix.lower() == ".gz":
        import gzip

        return gzip.open(path, "wb", compresslevel=6)  # type: ignore[return-value]
    if suffix.lower() == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError("pyarrow", "files", f"writing {path}") from None
        stream: AbstractContextManager[IO[bytes]] = pyarrow.CompressedOutputStream(str(path), "zstd")
        return stream
    return path.open("wb")


def _header(corpus: Corpus) -> bytes:
    """The first row of all CSV files of a corpus."""
    headers = {path: csv_header(path, corpus.name_of(path), corpus.cleaning) for path in corpus.paths}
    first = next(iter(headers.values()))
    for path, header in headers.items():
        if header and header != first:
            raise CorpusError(
                f"{corpus.name_of(path)}: its first row is not that of {corpus.name}; filter it by itself"
            )
    return first


def _copy_rows(corpus: Corpus, rows: dict[Path | None, list[Ints]], out: Path) -> None:
    """Write the rows of parquet files whose numbers are given."""
    import pyarrow
    import pyarrow.parquet

    with replaced_path(out) as temporary:
        writer = None
        try:
            for path in corpus.paths:
                with pyarrow.parquet.ParquetFile(path) as file:
                    writer = writer or pyarrow.parquet.ParquetWriter(temporary, file.schema_arrow)
                    if file.schema_arrow != writer.schema:
                        raise CorpusError(
                            f"{path}: its columns are not those of {corpus.name}; filter it by itself"
                        )
                    chosen, seen = np.concatenate([*rows.get(path, []), _NOTHING]), 0
                    for batch in file.iter_batches():
                        mask = np.isin(np.arange(seen + 1, seen + 1 + len(batch)), chosen)
                        seen += len(batch)
                        writer.write_batch(batch.filter(pyarrow.array(mask)))
        finally:
            if writer is not None:
                writer.close()


# -- counts -----------------------------------------------------------------------------------------------

_BIN = 5e-4  # nats
_BINS = 100_000  # of mean surprisals; what is above the last, or infinite, is counted apart


class _Counts:
    """Counts of documents, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self.documents = self.kept = self.bytes = self.kept_bytes = 0
        self._histogram = np.zeros(_BINS + 1, np.int64)

    def add(self, batch: _Batch, nats_D: Floats, kept_D: Bools) -> None:
        """Count the documents of a batch."""
        if not len(nats_D):
            return
        in_document = batch.document_U >= 0
        sizes_U = _unit_sizes(batch)[in_document]
        sizes_D = np.bincount(batch.document_U[in_document], sizes_U, len(nats_D))
        self.documents += len(nats_D)
        self.kept += int(kept_D.sum())
        self.bytes += int(sizes_D.sum())
        self.kept_bytes += int(sizes_D[kept_D].sum())
        bins = np.clip(nats_D, 0, _BIN * _BINS) / _BIN
        self._histogram += np.bincount(bins.astype(np.int64), minlength=_BINS + 1)

    def result(self, limit: float, without_text: int) -> Filtered:
        """What was counted."""
        cumulative = np.cumsum(self._histogram)
        quantiles = {}
        for share in QUANTILES:
            place = int(np.searchsorted(cumulative, max(math.ceil(share * self.documents), 1)))
            quantiles[share] = math.inf if place == _BINS else perplexity_of((place + 0.5) * _BIN)
        return Filtered(
            self.documents, self.kept, self.bytes, self.kept_bytes, perplexity_of(limit), quantiles, without_text
        )


def _unit_sizes(batch: _Batch) -> Ints:
    """The bytes of the text of each unit, with its line ends."""
    if batch.source is batch.block:
        return np.diff(batch.ends_U, prepend=0)
    ends_L = np.flatnonzero(np.frombuffer(batch.block, np.uint8) == ord("\n")) + 1
    return np.diff(ends_L[np.cumsum(batch.lines_U) - 1], prepend=0)
