"""Anomalies: the lines of a log, or the records of a file, that are least likely under a model.

    bits of a token = -log2 p(token | those before it),   of a line: their mean, or their sum

Each line is scored by itself, so that a growing file and a complete one give the same. A model that was trained on
masked text (text/masking.py) reads lines masked too; they are shown as they are. If lines are labelled, the
ranking is measured by average precision and the area under the ROC curve:

    AP = Σ_n (R_n - R_(n-1)) P_n,  R and P the recall and precision of all lines down to the n-th distinct score
    AUROC = p(an anomaly is more surprising than a normal line), ties counted half
"""

from __future__ import annotations

import bisect
import heapq
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.lm import LanguageModel, tokens_at_once
from chainrule.errors import CorpusError, EncodingError, SettingsError
from chainrule.evaluation.records import ScoredBatch, ScoredRecord, score_batch
from chainrule.evaluation.surprisal import SurprisingToken, coloured_text, surprising_tokens
from chainrule.system.display import number as written
from chainrule.system.display import to_html
from chainrule.system.parallel import in_order
from chainrule.system.progress import Progress, Reports, as_progress
from chainrule.text.batches import RecordBatch, batches_of_text, line_ends, record_batches
from chainrule.text.corpus import Corpus
from chainrule.text.files import Cleaning, form_of, whole_lines
from chainrule.text.given import Text, as_corpus
from chainrule.text.masking import mask_variables
from chainrule.text.records import Fields, read_records

By = Literal["mean", "total"]
_READ_AT_ONCE = 1 << 22  # bytes of a log that grows
_LONGEST_LINE = 1 << 20  # bytes of an incomplete line; a longer one counts as a line
_MOST_UNKNOWN = 0.5
"""The share of unknown tokens above which the bits of lines mean little: the model reads them all as <unk>."""


class SurprisingWord(NamedTuple):
    """A word of a line, whose bits are those of its tokens together."""

    start: int
    end: int
    bits: float


@dataclass(frozen=True)
class Anomaly:
    """A line or record, and its surprisal."""

    id: int | str
    text: str
    bits: float
    """The mean or the sum of the surprisals of its tokens."""
    tokens: tuple[SurprisingToken, ...]

    def words(self) -> list[SurprisingWord]:
        """Return the words of the line with their places and bits; what is between them belongs to the next one.

        >>> parts = ("no", 0, 2, 1.0), (" PA", 2, 5, 9.0), ("NIC", 5, 8, 3.0)
        >>> odd = Anomaly(1, "no PANIC", 4.3, tuple(SurprisingToken(*part) for part in parts))
        >>> [tuple(word) for word in odd.words()]
        [(0, 2, 1.0), (3, 8, 12.0)]
        """
        places = [(found.start(), found.end()) for found in re.finditer(r"\S+", self.text)]
        ends, bits = [end for _, end in places], [0.0] * len(places)
        for token in self.tokens:
            word = bisect.bisect_left(ends, token.end) if token.end > token.start else len(ends)
            if word < len(ends):  # neither the end of the line nor blanks at the end
                bits[word] += token.bits
        return [SurprisingWord(*place, total) for place, total in zip(places, bits, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the line with its tokens as JSON."""
        tokens = [asdict(token) for token in self.tokens]
        return {"id": self.id, "bits": self.bits, "text": self.text, "tokens": tokens}

    def _repr_html_(self) -> str:
        """The line in a notebook: each token is coloured by its surprisal."""
        return to_html([f"{self.id}: {written(self.bits)} bits", coloured_text(self.text, self.tokens)])


def anomalies(
    lm: LanguageModel,
    texts: Text,
    top: int | None = 20,
    *,
    threshold: float | None = None,
    by: By = "mean",
    progress: Reports = False,
) -> list[Anomaly]:
    """Return the `top` most surprising lines or records, the most surprising first; none below `threshold` bits.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["open door", "close door", "open window"] * 3, order=2)
    >>> (odd,) = cr.tasks.anomalies(lm, ["open door", "close fire", "open window"], top=1)
    >>> start, end, bits = max(odd.words(), key=lambda word: word.bits)
    >>> odd.text, odd.text[start:end]
    ('close fire', 'fire')
    """
    ranking = Ranking(LanguageModel.expect(lm), top, threshold, by)
    corpus, unknown, reports = as_corpus(texts), UnknownTokens(lm), as_progress(progress)
    with reports.task("scoring", corpus.size(), "B") as task:
        batches = record_batches(corpus, tokens_at_once(lm))
        for batch in unknown.counted(scored_batches(lm, batches, is_one_file=len(corpus.paths) <= 1)):
            ranking.add(batch)
            task.advance(len(batch.records.block))
    unknown.note(reports)
    return ranking.ranked()


class Ranking:
    """The `top` most surprising records so far; no others are kept in memory."""

    def __init__(self, lm: LanguageModel, top: int | None, threshold: float | None = None, by: By = "mean") -> None:
        if top is not None and top < 1:
            raise SettingsError(f"the number of lines should be at least 1, not {top}")
        self.lm, self.top, self.threshold, self.by = lm, top, threshold, by
        self._kept: list[tuple[float, int, ScoredRecord]] = []  # a heap, the least surprising first
        self._seen = 0

    def add(self, batch: ScoredBatch) -> list[Anomaly]:
        """Add a batch of records, and return those that are now in the ranking, in their order."""
        bits = batch.surprisals(self.by) / math.log(2)
        least = -math.inf if self.threshold is None else self.threshold
        if self._is_full():
            least = max(least, self._kept[0][0])
        added = []
        for index in np.flatnonzero(bits >= least).tolist():
            place = float(bits[index]), -(self._seen + index)  # of equal records the first stay
            if self._is_full() and place < self._kept[0][:2]:
                continue
            record = batch.record(index)
            if not record.text.strip():
                continue
            entry = (*place, record)
            heapq.heapreplace(self._kept, entry) if self._is_full() else heapq.heappush(self._kept, entry)
            added.append(entry)
        self._seen += len(bits)
        return [self._anomaly(value, record) for value, _, record in added]

    def ranked(self) -> list[Anomaly]:
        """Return the ranking, the most surprising record first."""
        return [self._anomaly(value, record) for value, _, record in sorted(self._kept, reverse=True)]

    def _is_full(self) -> bool:
        return self.top is not None and len(self._kept) == self.top

    def _anomaly(self, bits: float, record: ScoredRecord) -> Anomaly:
        tokens = surprising_tokens(self.lm.tokenizer, record, mask_variables if is_masked(self.lm) else None)
        return Anomaly(record.id, record.text, bits, tuple(tokens))


class UnknownTokens:
    """The share of the tokens of some lines that a model does not know."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.tokens, self.unknown = lm, 0, 0

    def counted(self, batches: Iterable[ScoredBatch]) -> Iterator[ScoredBatch]:
        """Yield the batches, and count their tokens; ends of lines are not counted."""
        tokenizer = self.lm.tokenizer
        for batch in batches:
            self.tokens += int(np.count_nonzero(batch.ids != tokenizer.eos))
            if tokenizer.unk is not None:
                self.unknown += int(np.count_nonzero(batch.ids == tokenizer.unk))
            yield batch

    def note(self, progress: Progress) -> None:
        """Note if the model knows few of the tokens, and what to do."""
        if self.unknown <= _MOST_UNKNOWN * self.tokens:
            return
        what = "words" if self.lm.tokenizer.name.startswith("word") else "tokens"
        progress.note(
            f"{self.unknown / self.tokens:.0%} of the {what} are unknown to the model, so that it can hardly tell "
            "lines apart: train it on lines such as these, or with --tokenizer bpe, which spells unknown words"
        )


def scored_batches(
    lm: LanguageModel, batches: Iterable[RecordBatch], *, is_one_file: bool = True, ahead: bool = True
) -> Iterator[ScoredBatch]:
    """Yield records with their scores; each is scored by itself.

    An n-gram model scores a batch on each core, for which batches are read `ahead`.
    """

    def score(records: RecordBatch) -> ScoredBatch:
        read = replace(records, block=mask_variables(records.block)) if masked else records
        scored, _ = score_batch(lm, replace(read, independent=True), lm.start(1))
        return ScoredBatch(records, *scored, is_one_file)

    masked = is_masked(lm)
    if ahead and lm.capabilities.is_compiled:
        yield from (scored for _, scored in in_order(score, batches))
    else:
        yield from map(score, batches)


def is_masked(lm: LanguageModel) -> bool:
    """Return True if a model was trained on masked text."""
    return bool(lm.provenance.get("masked"))


# -- a file that grows ------------------------------------------------------------------------------------


def follow(
    path: Path, *, wait: Callable[[], bool] | None = None, cleaning: Cleaning | None = None
) -> Iterator[RecordBatch]:
    """Yield the lines of a file and those that are added to it, like `tail -F`, until `wait` returns False.

    If nothing was added, it calls `wait`, or sleeps for a fifth of a second. If another file takes the name, or the
    file becomes shorter, the rest of the old file is read, and then the new one from its start. Memory holds the
    lines that were added since the last read, 4 MB at most.

    Bytes that are not UTF-8 are replaced by U+FFFD and counted in `cleaning`; if that is strict, they are an error
    after the lines before them.
    """
    cleaning = cleaning or Cleaning("replace")
    files: list[IO[bytes]] = [path.open("rb")]
    while files:
        with files.pop() as file:
            pieces = _growing(path, file, wait, files)
            yield from batches_of_text(str(path), _clean_lines(pieces, str(path), cleaning), _READ_AT_ONCE)


def _growing(
    path: Path, file: IO[bytes], wait: Callable[[], bool] | None, next_files: list[IO[bytes]]
) -> Iterator[bytes]:
    """Yield what a file has and what is added to it, until `wait` returns False or another one takes its place."""
    while True:
        if piece := file.read(_READ_AT_ONCE):
            yield piece
        elif (new := _reopened(path, file)) is not None:
            next_files.append(new)
            return
        elif wait is None:
            time.sleep(0.2)
        elif not wait():
            return


def _reopened(path: Path, file: IO[bytes]) -> IO[bytes] | None:
    """Open the file again if another one has its name or it became shorter; None if it is the same or missing."""
    try:
        there, ours = path.stat(), os.fstat(file.fileno())
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) and there.st_size >= file.tell():
            return None
        return path.open("rb")
    except FileNotFoundError:
        return None


def _clean_lines(pieces: Iterator[bytes], name: str, cleaning: Cleaning) -> Iterator[bytes]:
    """Yield blocks of whole lines; those before an invalid line come before its error."""
    number = 1
    for block in whole_lines(pieces, _LONGEST_LINE):
        try:
            clean = cleaning.valid_utf8(block, name, number)
        except EncodingError as error:
            yield b"".join(line + b"\n" for line in block.split(b"\n", error.line - number)[:-1])
            raise
        yield clean.replace(b"\r\n", b"\n")
        number += len(line_ends(block))


# -- labelled lines ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detection:
    """How well surprisal distinguishes anomalies from normal lines."""

    records: int
    anomalies: int
    average_precision: float
    auroc: float

    @property
    def baseline(self) -> float:
        """The average precision of a random order, which is the share of anomalies (its AUROC is 0.5)."""
        return self.anomalies / self.records

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {**asdict(self), "random_average_precision": self.baseline}


def detect(
    lm: LanguageModel, corpus: Corpus, labels: str, *, by: By = "mean", progress: Reports = False
) -> Detection:
    """Measure how well surprisal finds the records that the field `labels` marks as anomalies."""
    if any(form_of(path) == "text" for path in corpus.paths) or not corpus.paths:
        raise CorpusError(
            f"{corpus.name}: text has no labels; they are a field of .jsonl, .csv, .tsv or .parquet files"
        )
    given: list[tuple[int | str, str]] = []  # checked later, since a missing field is the first error to report
    for path in corpus.paths:
        fields, name = Fields(corpus.fields.text, labels), corpus.name_of(path)
        records = read_records(path, name, fields, corpus.cleaning)
        given += [(record.label, f"{name}: record {record.number}") for record in records]
    unknown = UnknownTokens(LanguageModel.expect(lm))
    batches = unknown.counted(scored_batches(lm, record_batches(corpus, tokens_at_once(lm))))
    scores = np.concatenate([batch.surprisals(by) for batch in batches])
    is_anomaly = np.asarray([_truth(label, place, labels) for label, place in given])
    if is_anomaly.all() or not is_anomaly.any():
        which = "are anomalies" if is_anomaly.all() else "are normal"
        raise CorpusError(f'{corpus.name}: by its field "{labels}" all records {which}; both are needed to measure')
    unknown.note(as_progress(progress))
    found = average_precision(scores, is_anomaly), auroc(scores, is_anomaly)
    return Detection(len(scores), int(is_anomaly.sum()), *found)


def _truth(label: int | str, place: str, name: str) -> bool:
    word = label.strip().lower() if isinstance(label, str) else ""
    if word in ("1", "1.0", "true", "yes", "anomaly", "anomalous"):
        return True
    if word in ("0", "0.0", "false", "no", "normal", "-"):
        return False
    shown = repr(label) if isinstance(label, str) else "nothing"
    raise CorpusError(
        f'{place}: the label "{name}" should be true or false (1 or 0, anomaly or normal), found {shown}'
    )


def average_precision(scores: NDArray[np.float64], is_positive: NDArray[np.bool_]) -> float:
    """Return the mean precision at each positive of the ranking; equal scores count as one step."""
    order = np.argsort(-scores, kind="stable")
    positives = np.cumsum(is_positive[order])
    # the last of equal scores
    steps = np.append(np.flatnonzero(scores[order][1:] != scores[order][:-1]), len(scores) - 1)
    recall, precision = positives[steps] / positives[-1], positives[steps] / (steps + 1)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def auroc(scores: NDArray[np.float64], is_positive: NDArray[np.bool_]) -> float:
    """Return p(a positive scores higher than a negative), ties counted half, from the ranks (Mann and Whitney)."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))
