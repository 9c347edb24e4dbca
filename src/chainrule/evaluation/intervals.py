"""Confidence intervals by the bootstrap over documents: how much a figure depends on the text that was drawn.

The documents of the test text are drawn again and again, with replacement, and the figure is computed for each
draw. Models are compared on the same draws, so that a difference is told from the documents that are hard for both.
A document counts as a whole: its lines are alike, and drawing lines would give intervals that are too narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
LEVEL = 0.95
"""The share of the draws inside an interval."""
FEWEST = 10
"""With fewer documents there are too few draws that differ."""

_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Interval:
    """The middle `LEVEL` of the draws."""

    low: float
    high: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Interval:
        """The interval of some draws."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(values, [tail, 1 - tail])
        return cls(float(low), float(high))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def drawn_bits_per_byte(
    nats_MD: NDArray[np.float64], bytes_D: NDArray[np.int64], seed: int = 0, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Bits per byte of each model on each draw of the documents, [draws, M]; models share the draws."""
    random = np.random.default_rng(seed % 2**64)
    documents = len(bytes_D)
    found = np.empty((draws, len(nats_MD)))
    at_once = max(1, _CELLS_AT_ONCE // documents)
    shares_D = np.full(documents, 1 / documents)
    for first in range(0, draws, at_once):
        times_RD = random.multinomial(documents, shares_D, size=min(at_once, draws - first))
        # in double precision; a model that gives a document probability 0 has no finite figure
        with np.errstate(invalid="ignore"):
            found[first : first + len(times_RD)] = (times_RD @ nats_MD.T) / (times_RD @ bytes_D)[:, None]
    return found / math.log(2)


def per_document(values: NDArray[np.float64], sizes_D: NDArray[np.int64]) -> NDArray[np.float64]:
    """The sum of the values of each document; `sizes_D` says how many are its own, in order."""
    starts = np.cumsum(sizes_D) - sizes_D
    sums: NDArray[np.float64] = np.add.reduceat(values, starts)
    return sums
