"""The surprisal of each record of a text, and of each of its tokens, under a model.

A record is a line of a text file, or a record of a jsonl, CSV or parquet file. A model of lines scores each line by
itself, and the surprisal of a record is the sum over its lines. A model whose context flows across lines starts
anew at each text file, and at each record of other files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from chainrule.arrays import TOKENS_AT_ONCE, checked
from chainrule.contract.kinds import Stored, Workers
from chainrule.contract.lm import LanguageModel, State, score_sequences, tokens_at_once
from chainrule.errors import SettingsError
from chainrule.evaluation.measure import score_after
from chainrule.evaluation.surprisal import ScoredText
from chainrule.system.progress import SILENT, Progress
from chainrule.text.batches import RecordBatch, record_batches
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import encode_in_parallel, line_bounds


@dataclass(frozen=True)
class ScoredRecord(ScoredText):
    """A record, its tokens (each line ends in </s>) and ln p of each."""

    id: int | str
    """The id of the record, or the number of its line or row; with the file before it if there are several."""

    @property
    def bits(self) -> float:
        """Its surprisal, -log2 p."""
        return -self.log_prob / math.log(2)

    @property
    def bits_per_token(self) -> float:
        """The mean surprisal of its tokens."""
        return self.bits / len(self.ids)


@dataclass(frozen=True)
class ScoredBatch:
    """Records with the ids and ln p of all their tokens, one record after the other."""

    records: RecordBatch
    ids: np.ndarray
    log_probs: np.ndarray
    offsets: np.ndarray
    """Where the tokens of each record begin, and, at the end, the number of all tokens."""
    is_one_file: bool

    def surprisals(self, by: Literal["mean", "total"]) -> np.ndarray:
        """Return -ln p of each record, in total or as a mean over its tokens."""
        totals = -np.add.reduceat(self.log_probs, self.offsets[:-1])
        return totals if by == "total" else totals / np.diff(self.offsets)

    def record(self, index: int) -> ScoredRecord:
        """Return one of the records."""
        label, tokens = self.records.labels[index], slice(*self.offsets[index : index + 2])
        return ScoredRecord(
            text=self.records.text(index),
            ids=tuple(self.ids[tokens].tolist()),
            log_probs=tuple(self.log_probs[tokens].tolist()),
            id=label if self.is_one_file else f"{self.records.file}:{label}",
        )

    def __iter__(self) -> Iterator[ScoredRecord]:
        return map(self.record, range(len(self.records)))


def score_records(
    lm: LanguageModel, text: Text, *, per_line: bool = False, workers: Workers | None = None
) -> Iterator[ScoredRecord]:
    """Yield the records of a text with their scores, in order; with `per_line`, each line of every record.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["open door", "close door"], order=1, smoothing="laplace", tokenizer="word")
    >>> [(record.id, round(record.bits, 2)) for record in score_records(lm, ["open door", "open fire"])]
    [(1, 6.21), (2, 7.79)]
    """
    for batch in score_batches(lm, as_corpus(text), per_line=per_line, workers=workers):
        yield from batch


def most_surprising(
    lm: LanguageModel,
    text: Text,
    count: int,
    *,
    by: Literal["mean", "total"] = "mean",
    per_line: bool = False,
    progress: Progress = SILENT,
    workers: Workers | None = None,
) -> list[ScoredRecord]:
    """Return the records of the highest surprisal, the highest first; among equal ones the first of the text.

    No more than `count` records are kept, so memory does not grow with the text.
    """
    corpus = as_corpus(text)
    kept: list[tuple[float, int, ScoredRecord]] = []  # the most surprising first
    seen = 0
    with progress.task("scoring", corpus.size(), "B") as task:
        for batch in score_batches(lm, corpus, per_line=per_line, workers=workers):
            surprisals = batch.surprisals(by)
            least = kept[-1][0] if len(kept) == count else -math.inf
            above = np.flatnonzero(surprisals > least)
            best = above[np.argsort(-surprisals[above], kind="stable")[:count]].tolist()
            kept += [(float(surprisals[index]), -(seen + index), batch.record(index)) for index in best]
            kept = sorted(kept, reverse=True)[:count]
            seen += len(surprisals)
            task.advance(len(batch.records.block))
    return [record for *_, record in kept]


def expect_lines(lm: LanguageModel) -> None:
    """Raise an error for a model that workers cannot score with, since each of them reads lines by themselves."""
    if lm.context != "line":
        raise SettingsError(
            "the context of this model flows across lines, so it reads a text in sequence: leave out the executor"
        )


_Scored = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The ids of records, ln p of each, and where the tokens of each record begin, and the last end."""


def score_batches(
    lm: LanguageModel, corpus: Corpus, *, per_line: bool = False, workers: Workers | None = None
) -> Iterator[ScoredBatch]:
    """Yield the records of a corpus with their scores, many at a time; workers score them if there are any."""
    size = tokens_at_once(lm) if lm.context == "line" else min(tokens_at_once(lm), TOKENS_AT_ONCE)
    batches = record_batches(corpus, size, per_line=per_line)
    if workers is not None:
        expect_lines(lm)
        for records, scored in workers.executor.in_order(partial(_score_stored, workers.stored), batches):
            yield ScoredBatch(records, *scored, is_one_file(corpus))
        return
    state: State = lm.start(1)
    for records in batches:  # a stream continues from the state after the batch before
        scored, state = score_batch(lm, records, state)
        yield ScoredBatch(records, *scored, is_one_file(corpus))


def is_one_file(corpus: Corpus) -> bool:
    """Return True if all records are of one file, or of texts in memory: their ids need no file name."""
    return len(corpus.paths) + bool(corpus.texts) == 1


def _score_stored(stored: Stored, records: RecordBatch) -> _Scored:
    """Score records by a model of lines, in a worker."""
    lm = stored.model()
    return score_batch(lm, records, lm.start(1))[0]


def score_batch(lm: LanguageModel, records: RecordBatch, state: State) -> tuple[_Scored, State]:
    """Score records after a state; return their scores and the state after them."""
    ids = encode_in_parallel(lm.tokenizer, records.block).astype(np.int64)
    line_starts, line_ends = line_bounds(ids, lm.tokenizer.eos)
    offsets = np.append(0, line_ends[np.cumsum(records.lines) - 1])
    if lm.context == "line":
        scores = score_sequences(lm, ids, line_starts, line_ends)
    elif records.independent:
        scores = score_sequences(lm, ids, offsets[:-1], offsets[1:])
    else:
        pieces = []
        for first, last in pairwise([0, *offsets[:-1][records.starts].tolist(), len(ids)]):
            if first < last:
                found, state = score_after(lm, state, ids[first:last])
                pieces.append(found)
            if last < len(ids):
                state = lm.start(1)
        scores = np.concatenate(pieces)
    log_probs = np.asarray(checked(scores, normalised=lm.normalised), dtype=np.float64)
    return (ids, log_probs, offsets), state
