"""Writing the kept units of a corpus in their own format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from chainrule.errors import CorpusError, MissingExtraError
from chainrule.system.disk import replaced_path
from chainrule.tasks.filtering.documents import NOTHING, Batch, Bools, Ints
from chainrule.text.corpus import Corpus
from chainrule.text.files import Form, form_of
from chainrule.text.records import csv_header

Write: TypeAlias = Callable[[Batch, Bools], None]


def check_forms(corpus: Corpus, out: str | Path | IO[bytes]) -> Form:
    """Return the one form of all files of a corpus, in which kept documents are written; several are an error."""
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
            raise CorpusError(
                f"{out}: the documents of {corpus.name} are {form}, but this is the name of a {wanted} file"
            )
    elif form == "parquet":
        raise CorpusError(
            f"{corpus.name}: the kept rows of a parquet file need a file of their own, --out KEPT.parquet"
        )
    return form


@contextmanager
def sink(form: Form, corpus: Corpus, out: str | Path | IO[bytes]) -> Iterator[Write]:
    """Yield a function that writes the kept units of a batch."""
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
        yield writing(file)  # type: ignore[arg-type]


def writing(file: IO[bytes]) -> Write:
    """Return a function that writes the kept units of a batch to a file."""

    def write(batch: Batch, kept_U: Bools) -> None:
        edges = np.flatnonzero(np.diff(kept_U, prepend=False, append=False)).tolist()
        ends = np.concatenate([np.zeros(1, np.int64), batch.ends_U])
        runs = zip(edges[::2], edges[1::2], strict=True)
        file.write(b"".join(batch.source[ends[first] : ends[last]] for first, last in runs))

    return write


def _opened(path: Path, suffix: str) -> AbstractContextManager[IO[bytes]]:
    """Open a file for writing, compressed according to the ending of its name."""
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
    """Return the first row that all CSV files of a corpus have."""
    headers = {path: csv_header(path, corpus.name_of(path), corpus.cleaning) for path in corpus.paths}
    first = next(iter(headers.values()))
    for path, header in headers.items():
        if header and header != first:
            raise CorpusError(
                f"{corpus.name_of(path)}: its first row is not that of {corpus.name}; filter it by itself"
            )
    return first


def _copy_rows(corpus: Corpus, rows: dict[Path | None, list[Ints]], out: Path) -> None:
    """Copy the rows of parquet files that have the given numbers."""
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
                    chosen, seen = np.concatenate([*rows.get(path, []), NOTHING]), 0
                    for batch in file.iter_batches():
                        mask = np.isin(np.arange(seen + 1, seen + 1 + len(batch)), chosen)
                        seen += len(batch)
                        writer.write_batch(batch.filter(pyarrow.array(mask)))
        finally:
            if writer is not None:
                writer.close()


class BlankLines:
    """Selects the units to write: those of kept documents, and blank lines after paragraphs kept in part."""

    # blank lines separate paragraphs, so that they go with the paragraph before them

    def __init__(self) -> None:
        self._after_kept = self._after_blank = True

    def kept_units(self, batch: Batch, kept_D: Bools) -> Bools:
        """Return True for each unit that is written."""
        if batch.is_first:
            self._after_kept = self._after_blank = True
        is_blank = batch.document_U < 0
        kept = np.append(kept_D, False)[batch.document_U]  # -1 is the one appended
        begins = ~is_blank & np.concatenate([[self._after_blank], is_blank[:-1]])
        paragraph = np.cumsum(begins)  # 0 is the one that began in the batch before
        has_kept = np.bincount(paragraph, kept, int(paragraph[-1]) + 1) > 0
        has_kept[0] |= self._after_kept
        self._after_kept, self._after_blank = bool(has_kept[-1]), bool(is_blank[-1])
        return np.asarray(kept | (is_blank & has_kept[paragraph]))
