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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.capabilities import ScoresSequences
from chainrule.contract.kinds import Stored, Workers
from chainrule.contract.lm import LanguageModel, score_sequences
from chainrule.errors import CorpusError, SettingsError
from chainrule.system.parallel import in_order
from chainrule.system.progress import SILENT, Reports, Task, as_progress
from chainrule.tasks.filtering.counts import Counts, Filtered
from chainrule.tasks.filtering.documents import Batch, Floats, batches, text_batches
from chainrule.tasks.filtering.writing import BlankLines, Write, check_forms, sink, writing
from chainrule.text.files import Cleaning, clean_blocks
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.tokens.base import line_bounds

_AT_ONCE = 1 << 20  # bytes of text that a thread judges at once
_AT_ONCE_BY_NETWORK = 1 << 18


def filter_texts(
    lm: LanguageModel, texts: Iterable[str], *, keep: float | None = None, max_perplexity: float | None = None
) -> list[str]:
    """The fluent ones of some texts, in their order: those of the lowest perplexities, `keep` being their share.

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
    """Write the fluent documents of a corpus to a file, or to a stream of bytes, in the form in which they are.

    `keep` is the share of documents to keep, those of the lowest perplexities; documents as perplexing as the last
    of them are kept too. `max_perplexity` is the highest perplexity to keep, and takes a single pass. `workers`, if
    there are any, judge the documents.
    """
    _check(keep, max_perplexity)
    corpus, lm = as_corpus(text), LanguageModel.expect(lm)
    form, reports = check_forms(corpus, out), as_progress(progress)
    work = _Work(lm, lambda: batches(corpus, _at_once(lm), paragraphs), workers)
    stored: list[Floats] = []
    limit = math.inf if max_perplexity is None else math.log(max_perplexity)
    if keep is not None:
        with reports.task("scoring", corpus.size(), "B") as task:
            stored = [nats_D for _, nats_D in work.judged(task)]
        limit = _limit_of_share(np.concatenate([*stored, np.zeros(0)]), keep)
    with reports.task("filtering", corpus.size(), "B") as task:
        judged = zip(work.read(), stored, strict=True) if stored else work.judged(task)
        counts = _write_kept(judged, limit, sink(form, corpus, out))
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
    work = _Work(lm, lambda: text_batches(clean_blocks(pieces, name, cleaning), _at_once(lm), paragraphs))
    limit = math.log(max_perplexity)
    with SILENT.task("filtering") as task:
        counts = _write_kept(work.judged(task), limit, nullcontext(writing(out)))
    if not counts.documents:
        raise CorpusError(f"{name}: there is no document in it to filter")
    return counts.result(limit, 0)


def _write_kept(
    judged: Iterable[tuple[Batch, Floats]], limit: float, sink: AbstractContextManager[Write]
) -> Counts:
    """Write the documents whose mean surprisal is not above the limit."""
    counts, lines = Counts(), BlankLines()
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


def _at_once(lm: LanguageModel) -> int:
    return _AT_ONCE if isinstance(lm, ScoresSequences) else _AT_ONCE_BY_NETWORK


@dataclass(frozen=True)
class _Work:
    """Judging documents."""

    lm: LanguageModel
    read: Callable[[], Iterator[Batch]]
    workers: Workers | None = None

    def judged(self, task: Task) -> Iterator[tuple[Batch, Floats]]:
        """The documents, and the mean surprisal of each; an n-gram model judges a batch on each core at once."""
        if self.workers is not None:
            judge = partial(_judge_stored, self.workers.stored)
            every: Iterable[tuple[Batch, Floats]] = self.workers.executor.in_order(judge, self.read())
        elif isinstance(self.lm, ScoresSequences):
            every = in_order(partial(judge_batch, self.lm), self.read())
        else:
            every = ((batch, judge_batch(self.lm, batch)) for batch in self.read())
        for batch, nats_D in every:
            yield batch, nats_D
            task.advance(len(batch.source) or len(batch.block))


def _judge_stored(stored: Stored, batch: Batch) -> Floats:
    """The same in a worker, which loads the model."""
    return judge_batch(stored.model(), batch)


def judge_batch(lm: LanguageModel, batch: Batch) -> Floats:
    """The mean surprisal of each document: -1/T ln p."""
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
