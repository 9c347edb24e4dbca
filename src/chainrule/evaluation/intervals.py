"""Confidence intervals by the bootstrap over documents: how much a figure depends on the text that was drawn.

The documents of the test text are drawn again and again, with replacement, and the figure is computed for each
draw. Models are compared on the same draws, so that documents that are hard for both do not hide a difference.
A document counts as a whole: its lines are alike, and drawing lines would give intervals that are too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
LEVEL = 0.95
"""The share of the draws inside an interval."""
FEWEST = 10
"""Documents that an interval needs: of fewer there are too few draws that differ."""

_CELLS_AT_ONCE = 1 << 22


def middle_of(draws: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest and the highest of the middle `LEVEL` of the draws.

    >>> [round(end, 2) for end in middle_of(np.arange(101.0))]
    [2.5, 97.5]
    """
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def among(draws: NDArray[np.float64], comparisons: int) -> tuple[float, float]:
    """Return the interval of one of several comparisons, wide enough that all of them hold at `LEVEL` together.

    Bonferroni's correction divides what is outside by their number. So few draws are that far outside that the
    width is taken from the normal distribution.

    >>> draws = np.random.default_rng(0).normal(size=1000)
    >>> [round(end, 1) for end in (*among(draws, 1), *among(draws, 20))]
    [-2.0, 1.9, -3.0, 2.9]
    """
    half = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / max(1, comparisons)) * float(draws.std())
    middle = float(draws.mean())
    return middle - half, middle + half


def drawn_sums(values_ND: NDArray[np.float64], seed: int = 0, draws: int = DRAWS) -> NDArray[np.float64]:
    """Return the sum of each row over each draw of the documents, [draws, N]; rows share the draws."""
    random = np.random.default_rng(seed % 2**64)
    documents = values_ND.shape[1]
    found = np.empty((draws, len(values_ND)))
    at_once = max(1, _CELLS_AT_ONCE // documents)
    shares_D = np.full(documents, 1 / documents)
    for first in range(0, draws, at_once):
        times_RD = random.multinomial(documents, shares_D, size=min(at_once, draws - first))
        # a model that gives a document probability 0 has no finite figure
        with np.errstate(invalid="ignore"):
            found[first : first + len(times_RD)] = times_RD @ values_ND.T
    return found


def drawn_bits_per_byte(
    nats_MD: NDArray[np.float64], bytes_D: NDArray[np.int64], seed: int = 0, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Return the bits per byte of each model on each draw of the documents, [draws, M]; models share the draws."""
    sums = drawn_sums(np.concatenate([nats_MD, bytes_D[None]]), seed, draws)
    return sums[:, :-1] / sums[:, -1:] / math.log(2)


def drawn_means(
    drawn_BM: NDArray[np.float64], groups: Sequence[Sequence[int]], seed: int = 0
) -> NDArray[np.float64]:
    """Return the mean of each group of columns on each draw, [draws, groups]; the columns are drawn too.

    A group is one model that was trained from several seeds, and each of its columns one training.

    >>> drawn = drawn_means(np.tile([1.0, 5.0, 7.0], (1000, 1)), [[0], [1, 2]])
    >>> [sorted(set(column.tolist())) for column in drawn.T]
    [[1.0], [5.0, 6.0, 7.0]]
    """
    random = np.random.default_rng([seed % 2**64, 1])
    rows = np.arange(len(drawn_BM))[:, None]
    chosen = (np.asarray(group)[random.integers(len(group), size=(len(rows), len(group)))] for group in groups)
    return np.stack([drawn_BM[rows, columns].mean(axis=1) for columns in chosen], axis=1)


def per_document(values: NDArray[np.floating], sizes_D: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum of each document's values; the first sizes_D[0] values are those of document 0, and so on."""
    sums: NDArray[np.float64] = np.add.reduceat(values.astype(np.float64), np.cumsum(sizes_D) - sizes_D)
    return sums
