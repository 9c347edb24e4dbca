"""Word errors: the fewest substitutions, insertions and deletions of words that make a reference of a hypothesis.

WER = Σ errors / Σ words of the references
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.tasks.nbest.lists import NbestList

_RESAMPLED_AT_ONCE = 1 << 22  # numbers


def edit_distance(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The fewest substitutions, insertions and deletions of items that make one sequence of the other.

    >>> edit_distance("show me flights".split(), "show flights to".split())
    2
    """
    # what both begin or end with costs nothing, and is most of a hypothesis
    begin, longest = 0, min(len(one), len(other))
    while begin < longest and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < longest - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[begin : len(one) - end], other[begin : len(other) - end]
    # row[j]: the distance of what was read of `one` from the first j items of `other`
    row = list(range(len(other) + 1))
    for i, item in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, target in enumerate(other, start=1):
            before, row[j] = row[j], min(before + (item != target), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def word_errors(lists: Sequence[NbestList]) -> tuple[list[np.ndarray], np.ndarray]:
    """The word errors of each hypothesis of each list, and the number of words of each reference."""
    errors, words = [], []
    for one in lists:
        assert one.reference is not None
        reference = one.reference.split()
        of = {text: edit_distance(text.split(), reference) for text in dict.fromkeys(one.hypotheses)}
        errors.append(np.asarray([of[text] for text in one.hypotheses]))
        words.append(len(reference))
    return errors, np.asarray(words)


@dataclass(frozen=True)
class Interval:
    """A figure with a 95 % confidence interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """The figure as JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class WordErrorRates:
    """The word error rates of lists before and after re-ranking, and of the best choice there is."""

    lists: int
    words: int
    before: Interval
    """Of the first hypotheses."""
    after: Interval
    oracle: Interval
    """Of the hypotheses with the fewest errors."""
    reduction: Interval
    """1 - after / before: the share of errors that re-ranking removes; its interval is of pairs."""

    @classmethod
    def of(
        cls,
        errors: Sequence[np.ndarray],
        words: np.ndarray,
        chosen: Sequence[int],
        *,
        resamples: int = 2000,
        seed: int = 0,
    ) -> WordErrorRates:
        """The rates where one hypothesis of each list is chosen; intervals by resampling utterances."""
        columns_4N = np.asarray(
            [
                [some[0] for some in errors],
                [some[i] for some, i in zip(errors, chosen, strict=True)],
                [some.min() for some in errors],
                words,
            ],
            dtype=np.float64,
        )
        sums_4R = _resampled_sums(columns_4N, resamples, seed)
        whole_4 = columns_4N.sum(axis=1)

        def interval(figures: np.ndarray, value: float) -> Interval:
            low, high = np.quantile(figures, [0.025, 0.975]).tolist()
            return Interval(float(value), low, high)

        before, after, oracle = (
            interval(_ratio(sums_4R[i], sums_4R[3]), _ratio(whole_4[i], whole_4[3])) for i in range(3)
        )
        reduction = interval(1 - _ratio(sums_4R[1], sums_4R[0]), 1 - _ratio(whole_4[1], whole_4[0]))
        return cls(len(errors), int(whole_4[3]), before, after, oracle, reduction)

    def to_json(self) -> dict[str, Any]:
        """The rates as JSON."""
        figures = {name: getattr(self, name).to_json() for name in ("before", "after", "oracle", "reduction")}
        return {"lists": self.lists, "words": self.words, **figures}


def _resampled_sums(columns_DN: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The sums of columns over samples of as many utterances, drawn with replacement, [D, R] (the bootstrap)."""
    generator, count = np.random.default_rng(seed % 2**64), columns_DN.shape[1]
    at_once = max(1, _RESAMPLED_AT_ONCE // count)
    pieces = [
        columns_DN[:, generator.integers(count, size=(min(at_once, resamples - done), count))].sum(axis=2)
        for done in range(0, resamples, at_once)
    ]
    return np.concatenate(pieces, axis=1)


def _ratio(above: Any, below: Any) -> Any:
    """The ratio; 1 where both are 0, so that nothing to be reduced is a reduction of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            np.asarray(below) == 0, np.where(np.asarray(above) == 0, 1.0, np.inf), np.divide(above, below)
        )
