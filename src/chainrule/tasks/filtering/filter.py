"""Filtering: the fluent part of a corpus, scored by a language model, as web corpora are cleaned (CCNet, 2020).

    perplexity(document) = exp(-1/T Σ_t ln p(x_t | x_<t)),   T tokens, of which the end of each line is one

A document is a line of a text file, a paragraph of one (`paragraphs`: lines up to a blank one), or a record of a
jsonl, CSV or parquet file. It is kept if its perplexity is at most a limit: one that is given, or the quantile that
keeps a given share of the documents, found exactly in a first pass. Each document is scored by itself, and those
kept are written as they were, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.kinds import Stored, Workers
from chainrule.contract.lm import LanguageModel, score_sequences
from chainrule.errors import CorpusError, SettingsError
from chainrule.evaluation.metrics import perplexity_of
from chainrule.system.parallel import in_order
from chainrule.system.progress import SILENT, Reports, Task, as_progress
from chainrule.tasks.filtering.documents import Batch, Floats, batches, text_batches
from chainrule.tasks.filtering.writing import BlankLines, Write, check_forms, sink, writing
from chainrule.text.batches import line_ends
from chainrule.text.files import Cleaning, clean_blocks
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.tokens.base import line_bounds

_AT_ONCE = 1 << 20  # bytes of text that a thread scores at once
_AT_ONCE_BY_NETWORK = 1 << 18
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BIN = 5e-4  # nats
_BINS = 100_000  # of mean surprisals; what is above the last, or infinite, is counted apart


@dataclass(frozen=True)
class Filtered:
    """The numbers of documents that a filter kept and dropped."""

    documents: int
    kept: int
    bytes: int
    """The bytes of text of all documents."""
    kept_bytes: int
    max_perplexity: float
    """The highest perplexity of a kept document, or the limit that was given."""
    quantiles: dict[float, float]
    """Quantiles of the perplexities of all documents, to one part in a thousand."""
    without_text: int = 0
    """The number of records without text, which are dropped and not counted as documents."""

    @property
    def dropped(self) -> int:
        """The number of documents that were not kept."""
        return self.documents - self.kept

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        counts = asdict(self)
        quantiles = {f"{share:g}": value for share, value in counts.pop("quantiles").items()}
        return {**counts, "dropped": self.dropped, "perplexity_quantiles": quantiles}


def filter_texts(
    lm: LanguageModel, texts: Iterable[str], *, keep: float | None = None, max_perplexity: float | None = None
) -> list[str]:
    """Return the fluent texts, in their order: a share `keep` with the lowest perplexities, or all below a limit.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs", "cats chase mice"], order=2, smoothing="laplace")
    >>> cr.tasks.filter_texts(lm, ["i love mice", "mice dogs love", "cats chase dogs"], keep=0.5)
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
    workers: Workers | None = None,
) -> Filtered:
    """Write the fluent documents of a corpus to a file, or to a stream of bytes, in their own format.

    `keep` is the share of documents to keep, those with the lowest perplexities and any equal to the last of them.
    `max_perplexity` is the highest perplexity to keep, and takes a single pass. `workers` score the documents if
    they are given.

    >>> import chainrule as cr
    >>> import tempfile
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = cr.tasks.filter_corpus(lm, ["i love cats", "cats cats i"], f"{folder}/fluent.txt", keep=0.5)
    ...     print(Path(folder, "fluent.txt").read_text(), end="")
    i love cats
    """
    _check(keep, max_perplexity)
    corpus, lm = as_corpus(text), LanguageModel.expect(lm)
    form, reports = check_forms(corpus, out), as_progress(progress)
    read = partial(batches, corpus, _at_once(lm), paragraphs)
    stored: list[Floats] = []
    limit = math.inf if max_perplexity is None else math.log(max_perplexity)
    if keep is not None:
        with reports.task("scoring", corpus.size(), "B") as task:
            stored = [nats_D for _, nats_D in _scored(lm, read(), task, workers)]
        limit = _limit_of_share(np.concatenate([*stored, np.zeros(0)]), keep)
    with reports.task("filtering", corpus.size(), "B") as task:
        scored = zip(read(), stored, strict=True) if stored else _scored(lm, read(), task, workers)
        found = _write_kept(scored, limit, sink(form, corpus, out), corpus.name)
    corpus.note_losses(reports)
    return replace(found, without_text=corpus.cleaning.skipped)


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
    """Write the fluent documents of a text that is read only once, such as a pipe, as they come."""
    _check(None, max_perplexity)
    texts = text_batches(clean_blocks(pieces, name, cleaning or Cleaning()), _at_once(lm), paragraphs)
    limit = math.log(max_perplexity)
    with SILENT.task("filtering") as task:
        return _write_kept(_scored(lm, texts, task), limit, nullcontext(writing(out)), name)


def _write_kept(
    scored: Iterable[tuple[Batch, Floats]], limit: float, sink: AbstractContextManager[Write], name: str
) -> Filtered:
    """Write the documents whose mean surprisal is at most the limit, and count all of them.

    Their perplexities are counted in a histogram: memory does not grow with the documents.
    """
    documents = kept = size = kept_size = 0
    histogram, lines = np.zeros(_BINS + 1, np.int64), BlankLines()
    with sink as write:
        for batch, nats_D in scored:
            kept_D, in_document = nats_D <= limit, batch.document_U >= 0
            write(batch, kept_D if batch.path else lines.kept_units(batch, kept_D))
            sizes_U = np.diff(line_ends(batch.block)[np.cumsum(batch.lines_U) - 1], prepend=0)
            sizes_D = np.bincount(batch.document_U[in_document], sizes_U[in_document], len(nats_D))
            documents, kept = documents + len(nats_D), kept + int(kept_D.sum())
            size, kept_size = size + int(sizes_D.sum()), kept_size + int(sizes_D[kept_D].sum())
            bins = np.clip(nats_D, 0, _BIN * _BINS) / _BIN
            histogram += np.bincount(bins.astype(np.int64), minlength=_BINS + 1)
    if not documents:
        raise CorpusError(f"{name}: there is no document in it to filter")
    cumulative, quantiles = np.cumsum(histogram), {}
    for share in QUANTILES:
        place = int(np.searchsorted(cumulative, max(math.ceil(share * documents), 1)))
        quantiles[share] = math.inf if place == _BINS else perplexity_of((place + 0.5) * _BIN)
    return Filtered(documents, kept, size, kept_size, perplexity_of(limit), quantiles)


def _check(keep: float | None, max_perplexity: float | None) -> None:
    if (keep is None) == (max_perplexity is None):
        raise SettingsError("choose a share of documents to keep, or the highest perplexity (one of the two)")
    if keep is not None and not 0 < keep <= 1:
        raise SettingsError(f"the share of documents to keep should be above 0 and at most 1, not {keep}")
    if max_perplexity is not None and not max_perplexity >= 1:
        raise SettingsError(f"the highest perplexity should be at least 1, not {max_perplexity}")


def _limit_of_share(nats_D: Floats, keep: float) -> float:
    """Return the mean surprisal that exactly ⌈keep · D⌉ documents do not exceed."""
    if not len(nats_D):
        return math.inf
    place = min(max(math.ceil(keep * len(nats_D) - 1e-9), 1), len(nats_D)) - 1
    return float(np.partition(nats_D, place)[place])


def _at_once(lm: LanguageModel) -> int:
    return _AT_ONCE if lm.capabilities.is_compiled else _AT_ONCE_BY_NETWORK


def _scored(
    lm: LanguageModel, read: Iterator[Batch], task: Task, workers: Workers | None = None
) -> Iterator[tuple[Batch, Floats]]:
    """Yield batches with the mean surprisal of each document; an n-gram model scores a batch on each core."""
    if workers is not None:
        every = workers.executor.in_order(partial(_score_stored, workers.stored), read)
    elif lm.capabilities.is_compiled:
        every = in_order(partial(score_batch, lm), read)
    else:
        every = ((batch, score_batch(lm, batch)) for batch in read)
    for batch, nats_D in every:
        yield batch, nats_D
        task.advance(len(batch.source) or len(batch.block))


def _score_stored(stored: Stored, batch: Batch) -> Floats:
    """Score a batch in a worker, which loads the model."""
    return score_batch(stored.model(), batch)


def score_batch(lm: LanguageModel, batch: Batch) -> Floats:
    """Return the mean surprisal of each document: -1/T ln p."""
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
