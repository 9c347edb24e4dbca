"""Word errors: the fewest substitutions, insertions and deletions of words between a hypothesis and its reference.

WER = Σ errors / Σ words of the references
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.evaluation.intervals import drawn_sums, middle_of
from chainrule.system.display import PlainResult
from chainrule.tasks.nbest.lists import NbestList


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
        # all utterances, then each draw of them
        sums_4S = np.vstack([columns_4N.sum(axis=1), drawn_sums(columns_4N, seed, resamples)]).T
        before, after, oracle = (_estimate(_ratio(sums_S, sums_4S[3])) for sums_S in sums_4S[:3])
        reduction = _estimate(1 - _ratio(sums_4S[1], sums_4S[0]))
        return cls(len(errors), int(sums_4S[3, 0]), before, after, oracle, reduction)


def _estimate(figures_S: np.ndarray) -> Estimate:
    return Estimate(float(figures_S[0]), *middle_of(figures_S[1:]))


def _ratio(above_S: np.ndarray, below_S: np.ndarray) -> np.ndarray:
    """Return the ratio; 1 where both are 0, so that no errors before and after are a reduction of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((above_S == 0) & (below_S == 0), 1.0, above_S / below_S)
