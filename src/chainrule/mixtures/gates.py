"""Gates: weights that depend on the context of a token.

A gate gives each context a number: how many tokens it has, how many of its last ones an n-gram model knows as a
context, or the entropy of what a model predicts. The weights are given at some of these numbers, the knots, and in
between they change evenly: they lie on a line from one knot to the next. So a context whose number is a little
different, by rounding, has weights that are a little different.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace, to_numpy

Floats = NDArray[np.float64]
By: TypeAlias = Literal["none", "length", "match", "entropy"]

_KNOTS = 8  # of entropy: the same number of held-out tokens lies between each two
_LONGEST = 1 << 12  # tokens of context; more make no difference


@dataclass(frozen=True)
class Gate:
    """The number on which the weights depend, and the knots at which they are given."""

    by: By = "none"
    of: int = 0
    """The number of the model whose matches or entropies count."""
    knots: Floats = field(default_factory=lambda: np.zeros(1))
    """The numbers at which weights are given, in ascending order."""

    def spread(self, values: NDArray[np.floating]) -> tuple[NDArray[np.int64], Floats]:
        """Return the knot below each number, and how far it is on the way to the next: from 0 to 1."""
        last = len(self.knots) - 1
        if last == 0:
            return np.zeros(values.shape, np.int64), np.zeros(values.shape)
        values = np.clip(values, self.knots[0], self.knots[-1])
        below = np.clip(np.searchsorted(self.knots, values, side="right") - 1, 0, last - 1)
        width = self.knots[below + 1] - self.knots[below]
        return below, (values - self.knots[below]) / width

    def weights(self, weights_GK: Floats, values: NDArray[np.floating]) -> Floats:
        """Return the weights of contexts with these numbers, along a last axis, from `weights_GK` at the knots."""
        if len(self.knots) == 1:
            return np.broadcast_to(weights_GK[0], (*values.shape, weights_GK.shape[1]))
        below, share = self.spread(values)
        mixed: Floats = (1 - share)[..., None] * weights_GK[below] + share[..., None] * weights_GK[below + 1]
        return mixed


def knots_for(by: By, values: NDArray[np.floating]) -> Floats:
    """Return knots for the numbers of held-out text."""
    if by == "none":
        return np.zeros(1)
    if by == "length":
        every = 2.0 ** np.arange(int(np.log2(_LONGEST)) + 1)
        return np.concatenate([np.zeros(1), every[every <= max(values.max(initial=0), 1)]])
    if by == "match":
        return np.arange(values.max(initial=0) + 1, dtype=np.float64)
    return np.unique(np.quantile(values, np.linspace(0, 1, _KNOTS)).round(3))


def entropies(log_probs: Array) -> Floats:
    """Return H = -Σ p ln p of distributions along the last axis."""
    xp = array_namespace(log_probs)
    finite = xp.where(xp.isfinite(log_probs), log_probs, 0.0)  # p ln p is 0 where p is
    return to_numpy(-xp.sum(finite * xp.exp(log_probs), axis=-1)).astype(np.float64)
