"""The scaling law of Hoffmann et al. (2022), fitted to measured losses.

    L(N, D) = E + A / N^a + B / D^b

N is the number of parameters, D the number of tokens, L the loss in nats a token. E is the loss of an infinite
network on infinite text; A / N^a is the loss added because the network has only N parameters, B / D^b because the
text has only D tokens. The fit is robust, as theirs is: it minimises the sum of Huber's loss of ln L - ln L̂, from
many starting points.
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
"""Errors of ln L up to this size count by their square, larger ones in proportion to their size."""

_EXPONENTS = (0.15, 0.3, 0.6, 1.2)
_BOUNDS = (0.02, 3.0)
"""The range of a and b: with a smaller exponent a term is constant, with a larger one it vanishes."""
_ROUNDS = 200
_PENALTY = 1e-6  # on large exponents, so that the fit is unique if the losses do not determine a and b


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
        """Return L(N, D)."""
        return np.asarray(self.E + self.A * np.power(N, -self.a) + self.B * np.power(D, -self.b))

    def best_size(self, flops: float) -> tuple[float, float]:
        """Return N and D of the lowest loss for C = `flops` floating-point operations, at C = 6 N D.

        At the minimum A/N^a and B/D^b change equally fast along 6 N D = C, so N = (a A / (b B))^(1/(a+b)) ·
        (C/6)^(b/(a+b)).
        """
        both = self.a + self.b
        N = (self.a * self.A / (self.b * self.B)) ** (1 / both) * (flops / FLOPS) ** (self.b / both)
        return N, flops / FLOPS / N


def fit_law(N: Sequence[float], D: Sequence[float], L: Sequence[float], near: Law | None = None) -> Law:
    """Fit the law to measured losses; the search starts from `near` if it is given, or else from many laws.

    >>> import numpy as np
    >>> N, D = (axis.ravel() for axis in np.meshgrid([1e6, 1e7, 1e8], [1e8, 1e9, 1e10]))
    >>> law = fit_law(N, D, 2 + 400 / N**0.3 + 400 / D**0.3)
    >>> round(law.E, 2), round(law.a, 2), round(law.b, 2)
    (2.0, 0.3, 0.3)
    """
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


def fit_without_each(N: Sequence[float], D: Sequence[float], L: Sequence[float]) -> list[Law]:
    """Fit the law once without each loss, if enough are left: how much the laws differ shows how sure they are."""
    whole, laws = fit_law(N, D, L), []
    for i in range(len(L)):
        kept = [k for k in range(len(L)) if k != i]
        try:
            laws.append(fit_law([N[k] for k in kept], [D[k] for k in kept], [L[k] for k in kept], whole))
        except ChainruleError:
            continue
    return laws


def _starts(x: Floats, y: Floats, losses: Floats) -> list[Floats]:
    """Return starting points (ln E, ln A, ln B, a, b): for fixed a and b, the law is linear in the others."""
    starts = []
    for a in _EXPONENTS:
        for b in _EXPONENTS:
            terms = np.stack([np.ones_like(x), np.exp(-a * x), np.exp(-b * y)], axis=1)
            # least squares of relative errors; constants that would be negative are set to a small value
            constants = np.linalg.lstsq(terms / losses[:, None], np.ones_like(x), rcond=None)[0]
            constants = np.maximum(constants, 0.01 * losses.min())
            starts.append(np.asarray([*np.log(constants), a, b]))
    return starts


def _terms(theta: Floats, x: Floats, y: Floats) -> tuple[float, Floats, Floats]:
    """Return E, A / N^a and B / D^b."""
    E, A, B = np.exp(theta[:3])
    return float(E), A * np.exp(-theta[3] * x), B * np.exp(-theta[4] * y)


def _errors(theta: Floats, x: Floats, y: Floats, z: Floats) -> Floats:
    """Return ln L̂ - ln L."""
    E, by_N, by_D = _terms(theta, x, y)
    return np.asarray(np.log(E + by_N + by_D) - z)


def _descend(theta: Floats, x: Floats, y: Floats, z: Floats) -> tuple[Floats, float]:
    """Minimise Huber's loss by Levenberg and Marquardt's method, with new weights of the errors in each round."""
    damping, loss = 1e-2, _huber(theta, x, y, z)
    for _ in range(_ROUNDS):
        errors = _errors(theta, x, y, z)
        E, by_N, by_D = _terms(theta, x, y)
        slopes = np.stack([np.full_like(x, E), by_N, by_D, -x * by_N, -y * by_D], axis=1)
        slopes /= (E + by_N + by_D)[:, None]
        weights = np.minimum(1.0, HUBER / np.maximum(np.abs(errors), 1e-300))
        normal = slopes.T @ (weights[:, None] * slopes)
        downhill = slopes.T @ (weights * errors)
        step = np.linalg.solve(normal + np.diag(damping * np.diag(normal) + 1e-12), downhill)
        trial = theta - np.clip(step, -1.0, 1.0)
        trial = np.clip(trial, [-30.0] * 3 + [_BOUNDS[0]] * 2, [30.0] * 3 + [_BOUNDS[1]] * 2)
        new = _huber(trial, x, y, z)
        if new < loss:
            is_done = loss - new < 1e-13 * max(loss, 1e-30)
            theta, loss, damping = trial, new, max(damping / 3, 1e-9)
        else:
            damping *= 4
            is_done = damping > 1e9
        if is_done:
            break
    return theta, loss


def _huber(theta: Floats, x: Floats, y: Floats, z: Floats) -> float:
    """Return the sum of Huber's loss of the errors, and the penalty."""
    errors = np.abs(_errors(theta, x, y, z))
    total = np.where(errors <= HUBER, errors**2 / 2, HUBER * (errors - HUBER / 2)).sum()
    return float(total + _PENALTY * HUBER * np.sum(theta[3:] ** 2))
