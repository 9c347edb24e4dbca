"""The surprisal of each record of a text, and of each of its tokens, under a model.

A record is a line of a text file, or a record of a jsonl, CSV or parquet file. A model of lines scores each line by
itself, and a record is as surprising as its lines together. One whose context flows across lines starts anew at
each text file, and at each record of the others.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import numpy as np

from chainrule.arrays import TOKENS_AT_ONCE, checked, to_numpy
from chainrule.contract.kinds import Stored, Workers
from chainrule.contract.lm import LanguageModel, State, read, score_sequences, tokens_at_once
from chainrule.errors import SettingsError
from chainrule.evaluation.metrics import perplexity_of
from chainrule.system.progress import SILENT, Progress
from chainrule.text.batches import RecordBatch, record_batches
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import encode_in_parallel, line_bounds


@dataclass(frozen=True)
class ScoredRecord:
    """A record, its tokens (each line ends in </s>) and ln p of each."""

    id: int | str
    """The id of the record, or the number of its line or row; with the file before it if there are several."""
    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    @cached_property
    def log_prob(self) -> float:
        """ln p of the record."""
        return math.fsum(self.log_probs) if all(map(math.isfinite, self.log_probs)) else -math.inf

    @property
    def bits(self) -> float:
        """Its surprisal, -log2 p."""
        return -self.log_prob / math.log(2)

    @property
    def bits_per_token(self) -> float:
        """The mean surprisal of its tokens."""
        return self.bits / len(self.ids)

    @property
    def perplexity(self) -> float:
        """exp of the mean surprisal, in nats."""
        return perplexity_of(-self.log_prob / len(self.ids))


@dataclass(frozen=True)
class ScoredBatch:
    """Records with the ids and ln p of all their tokens, one record after the other."""

    records: RecordBatch
    ids: np.ndarray
    log_probs: np.ndarray
    starts: np.ndarray
    """Where the tokens of each record begin."""
    ends: np.ndarray
    """Where they end."""
    is_one_file: bool

    def surprisals(self, by: Literal["mean", "total"]) -> np.ndarray:
        """-ln p of each record, in total or as a mean over its tokens."""
        totals = -np.add.reduceat(self.log_probs, self.starts)
        return totals if by == "total" else totals / (self.ends - self.starts)

    def record(self, index: int) -> ScoredRecord:
        """One of the records."""
        start, end = int(self.starts[index]), int(self.ends[index])
        label = self.records.labels[index]
        return ScoredRecord(
            label if self.is_one_file else f"{self.records.file}:{label}",
            self.records.text(index),
            tuple(self.ids[start:end].tolist()),
            tuple(self.log_probs[start:end].tolist()),
        )

    def __iter__(self) -> Iterator[ScoredRecord]:
        return map(self.record, range(len(self.records)))


def score_records(
    lm: LanguageModel, text: Text, *, per_line: bool = False, workers: Workers | None = None
) -> Iterator[ScoredRecord]:
    """The records of a text with their scores, in order; with `per_line`, each line of every record by itself."""
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
    """The records of the highest surprisal, the highest first; of equal ones those that come first.

    No more than `count` records are kept, so memory does not grow with the text.
    """
    corpus = as_corpus(text)
    kept: list[tuple[float, int, ScoredRecord]] = []  # a heap, the least surprising first
    seen = 0
    with progress.task("scoring", corpus.size(), "B") as task:
        for batch in score_batches(lm, corpus, per_line=per_line, workers=workers):
            surprisals = batch.surprisals(by)
            for index in _candidates(surprisals, count, kept[0][0] if len(kept) == count else -math.inf):
                entry = float(surprisals[index]), -(seen + int(index))
                if len(kept) < count:
                    heapq.heappush(kept, (*entry, batch.record(int(index))))
                elif entry > kept[0][:2]:
                    heapq.heapreplace(kept, (*entry, batch.record(int(index))))
            seen += len(surprisals)
            task.advance(len(batch.records.block))
    return [record for *_, record in sorted(kept, reverse=True)]


def _candidates(surprisals: np.ndarray, count: int, least: float) -> np.ndarray:
    """The indices of the `count` highest surprisals above `least`, in their order; of equal ones the first."""
    above = np.flatnonzero(surprisals > least)
    best = above[np.argsort(-surprisals[above], kind="stable")[:count]]
    return np.sort(best)


def expect_lines(lm: LanguageModel) -> None:
    """Refuse a model that workers cannot score with: they read lines by themselves."""
    if lm.context != "line":
        raise SettingsError(
            "the context of this model flows across lines, so it reads a text in sequence: leave out the executor"
        )


_Scored = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The ids of records, ln p of each, and where the tokens of each record begin and end."""


def score_batches(
    lm: LanguageModel, corpus: Corpus, *, per_line: bool = False, workers: Workers | None = None
) -> Iterator[ScoredBatch]:
    """The records of a corpus with their scores, many at a time; scored by workers if there are any."""
    is_one_file = len(corpus.paths) + bool(corpus.texts) == 1
    size = tokens_at_once(lm) if lm.context == "line" else min(tokens_at_once(lm), TOKENS_AT_ONCE)
    batches = record_batches(corpus, size, per_line=per_line)
    if workers is None:
        every: Iterable[tuple[RecordBatch, _Scored]] = _in_sequence(lm, batches)
    else:
        expect_lines(lm)
        every = workers.executor.in_order(partial(_score_stored, workers.stored), batches)
    for records, scored in every:
        yield ScoredBatch(records, *scored, is_one_file)


def _in_sequence(lm: LanguageModel, batches: Iterable[RecordBatch]) -> Iterator[tuple[RecordBatch, _Scored]]:
    """The scores of batches, where one may go on from the state after the one before."""
    state: State = lm.start(1)
    for records in batches:
        scored, state = _score_batch(lm, records, state)
        yield records, scored


def _score_stored(stored: Stored, records: RecordBatch) -> _Scored:
    """The scores of records by a model of lines, in a worker."""
    lm = stored.model()
    return _score_batch(lm, records, lm.start(1))[0]


def _score_batch(lm: LanguageModel, records: RecordBatch, state: State) -> tuple[_Scored, State]:
    """The scores of records after a state, and the state after them."""
    ids = encode_in_parallel(lm.tokenizer, records.block).astype(np.int64)
    line_starts, line_ends = line_bounds(ids, lm.tokenizer.eos)
    ends = line_ends[np.cumsum(records.lines) - 1]
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    if lm.context == "line":
        scores = score_sequences(lm, ids, line_starts, line_ends)
    elif records.independent:
        scores = score_sequences(lm, ids, starts, ends)
    else:
        scores, state = _score_on(lm, state, ids, starts[records.starts])
    log_probs = np.asarray(checked(scores, normalised=lm.normalised), dtype=np.float64)
    return (ids, log_probs, starts, ends), state


def _score_on(lm: LanguageModel, state: State, ids: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, State]:
    """ln p of ids that go on from a state, and begin anew at the places `new`; and the state after them."""
    scores = []
    for first, last in pairwise([0, *new.tolist(), len(ids)]):
        if first < last:
            found, state = read(lm, state, ids[None, first:last])
            scores.append(to_numpy(found)[0])
        if last < len(ids):
            state = lm.start(1)
    return np.concatenate(scores), state
