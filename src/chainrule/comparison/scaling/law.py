"""The scaling law of Hoffmann et al. (2022), fitted to measured losses.

    L(N, D) = E + A / N^a + B / D^b

N counts parameters, D tokens, L is nats a token. E is what no network can learn of the text, A / N^a what a network
of N parameters lacks in size, B / D^b what it lacks in text. The fit is robust, as theirs is: the sum of Huber's
loss of ln L - ln L̂ is minimised, from many starting points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleError

Floats = NDArray[np.float64]

FEWEST_CELLS = 6
"""One more than the law has constants."""
FLOPS = 6.0
"""Operations to train one parameter on one token: a product and a sum, once forward and twice backward."""
HUBER = 1e-3
"""Errors of ln L above this count in proportion to their size, and no longer to its square."""

_EXPONENTS = (0.15, 0.3, 0.6, 1.2)
_BOUNDS = (0.02, 3.0)
"""Of a and b: beyond, a term is a constant, or nothing."""
_ROUNDS = 200
_PENALTY = 1e-6  # that keeps constants apart which the data do not tell apart


@dataclass(frozen=True)
class Law:
    """A fitted law."""

    E: float
    A: float
    a: float
    B: float
    b: float
    error: float
    """The typical relative error of a fitted loss: the square root of the mean of (ln L - ln L̂)²."""

    def loss(self, N: float | Floats, D: float | Floats) -> Floats:
        """L(N, D)."""
        return np.asarray(self.E + self.A * np.power(N, -self.a) + self.B * np.power(D, -self.b))

    def best_size(self, flops: float) -> tuple[float, float]:
        """N and D of the least loss that so many floating-point operations can buy, at C = 6 N D.

        Where A/N^a and B/D^b fall equally fast along 6 N D = C:  N = (a A / (b B))^(1/(a+b)) · (C/6)^(b/(a+b))
        """
        both = self.a + self.b
        N = (self.a * self.A / (self.b * self.B)) ** (1 / both) * (flops / FLOPS) ** (self.b / both)
        return N, flops / FLOPS / N


def fit_law(N: Sequence[float], D: Sequence[float], L: Sequence[float], near: Law | None = None) -> Law:
    """The law that fits measured losses best; `near` is one from which the search begins, instead of from many."""
    sizes, tokens, losses = (np.asarray(one, dtype=np.float64) for one in (N, D, L))
    if len(losses) < FEWEST_CELLS or len(set(sizes.tolist())) < 3 or len(set(tokens.tolist())) < 3:
        raise ChainruleError(
            f"a scaling law needs at least {FEWEST_CELLS} losses, of three sizes and three amounts of text"
        )
    if not (np.isfinite(losses) & (losses > 0)).all():
        raise ChainruleError("a scaling law needs losses that are finite and above 0")
    # relative to the geometric mean, so that A and B are of the order of the losses
    middle_N, middle_D = np.exp(np.log(sizes).mean()), np.exp(np.log(tokens).mean())
    x, y, z = np.log(sizes / middle_N), np.log(tokens / middle_D), np.log(losses)
    starts = _starts(x, y, losses)
    if near is not None:
        constants = np.log([near.E, near.A * middle_N**-near.a, near.B * middle_D**-near.b])
        starts = [np.asarray([*constants, near.a, near.b])]
    found = [_descend(start, x, y, z) for start in starts]
    theta, _ = min(found, key=lambda one: one[1])
    E, A, B = np.exp(theta[:3])
    a, b = theta[3:]
    errors = _errors(theta, x, y, z)
    return Law(
        E=float(E),
        A=float(A * middle_N**a),
        a=float(a),
        B=float(B * middle_D**b),
        b=float(b),
        error=float(np.sqrt(np.mean(errors**2))),
    )


def left_out(N: Sequence[float], D: Sequence[float], L: Sequence[float]) -> list[Law]:
    """The laws without one of the losses each, where enough are left: how far the constants can be trusted."""
    whole, laws = fit_law(N, D, L), []
    for i in range(len(L)):
        kept = [k for k in range(len(L)) if k != i]
        try:
            laws.append(fit_law([N[k] for k in kept], [D[k] for k in kept], [L[k] for k in kept], whole))
        except ChainruleError:
            continue
    return laws


def _starts(x: Floats, y: Floats, losses: Floats) -> list[Floats]:
    """Starting points (ln E, ln A, ln B, a, b): with a and b given, the law is linear in the other constants."""
    starts = []
    for a in _EXPONENTS:
        for b in _EXPONENTS:
            terms = np.stack([np.ones_like(x), np.exp(-a * x), np.exp(-b * y)], axis=1)
            # relative errors; and what would be negative is made small
            constants = np.linalg.lstsq(terms / losses[:, None], np.ones_like(x), rcond=None)[0]
            constants = np.maximum(constants, 0.01 * losses.min())
            starts.append(np.asarray([*np.log(constants), a, b]))
    return starts


def _errors(theta: Floats, x: Floats, y: Floats, z: Floats) -> Floats:
    """ln L̂ - ln L."""
    E, A, B = np.exp(theta[:3])
    return np.asarray(np.log(E + A * np.exp(-theta[3] * x) + B * np.exp(-theta[4] * y)) - z)


def _descend(theta: Floats, x: Floats, y: Floats, z: Floats) -> tuple[Floats, float]:
    """Levenberg and Marquardt's method on Huber's loss, by weights that are computed anew in each round."""
    damping, loss = 1e-2, _huber(theta, x, y, z)
    for _ in range(_ROUNDS):
        errors = _errors(theta, x, y, z)
        E, A, B = np.exp(theta[:3])
        by_N, by_D = A * np.exp(-theta[3] * x), B * np.exp(-theta[4] * y)
        whole = E + by_N + by_D
        slopes = np.stack([E / whole, by_N / whole, by_D / whole, -x * by_N / whole, -y * by_D / whole], axis=1)
        weights = np.minimum(1.0, HUBER / np.maximum(np.abs(errors), 1e-300))
        normal = slopes.T @ (weights[:, None] * slopes)
        downhill = slopes.T @ (weights * errors)
        step = np.linalg.solve(normal + np.diag(damping * np.diag(normal) + 1e-12), downhill)
        trial = theta - np.clip(step, -1.0, 1.0)
        trial[3:] = np.clip(trial[3:], *_BOUNDS)
        trial[:3] = np.clip(trial[:3], -30.0, 30.0)
        new = _huber(trial, x, y, z)
        if new < loss:
            is_done = loss - new < 1e-13 * max(loss, 1e-30)
            theta, loss, damping = trial, new, max(damping / 3, 1e-9)
            if is_done:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return theta, loss


def _huber(theta: Floats, x: Floats, y: Floats, z: Floats) -> float:
    errors = np.abs(_errors(theta, x, y, z))
    total = np.where(errors <= HUBER, errors**2 / 2, HUBER * (errors - HUBER / 2)).sum()
    return float(total + _PENALTY * HUBER * np.sum(theta[3:] ** 2))
