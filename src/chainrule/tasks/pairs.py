"""Minimal pairs: two sentences that differ in one point, one of them right (Marvin and Linzen 2018; BLiMP).

A model that knows the language gives the right sentence the greater probability. A tie counts half, as for a model
that guesses.

>>> import chainrule as cr
>>> lm = cr.train("ngram", ["the cat sleeps", "the cats sleep"], order=2, smoothing="laplace", tokenizer="word")
>>> pairs = [("the cat sleeps", "the cat sleep"), ("the cats sleep", "the cats sleeps")]
>>> judged = cr.tasks.minimal_pairs(lm, pairs)
>>> judged.accuracy, judged.fewer_tokens
(1.0, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np

from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.errors import CorpusError
from chainrule.evaluation.surprisal import score
from chainrule.masked.contract import MaskedModel
from chainrule.masked.pseudo import pseudo_log_likelihoods
from chainrule.system.display import PlainResult
from chainrule.system.progress import Reports, as_progress
from chainrule.tasks.objects import read_objects, text_field
from chainrule.tokens.base import utf8

By: TypeAlias = Literal["total", "mean"]

GROUPS = ("linguistics_term", "UID", "phenomenon", "field")
"""The fields that may name a phenomenon; the first one that a record has counts."""
EVERYTHING = "all"
"""The phenomenon of pairs that name none."""
_AT_ONCE = 1024  # pairs


@dataclass(frozen=True)
class MinimalPair:
    """A right and a wrong sentence, and their phenomenon."""

    good: str
    bad: str
    phenomenon: str = EVERYTHING
    place: str = field(default="", compare=False)
    """Its place, such as a line of a file, for messages."""

    @property
    def is_equal(self) -> bool:
        """True if both sentences are equal, so that every model gives a tie. BLiMP has seven such pairs."""
        return self.good == self.bad


GivenMinimalPairs: TypeAlias = str | Path | Iterable[MinimalPair | tuple[str, str] | tuple[str, str, str]]
"""Minimal pairs as callers give them: a file, or pairs in memory."""


@dataclass(frozen=True)
class JudgedPair:
    """A pair with ln p, or the pseudo-log-likelihood, of both sentences, in total or per token."""

    pair: MinimalPair
    good: float
    bad: float
    fewer_tokens: float
    """1 if the right sentence has fewer tokens than the wrong one, 0 if it has more, else 0.5."""
    is_same: bool
    """True if both sentences have the same tokens, as if only unknown words differ."""

    @property
    def credit(self) -> float:
        """1 if the right sentence is preferred, 0 if the wrong one is, 0.5 for a tie."""
        if self.is_same or self.good == self.bad:
            return 0.5
        return float(self.good > self.bad)

    def to_json(self) -> dict[str, Any]:
        """Return the pair as JSON."""
        return {
            "good": self.pair.good,
            "bad": self.pair.bad,
            "phenomenon": self.pair.phenomenon,
            "good_log_prob": self.good,
            "bad_log_prob": self.bad,
            "credit": self.credit,
        }


@dataclass(frozen=True)
class Phenomenon(PlainResult):
    """The accuracy of a model on the pairs of one phenomenon."""

    name: str
    pairs: int
    ties: int
    accuracy: float
    """The share of pairs whose right sentence is preferred; a tie counts half."""
    interval: tuple[float, float]
    """Its 95 % confidence interval (Wilson)."""
    fewer_tokens: float
    """The accuracy of a baseline that prefers the sentence of fewer tokens."""

    @classmethod
    def of(cls, name: str, judged: Sequence[JudgedPair]) -> Phenomenon:
        """Return the figures of some pairs."""
        credits_N = np.asarray([one.credit for one in judged])
        accuracy = float(credits_N.mean())
        baseline = float(np.mean([one.fewer_tokens for one in judged]))
        ties = int((credits_N == 0.5).sum())
        return cls(name, len(judged), ties, accuracy, wilson(accuracy, len(judged)), baseline)


@dataclass(frozen=True)
class JudgedPairs:
    """The accuracy of a model on minimal pairs: all of them, and those of each phenomenon."""

    whole: Phenomenon
    phenomena: tuple[Phenomenon, ...]
    """The phenomena in the order of their first pairs."""
    pairs: tuple[JudgedPair, ...]
    by: By

    @property
    def accuracy(self) -> float:
        """The share of pairs whose right sentence is preferred; a tie counts half."""
        return self.whole.accuracy

    @property
    def fewer_tokens(self) -> float:
        """The accuracy of a baseline that prefers the sentence of fewer tokens."""
        return self.whole.fewer_tokens

    @property
    def equal(self) -> tuple[MinimalPair, ...]:
        """The pairs of equal sentences, which count as ties."""
        return tuple(one.pair for one in self.pairs if one.pair.is_equal)

    @property
    def mean_accuracy(self) -> float:
        """The mean of the accuracies of the phenomena."""
        return math.fsum(one.accuracy for one in self.phenomena) / len(self.phenomena)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON; the pairs themselves are left out."""
        more = {"equal_sentences": len(self.equal), "mean_accuracy": self.mean_accuracy, "by": self.by}
        return {**self.whole.to_json(), **more, "phenomena": [one.to_json() for one in self.phenomena]}


def minimal_pairs(
    model: Model, pairs: GivenMinimalPairs, *, by: By = "total", progress: Reports = False
) -> JudgedPairs:
    """Measure how often a model prefers the right sentence of each pair, by ln p of both.

    A masked model compares pseudo-log-likelihoods. `by="mean"` compares ln p per token instead of the total, for
    sentences of different lengths.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> cr.tasks.minimal_pairs(lm, [("i love cats", "cats love i")]).whole.accuracy
    1.0
    """
    if isinstance(pairs, (str, Path)):
        pairs = read_pairs(pairs)
    receiver = as_progress(progress)
    with receiver.task("judging", unit="pairs") as task:
        judged = []
        for one in judge(model, pairs, by=by):
            judged.append(one)
            task.advance(1)
    result = summed_up(judged, by)
    if equal := result.equal:
        receiver.note(
            f"pairs of equal sentences, which count as ties: {len(equal):,}; the first is {equal[0].place}"
        )
    return result


def summed_up(judged: Sequence[JudgedPair], by: By) -> JudgedPairs:
    """Return the accuracies of judged pairs."""
    if not judged:
        raise CorpusError("there are no pairs to judge")
    if all(one.pair.is_equal for one in judged):
        first = judged[0].pair
        raise CorpusError(f"{first.place}: the sentences of each pair are equal: {first.good!r}")
    groups: dict[str, list[JudgedPair]] = {}
    for one in judged:
        groups.setdefault(one.pair.phenomenon, []).append(one)
    phenomena = tuple(Phenomenon.of(name, some) for name, some in groups.items())
    return JudgedPairs(Phenomenon.of(EVERYTHING, judged), phenomena, tuple(judged), by)


def judge(
    model: Model, pairs: Iterable[MinimalPair | tuple[str, str] | tuple[str, str, str]], *, by: By = "total"
) -> Iterator[JudgedPair]:
    """Yield each pair with ln p of both sentences; many pairs are scored at once."""
    if not isinstance(model, (LanguageModel, MaskedModel)):
        LanguageModel.expect(model)  # raises an error that names the function for other tasks
    every = (
        one if isinstance(one, MinimalPair) else replace(MinimalPair(*one), place=f"pair {number}")
        for number, one in enumerate(pairs)
    )
    while some := list(islice(every, _AT_ONCE)):
        log_probs, tokens = _scored(model, [sentence for pair in some for sentence in (pair.good, pair.bad)])
        for number, pair in enumerate(some):
            good, bad = 2 * number, 2 * number + 1
            lengths = len(tokens[good]), len(tokens[bad])
            divisors = lengths if by == "mean" else (1, 1)
            yield JudgedPair(
                pair,
                log_probs[good] / max(1, divisors[0]),
                log_probs[bad] / max(1, divisors[1]),
                fewer_tokens=0.5 + 0.5 * ((lengths[0] < lengths[1]) - (lengths[0] > lengths[1])),
                is_same=tokens[good] == tokens[bad],
            )


def _scored(model: Model, sentences: list[str]) -> tuple[list[float], list[tuple[int, ...]]]:
    """Return ln p of each sentence, or its pseudo-log-likelihood, and its tokens."""
    if isinstance(model, MaskedModel):
        rows = [model.tokenizer.encode_lines(utf8(sentence)) for sentence in sentences]  # a line ends in </s>
        log_probs = [float(found.sum()) for found in pseudo_log_likelihoods(model, rows)]
        return log_probs, [tuple(row.tolist()) for row in rows]
    scores = score(LanguageModel.expect(model), sentences)
    return scores.log_prob.tolist(), [scores[number].ids for number in range(len(scores))]


def read_pairs(
    path: str | Path, *, good: str = "sentence_good", bad: str = "sentence_bad", group: str | None = None
) -> Iterator[MinimalPair]:
    """Yield the pairs of a file of JSON objects, by default with the field names of BLiMP.

    `group` is the field that names the phenomenon; by default the first of GROUPS that a record has.
    """
    place = None
    for place, record in read_objects(path):
        right, wrong = text_field(record, good, place, "--good"), text_field(record, bad, place, "--bad")
        name = group or next((one for one in GROUPS if one in record), None)
        phenomenon = text_field(record, name, place, "--group") if name else EVERYTHING
        yield MinimalPair(right, wrong, phenomenon, place)
    if place is None:
        raise CorpusError(f"{path}: there are no pairs to judge")


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share of `count` trials by Wilson's score.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    """
    z2 = NormalDist().inv_cdf(0.975) ** 2
    middle = share + z2 / (2 * count)
    spread = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    return max(0.0, (middle - spread) / (1 + z2 / count)), min(1.0, (middle + spread) / (1 + z2 / count))
