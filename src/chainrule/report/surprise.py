"""A text under several models, aligned on its bytes, so that models with different tokens compare.

The unit is the word: a run of visible characters with the white space before it, or a line end. What a token takes
to write is spread evenly over its bytes, and a word takes what its bytes take.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from chainrule.comparison.surprisals import Surprisals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST_WORD = 24  # characters; a text without white space, such as DNA, is cut into words of this length
_EAST_ASIAN = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"  # written without white space: each character is a word
_WORD = re.compile(
    rf"\n|[^\S\n]*(?:[{_EAST_ASIAN}]|[^\s{_EAST_ASIAN}]{{1,{LONGEST_WORD}}})|[^\S\n]+",
)


@dataclass(frozen=True)
class Words:
    """The words of a text; together they are the text."""

    words: list[str]
    edges: Ints
    """The byte at which each word begins, and, at the end, the length of the text."""

    @property
    def is_text(self) -> NDArray[np.bool_]:
        """Which words are more than white space."""
        return np.fromiter((not word.isspace() for word in self.words), np.bool_, len(self.words))

    @property
    def line(self) -> Ints:
        """The number of the line that each word stands in; a line's end stands in it."""
        is_end = np.fromiter((word == "\n" for word in self.words), np.int64, len(self.words))
        return np.cumsum(is_end) - is_end

    def bits(self, surprisals: Surprisals) -> Floats:
        """The bits that each word takes under a model."""
        return np.diff(surprisals.total_before(self.edges)) / math.log(2)


def words_of(text: str) -> Words:
    """The words of a text, with their places in its bytes."""
    words = _WORD.findall(text)
    sizes = map(len, words) if text.isascii() else (len(word.encode()) for word in words)
    return Words(words, np.asarray([0, *accumulate(sizes)], dtype=np.int64))


# -- where in its context a model does well ---------------------------------------------------------------


@dataclass(frozen=True)
class Bins:
    """A mean for each model and each class of bytes, words or tokens."""

    by: str
    """What the classes are of, for the axis of a chart."""
    loss: str
    """What the mean is of."""
    labels: list[str]
    amounts: list[int]
    """How many bytes, words or tokens there are in each class."""
    means: dict[str, list[float]]


_FEWEST_BYTES = 64  # of a class; a mean of fewer says nothing


def by_position(block: bytes, models: dict[str, Surprisals], *, lines: bool) -> Bins:
    """Bits per byte by the distance from the beginning of what a model reads: of each line, or of the text."""
    if lines:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        first = 4
    else:
        starts, ends, first = np.zeros(1, np.int64), np.asarray([len(block)]), 256
    longest = int((ends - starts).max())
    edges = [0, first]
    while edges[-1] < longest:
        edges.append(2 * edges[-1])
    labels, amounts, kept = [], [], []
    for low, high in pairwise(edges):
        begin, end = np.minimum(starts + low, ends), np.minimum(starts + high, ends)
        amount = int((end - begin).sum())
        if amount >= _FEWEST_BYTES:
            labels.append(f"{low:,}-{min(high, longest) - 1:,}")
            amounts.append(amount)
            kept.append((begin, end))
    means = {
        name: [
            float((found.total_before(end) - found.total_before(begin)).sum() / math.log(2) / amount)
            for (begin, end), amount in zip(kept, amounts, strict=True)
        ]
        for name, found in models.items()
    }
    where = "line" if lines else "text"
    return Bins(f"byte of the {where}", "bits per byte", labels, amounts, means)


def by_training_count(unigram: Surprisals, tokens: int, block: bytes, models: dict[str, Surprisals]) -> Bins:
    """Bits per token by how often it stands in the training text, which relative frequencies (MLE) tell."""
    # p = c / N of the training text, so c = N exp(-nats); the end of a line is left out
    counts = np.rint(np.exp(-unigram.nats.astype(np.float64)) * tokens)
    begin, end = unigram.starts, unigram.ends
    inside = np.frombuffer(block, np.uint8)[end - 1] != ord("\n")
    classes = np.asarray([0, 1, 2, 10, 100, 1000, 10**4, 10**5])
    labels = ["0", "1", "2-9", "10-99", "100-999", "1,000-9,999", "10,000-99,999", "100,000+"]
    return _by_class(
        "times the token stands in the training text",
        "bits per token",
        np.searchsorted(classes, counts[inside], side="right") - 1,
        labels,
        (begin[inside], end[inside]),
        models,
    )


def by_rank(words: Words, models: dict[str, Surprisals]) -> Bins:
    """Bits per word by the rank of the word in this text, the most frequent first."""
    is_text = words.is_text
    spelled = [word.strip() for word, real in zip(words.words, is_text.tolist(), strict=True) if real]
    rank = {word: number for number, (word, _) in enumerate(Counter(spelled).most_common())}
    ranks = np.fromiter((rank[word] for word in spelled), np.int64, len(spelled))
    classes = np.asarray([0, 10, 100, 1000, 10**4, 10**5])
    labels = ["1-10", "11-100", "101-1,000", "1,001-10,000", "10,001-100,000", "100,001+"]
    return _by_class(
        "rank of the word in the held-out text",
        "bits per word",
        np.searchsorted(classes, ranks, side="right") - 1,
        labels,
        (words.edges[:-1][is_text], words.edges[1:][is_text]),
        models,
    )


def _by_class(
    by: str,
    loss: str,
    classes: Ints,
    labels: Sequence[str],
    spans: tuple[Ints, Ints],
    models: dict[str, Surprisals],
) -> Bins:
    """The mean bits of spans of bytes by their class; classes that have none are left out."""
    amounts = np.bincount(classes, minlength=len(labels))
    there = np.flatnonzero(amounts).tolist()
    means = {}
    for name, found in models.items():
        bits = (found.total_before(spans[1]) - found.total_before(spans[0])) / math.log(2)
        totals = np.bincount(classes, weights=bits, minlength=len(labels))
        means[name] = (totals[there] / amounts[there]).tolist()
    return Bins(by, loss, [labels[i] for i in there], amounts[there].tolist(), means)


# -- where one model beats another ------------------------------------------------------------------------

LONGEST_SPAN = 8
"""Words in a span, at most."""


@dataclass(frozen=True)
class Span:
    """Some words of a line, and what they take under two models."""

    first: int
    """The first word."""
    last: int
    """One past the last word."""
    bits: float
    """What the words take under the better model."""
    bits_of_other: float

    @property
    def gain(self) -> float:
        """How many bits fewer they take under the better model."""
        return self.bits_of_other - self.bits


def best_spans(better: Floats, other: Floats, line: Ints, count: int) -> list[Span]:
    """The spans of at most LONGEST_SPAN words of a line in which a model gains most over another, none twice.

    The span of the largest gain comes first; then the largest of those that do not overlap it, and so on.
    """
    n = len(better)
    gains = np.full((LONGEST_SPAN, n), -np.inf)  # of the span of length row + 1 from each word
    total = np.concatenate([np.zeros(1), np.cumsum(other - better)])
    for length in range(1, min(LONGEST_SPAN, n) + 1):
        sums = total[length:] - total[:-length]
        same_line = line[length - 1 :] == line[: n - length + 1]
        gains[length - 1, : n - length + 1] = np.where(same_line, sums, -np.inf)
    found: list[Span] = []
    best, lengths = gains.max(axis=0), gains.argmax(axis=0) + 1
    while len(found) < count and n:
        first = int(best.argmax())
        if best[first] <= 0:
            break
        last = first + int(lengths[first])
        found.append(Span(first, last, float(better[first:last].sum()), float(other[first:last].sum())))
        gains[:, first:last] = -np.inf
        for length in range(2, LONGEST_SPAN + 1):  # those that begin before it and reach into it
            gains[length - 1, max(first - length + 1, 0) : first] = -np.inf
        touched = slice(max(first - LONGEST_SPAN, 0), last)
        best[touched], lengths[touched] = gains[:, touched].max(axis=0), gains[:, touched].argmax(axis=0) + 1
    return found
