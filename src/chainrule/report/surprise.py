"""A text under several models, aligned on its bytes, so that models with different tokens compare.

The unit is the word: a run of visible characters with the white space before it, or a line end. The surprisal of a
token is spread evenly over its bytes, and the surprisal of a word is the sum over its bytes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from chainrule.comparison.surprisals import Surprisals
from chainrule.evaluation.intervals import FEWEST, among, drawn_sums, middle_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST_WORD = 24  # characters; a text without white space, such as DNA, is cut into words of this length
_EAST_ASIAN = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"  # written without white space: each character is a word
_WORD = re.compile(rf"\n|[^\S\n]*(?:[{_EAST_ASIAN}]|[^\s{_EAST_ASIAN}]{{1,{LONGEST_WORD}}})|[^\S\n]+")


@dataclass(frozen=True)
class Words:
    """The words of a text; joined, they are the text."""

    words: list[str]
    edges: Ints
    """The byte at which each word begins, and, at the end, the length of the text."""

    @property
    def is_text(self) -> NDArray[np.bool_]:
        """True for each word that is more than white space."""
        return np.fromiter((not word.isspace() for word in self.words), np.bool_, len(self.words))

    @property
    def line(self) -> Ints:
        """The number of the line of each word; a line end belongs to the line that it ends."""
        is_end = np.fromiter((word == "\n" for word in self.words), np.int64, len(self.words))
        return np.cumsum(is_end) - is_end

    def bits(self, surprisals: Surprisals) -> Floats:
        """Return the surprisal of each word under a model, in bits."""
        return np.diff(surprisals.total_before(self.edges)) / math.log(2)


def words_of(text: str) -> Words:
    """Split a text into words.

    >>> words_of("to be\\nor").words
    ['to', ' be', '\\n', 'or']
    """
    words = _WORD.findall(text)
    sizes = map(len, words) if text.isascii() else (len(word.encode()) for word in words)
    return Words(words, np.asarray([0, *accumulate(sizes)], dtype=np.int64))


# -- surprisal by position and by frequency ---------------------------------------------------------------


@dataclass(frozen=True)
class Bins:
    """The mean surprisal for each model and each class of bytes, words or tokens."""

    by: str
    """What the classes are classes of, for the axis of a chart."""
    loss: str
    """The name of the mean."""
    labels: list[str]
    amounts: list[int]
    """The number of bytes, words or tokens in each class."""
    means: dict[str, list[float]]
    intervals: dict[str, list[tuple[float, float] | None]] = field(default_factory=dict)
    """Of each mean, over the documents of the text; None where too few documents have the class."""
    equal: list[list[str]] = field(default_factory=list)
    """For each class, the models that the text cannot tell from the best there."""


_FEWEST_BYTES = 64  # of a class; the mean of fewer is mostly noise


def by_position(block: bytes, models: dict[str, Surprisals], *, lines: bool) -> Bins:
    """Return bits per byte by the distance from the beginning of each line, or of the whole text."""
    ends = np.asarray([len(block)])
    if lines:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    longest = int((ends - starts).max())
    edges = [0, 4 if lines else 256]
    while edges[-1] < longest:
        edges.append(2 * edges[-1])
    found = Bins(
        f"byte of the {'line' if lines else 'text'}", "bits per byte", [], [], {name: [] for name in models}
    )
    for low, high in pairwise(edges):
        spans = np.minimum(starts + low, ends), np.minimum(starts + high, ends)
        amount = int((spans[1] - spans[0]).sum())
        if amount >= _FEWEST_BYTES:
            found.labels.append(f"{low:,}-{min(high, longest) - 1:,}")
            found.amounts.append(amount)
            for name, surprisals in models.items():
                found.means[name].append(float(_bits(surprisals, spans).sum() / amount))
    return found


def by_training_count(unigram: Surprisals, tokens: int, block: bytes, models: dict[str, Surprisals]) -> Bins:
    """Return bits per token by its count in the training text, computed from its relative frequency there."""
    # p = c / N of the training text, so c = N exp(-nats); line ends are left out
    counts = np.rint(np.exp(-unigram.nats.astype(np.float64)) * tokens)
    begin, end = unigram.starts, unigram.ends
    inside = np.frombuffer(block, np.uint8)[end - 1] != ord("\n")
    classes = {0: "0", 1: "1", 2: "2-9", 10: "10-99", 100: "100-999", 1000: "1,000-9,999"}
    classes |= {10**4: "10,000-99,999", 10**5: "100,000+"}
    spans = begin[inside], end[inside]
    return _by_class(
        "times the token stands in the training text", "bits per token", counts[inside], classes, spans, models
    )


def by_rank(words: Words, models: dict[str, Surprisals]) -> Bins:
    """Return bits per word by the rank of the word in this text, the most frequent first."""
    is_text = words.is_text
    spelled = [word.strip() for word, real in zip(words.words, is_text.tolist(), strict=True) if real]
    rank = {word: number for number, (word, _) in enumerate(Counter(spelled).most_common())}
    ranks = np.fromiter((rank[word] for word in spelled), np.int64, len(spelled))
    classes = {0: "1-10", 10: "11-100", 100: "101-1,000", 1000: "1,001-10,000", 10**4: "10,001-100,000"}
    classes |= {10**5: "100,001+"}
    spans = words.edges[:-1][is_text], words.edges[1:][is_text]
    return _by_class("rank of the word in the held-out text", "bits per word", ranks, classes, spans, models)


def _by_class(
    by: str,
    loss: str,
    values: NDArray[np.number],
    classes: dict[int, str],
    spans: tuple[Ints, Ints],
    models: dict[str, Surprisals],
) -> Bins:
    """Return the mean bits of spans by the class of their value; a class has a lowest value and a name."""
    places = np.searchsorted([*classes], values, side="right") - 1
    amounts = np.bincount(places, minlength=len(classes))
    there = np.flatnonzero(amounts).tolist()
    means = {}
    for name, found in models.items():
        totals = np.bincount(places, weights=_bits(found, spans), minlength=len(classes))
        means[name] = (totals[there] / amounts[there]).tolist()
    labels = [*classes.values()]
    return Bins(by, loss, [labels[i] for i in there], amounts[there].tolist(), means)


def _bits(surprisals: Surprisals, spans: tuple[Ints, Ints]) -> Floats:
    """Return the surprisal of each span of bytes, in bits."""
    return (surprisals.total_before(spans[1]) - surprisals.total_before(spans[0])) / math.log(2)


# -- surprisal by kind of word ----------------------------------------------------------------------------

FREQUENT, RECENT, BEGINNING = 100, 200, 20
KINDS = {
    "frequent": f"one of the {FREQUENT} most frequent words of the text",
    "rare": "stands once in the text",
    "numbers": "has a digit",
    "names": "has a capital letter, and begins neither a line nor a sentence",
    "line starts": "the first word of a line",
    "repeated": f"not frequent, and one of the {RECENT} words before it in its document",
    "document starts": f"one of the first {BEGINNING} words of a document",
    "later": "further on in a document",
}
"""The kinds of words, and what they are; a word may be of several. An empty line ends a document."""
_FEWEST_WORDS = 20  # of a kind; the mean of fewer is mostly noise
_MARKS = " \t\"'`.,;:!?()[]{}<>*_~-\u2013\u2014\u2018\u2019\u201c\u201d\u2026"  # that may stand around a word


def by_kind(words: Words, models: dict[str, Surprisals], sizes_D: Ints) -> Bins:
    """Return bits per word by kind of word, with intervals over documents of so many bytes."""
    found = {kind: places for kind, places in _places_by_kind(words.words).items() if len(places) >= _FEWEST_WORDS}
    bits = {name: words.bits(surprisals) for name, surprisals in models.items()}
    means = {name: [float(values[places].mean()) for places in found.values()] for name, values in bits.items()}
    bins = Bins("kind of word", "bits per word", [*found], [*map(len, found.values())], means)
    document = np.searchsorted(np.cumsum(sizes_D), words.edges[:-1], side="right")
    rows = [  # for each kind: its bits under each model, and its words, in each document
        np.bincount(document[places], weights=values, minlength=len(sizes_D))
        for places in found.values()
        for values in (*(one[places] for one in bits.values()), None)
    ]
    drawn = drawn_sums(np.stack(rows).astype(np.float64)) if rows else np.zeros((0, 0))
    bins.intervals.update({name: [] for name in models})
    width = len(models) + 1
    for number in range(len(found)):
        sums = drawn[:, number * width : (number + 1) * width]
        sums = sums[sums[:, -1] > 0]  # without the few draws in which no word is of the kind
        _add_intervals(
            bins, number, sums[:, :-1] / sums[:, -1:], int(np.count_nonzero(rows[(number + 1) * width - 1]))
        )
    return bins


def _add_intervals(bins: Bins, number: int, drawn_RM: Floats, documents: int) -> None:
    """Add the intervals of one class, and the models that cannot be told from its best."""
    names = [*bins.means]
    best = min(range(len(names)), key=lambda one: bins.means[names[one]][number])
    # of all differences in the table one would be there by chance
    comparisons = len(bins.labels) * (len(names) - 1)
    is_known = documents >= FEWEST
    for name, draws in zip(names, drawn_RM.T, strict=True):
        bins.intervals[name].append(middle_of(draws) if is_known else None)
    others = [one for one in range(len(names)) if one != best]
    behind = {names[one]: among(drawn_RM[:, one] - drawn_RM[:, best], comparisons)[0] for one in others if is_known}
    bins.equal.append([name for name, low in behind.items() if low <= 0])


def _places_by_kind(words: list[str]) -> dict[str, list[int]]:
    bare = [word.strip(_MARKS) for word in words]
    counts = Counter(word.casefold() for word in bare if word and not word.isspace())
    frequent = {word for word, count in counts.most_common(FREQUENT) if count > 1}
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    before, seen, number = "\n", dict[str, int](), 0  # `number` of the word in its document; `seen`: its last one
    for place, (word, name) in enumerate(zip(words, bare, strict=True)):
        if word == before == "\n":
            seen, number = {}, 0
        spelled = name.casefold()
        if spelled in counts:
            begins = before == "\n" or before.rstrip("\"'\u201d\u2019)")[-1:] in {*".!?:"}
            is_of = {
                "frequent": spelled in frequent,
                "rare": counts[spelled] == 1,
                "numbers": any(map(str.isdigit, name)),
                "names": name[0].isupper() and name[1:2].isalnum() and not begins,
                "line starts": before == "\n",
                "repeated": spelled not in frequent and number - seen.get(spelled, -math.inf) <= RECENT,
                "document starts": number < BEGINNING,
                "later": number >= BEGINNING,
            }
            for kind in filter(is_of.get, KINDS):
                found[kind].append(place)
            seen[spelled], number = number, number + 1
        before = word
    return found


# -- where one model beats another ------------------------------------------------------------------------

LONGEST_SPAN = 8
"""Words in a span, at most."""


@dataclass(frozen=True)
class Span:
    """Some words of a line, and their surprisal under two models."""

    first: int
    """The first word."""
    last: int
    """One past the last word."""
    bits: float
    """Under the better model."""
    bits_of_other: float


def best_spans(better: Floats, other: Floats, line: Ints, count: int) -> list[Span]:
    """Return the spans of at most LONGEST_SPAN words of a line in which a model gains most over another.

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
        for length in range(2, LONGEST_SPAN + 1):  # spans that begin before it and overlap it
            gains[length - 1, max(first - length + 1, 0) : first] = -np.inf
        touched = slice(max(first - LONGEST_SPAN, 0), last)
        best[touched], lengths[touched] = gains[:, touched].max(axis=0), gains[:, touched].argmax(axis=0) + 1
    return found
