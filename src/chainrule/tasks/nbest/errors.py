"""Word errors: the fewest substitutions, insertions and deletions of words between a hypothesis and its reference.

WER = Σ errors / Σ words of the references
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.evaluation.intervals import middle_of
from chainrule.system.display import PlainResult
from chainrule.tasks.nbest.lists import NbestList

_RESAMPLED_AT_ONCE = 1 << 22  # numbers


def word_errors(lists: Sequence[NbestList]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the word errors of each hypothesis of each list, and the number of words of each reference.

    >>> errors, words = word_errors([NbestList(("show flights to", "show me flights"), {}, "show me flights")])
    >>> errors[0].tolist(), words.tolist()
    ([2, 0], [3])
    """
    from rapidfuzz.distance import Levenshtein

    errors, words = [], []
    for one in lists:
        assert one.reference is not None
        reference = one.reference.split()
        errors.append(np.asarray([Levenshtein.distance(text.split(), reference) for text in one.hypotheses]))
        words.append(len(reference))
    return errors, np.asarray(words)


@dataclass(frozen=True)
class Estimate:
    """A figure with a 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WordErrorRates(PlainResult):
    """The word error rates of lists before and after re-ranking, and of the best possible choice."""

    lists: int
    words: int
    before: Estimate
    """The rate of the first hypotheses."""
    after: Estimate
    oracle: Estimate
    """The rate of the hypotheses with the fewest errors."""
    reduction: Estimate
    """1 - after / before: the share of errors that re-ranking removes; both rates are of the same draws."""

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
        """Return the rates for one chosen hypothesis of each list, with intervals by resampling utterances."""
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

        def estimate(figures: np.ndarray, value: float) -> Estimate:
            return Estimate(float(value), *middle_of(figures))

        before, after, oracle = (
            estimate(_ratio(sums_4R[i], sums_4R[3]), _ratio(whole_4[i], whole_4[3])) for i in range(3)
        )
        reduction = estimate(1 - _ratio(sums_4R[1], sums_4R[0]), 1 - _ratio(whole_4[1], whole_4[0]))
        return cls(len(errors), int(whole_4[3]), before, after, oracle, reduction)


def _resampled_sums(columns_DN: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Return the sums of columns over bootstrap samples of the utterances, [D, R]."""
    generator, count = np.random.default_rng(seed % 2**64), columns_DN.shape[1]
    at_once = max(1, _RESAMPLED_AT_ONCE // count)
    pieces = [
        columns_DN[:, generator.integers(count, size=(min(at_once, resamples - done), count))].sum(axis=2)
        for done in range(0, resamples, at_once)
    ]
    return np.concatenate(pieces, axis=1)


def _ratio(above: Any, below: Any) -> Any:
    """Return the ratio; 1 where both are 0, so that no errors before and after are a reduction of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            np.asarray(below) == 0, np.where(np.asarray(above) == 0, 1.0, np.inf), np.divide(above, below)
        )
