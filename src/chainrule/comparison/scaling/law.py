"""The scaling law of Hoffmann et al. (2022), fitted to measured losses.

    L(N, D) = E + A / N^a + B / D^b

N is the number of parameters, D the number of tokens, L the loss in nats a token. E is the loss of an infinite
network on infinite text; A / N^a is the loss added because the network has only N parameters, B / D^b because the
text has only D tokens. The fit is robust, as theirs is: it minimises the sum of Huber's loss of ln L - ln L̂, from
many starting points. How sure it is of its constants is found by a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleError

Floats = NDArray[np.float64]
Values: TypeAlias = Sequence[float] | Floats

FEWEST_CELLS = 6
"""One more than the law has constants."""
FLOPS = 6.0
"""Operations to train one parameter on one token: a product and a sum, once forward and twice backward."""
HUBER = 1e-3
"""Errors of ln L up to this size count by their square, larger ones in proportion to their size."""
EXPONENTS = (0.05, 1.0)
"""The range of a and b. Published exponents of language models are 0.076 (Kaplan et al. 2020) to 0.37 (Besiroglu et
al. 2024). A term of a smaller exponent could not be told from E; a larger one would fall faster than 1/N or 1/D."""
FARTHEST = 10.0
"""A law is trusted up to this multiple of the largest N, D and 6 N D that it was fitted to."""
REFITS = 200

_STARTS = (0.1, 0.2, 0.4, 0.8)  # exponents
_LEAST_TERM = 1e-3  # of the lowest loss: E and the other two terms are at least so large in the middle of the grid
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
    largest_N: float
    largest_D: float
    largest_flops: float
    """The largest N, D and 6 N D of the losses that it was fitted to."""
    at_bound: tuple[str, ...] = ()
    """The constants that lie at a bound of the fit: the losses do not determine them."""

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

    def warning(self, N: float, D: float) -> str:
        """Return a warning if N, D or 6 N D is far beyond the losses that the law was fitted to, or else nothing.

        >>> law = Law(1.7, 400, 0.34, 400, 0.28, error=0, largest_N=1e6, largest_D=1e7, largest_flops=6e13)
        >>> law.warning(1e6, 1e8)
        ''
        >>> law.warning(1e6, 1e9)
        'a guess: 100 times the tokens and 100 times the operations of the grid; the law is for 10 times at most'
        """
        asked = {
            "parameters": N / self.largest_N,
            "tokens": D / self.largest_D,
            "operations": FLOPS * N * D / self.largest_flops,
        }
        far = [f"{times:,.0f} times the {what}" for what, times in asked.items() if round(times) > FARTHEST]
        if not far:
            return ""
        return f"a guess: {' and '.join(far)} of the grid; the law is for {FARTHEST:g} times at most"


def fit_law(N: Values, D: Values, L: Values) -> Law:
    """Fit the law to measured losses; the search starts from many laws.

    >>> import numpy as np
    >>> N, D = (axis.ravel() for axis in np.meshgrid([1e6, 1e7, 1e8], [1e8, 1e9, 1e10]))
    >>> law = fit_law(N, D, 2 + 400 / N**0.3 + 400 / D**0.3)
    >>> round(law.E, 2), round(law.a, 2), round(law.b, 2)
    (2.0, 0.3, 0.3)
    """
    fit = _Fit(N, D, L)
    thetas, losses = fit.descend(fit.starts(), np.log(fit.L))
    return fit.law(thetas[np.argmin(losses)])


def refit(law: Law, N: Values, D: Values, L: Values, seed: int = 0) -> list[Law]:
    """Fit the law to other losses that could have been measured: how much these laws differ shows how sure it is.

    It is a bootstrap of residuals: each loss is the fitted one times an error drawn from all errors of the fit.
    These are too small, since the fit follows the losses, and are enlarged by sqrt(n / (n - 5)).

    >>> import numpy as np
    >>> N, D = (axis.ravel() for axis in np.meshgrid([1e6, 1e7, 1e8], [1e8, 1e9, 1e10]))
    >>> L = (2 + 400 / N**0.3 + 400 / D**0.3) * np.exp(np.random.default_rng(0).normal(0, 0.001, 9))
    >>> law = fit_law(N, D, L)
    >>> low, high = interval(law, refit(law, N, D, L), lambda one: one.E)
    >>> low < 2 < high
    True
    """
    fit = _Fit(N, D, L)
    fitted = np.log(law.loss(fit.N, fit.D))
    n = len(fit.L)
    errors = (np.log(fit.L) - fitted) * np.sqrt(n / (n - 5))
    drawn = np.random.default_rng(seed).choice(errors, (REFITS, n))
    thetas, _ = fit.descend(np.repeat(fit.theta(law)[None], REFITS, axis=0), fitted + drawn)
    return [fit.law(theta) for theta in thetas]


def interval(law: Law, refits: Iterable[Law], value: Callable[[Law], float]) -> tuple[float, float]:
    """Return the 95 % interval of a value of the law; it contains the value itself.

    >>> laws = [Law(E, 400, 0.34, 400, 0.28, 0, 1, 1, 1) for E in (1.5, 1.6, 1.7)]
    >>> interval(laws[2], laws[:2], lambda law: law.E)
    (1.5025, 1.7)
    """
    low, high = np.percentile([value(one) for one in refits], (2.5, 97.5))
    return min(float(low), value(law)), max(float(high), value(law))


@dataclass(frozen=True)
class Prediction:
    """How well the law of the smaller networks predicts the losses of the larger ones."""

    fitted: int
    """The networks that the law was fitted to."""
    predicted: int
    error: float
    """The mean of |L̂ - L| / L over the networks that were predicted."""


def predict_larger(N: Values, D: Values, L: Values) -> Prediction | None:
    """Fit the law to the half of the losses with the smaller N D, and predict the others; None if they are too few.

    If half of them are too few for a law, it is fitted to as many as it needs.

    >>> import numpy as np
    >>> N, D = (axis.ravel() for axis in np.meshgrid([1e6, 1e7, 1e8, 1e9], [1e8, 1e9, 1e10]))
    >>> found = predict_larger(N, D, 2 + 400 / N**0.3 + 400 / D**0.3)
    >>> found.fitted, found.predicted, round(found.error, 3)
    (6, 6, 0.0)
    """
    sizes, tokens, losses = (np.asarray(one, dtype=np.float64) for one in (N, D, L))
    order = np.argsort(sizes * tokens, kind="stable")
    for count in range((len(L) + 1) // 2, len(L)):
        small, large = order[:count], order[count:]
        try:
            law = fit_law(sizes[small], tokens[small], losses[small])
        except ChainruleError:
            continue
        errors = np.abs(law.loss(sizes[large], tokens[large]) / losses[large] - 1)
        return Prediction(count, len(large), float(errors.mean()))
    return None


class _Fit:
    """The fit to losses: a law is a vector θ = (ln E, ln A', ln B', a, b), with A' and B' in the grid's middle.

    Several laws are fitted at once: θ_S has a row for each.
    """

    def __init__(self, *values: Values) -> None:
        N, D, L = (np.asarray(one, dtype=np.float64) for one in values)
        if len(L) < FEWEST_CELLS or len(set(N.tolist())) < 3 or len(set(D.tolist())) < 3:
            raise ChainruleError(
                f"a scaling law needs at least {FEWEST_CELLS} losses, of three sizes and three amounts of text"
            )
        if not (np.isfinite(L) & (L > 0)).all():
            raise ChainruleError("a scaling law needs losses that are finite and above 0")
        self.N, self.D, self.L = N, D, L
        # relative to the geometric mean, so that A' and B' are of the order of the losses
        self.middle = np.exp(np.log(N).mean()), np.exp(np.log(D).mean())
        self.x, self.y = np.log(N / self.middle[0]), np.log(D / self.middle[1])
        least, most = np.log(_LEAST_TERM * L.min()), np.log(L.max())
        self.low = np.asarray([least] * 3 + [EXPONENTS[0]] * 2)
        self.high = np.asarray([most] * 3 + [EXPONENTS[1]] * 2)

    def theta(self, law: Law) -> Floats:
        """Return the vector of a law."""
        terms = law.E, law.A * self.middle[0] ** -law.a, law.B * self.middle[1] ** -law.b
        return np.asarray(np.clip([*np.log(terms), law.a, law.b], self.low, self.high))

    def law(self, theta: Floats) -> Law:
        """Return the law of a vector."""
        E, A, B = np.exp(theta[:3])
        a, b = theta[3:]
        errors = np.log(self._terms(theta[None]).sum(axis=1)[0] / self.L)
        is_at_bound = np.isclose(theta, self.low) | np.isclose(theta, self.high)
        return Law(
            E=float(E),
            A=float(A * self.middle[0] ** a),
            a=float(a),
            B=float(B * self.middle[1] ** b),
            b=float(b),
            error=float(np.sqrt(np.mean(errors**2))),
            largest_N=float(self.N.max()),
            largest_D=float(self.D.max()),
            largest_flops=float((FLOPS * self.N * self.D).max()),
            at_bound=tuple(name for name, is_at in zip("EABab", is_at_bound, strict=True) if is_at),
        )

    def starts(self) -> Floats:
        """Return starting points: for fixed a and b, the law is linear in the others."""
        starts = []
        for a, b in product(_STARTS, repeat=2):
            terms = np.stack([np.ones_like(self.x), np.exp(-a * self.x), np.exp(-b * self.y)], axis=1)
            # least squares of relative errors; constants that would be negative are set to a small value
            constants = np.linalg.lstsq(terms / self.L[:, None], np.ones_like(self.x), rcond=None)[0]
            starts.append([*np.log(np.maximum(constants, 0.01 * self.L.min())), a, b])
        return np.asarray(np.clip(starts, self.low, self.high))

    def _terms(self, theta_S: Floats) -> Floats:
        """Return E, A / N^a and B / D^b of each law, for each loss."""
        a, b = -theta_S[:, 3:4] * self.x, -theta_S[:, 4:5] * self.y
        return np.asarray(np.exp(theta_S[:, :3, None] + np.stack([np.zeros_like(a), a, b], axis=1)))

    def descend(self, theta_S: Floats, z: Floats) -> tuple[Floats, Floats]:
        """Minimise Huber's loss of ln L̂ - z by Levenberg and Marquardt's method, with new weights in each round."""
        damping, loss = np.full(len(theta_S), 1e-2), self._huber(theta_S, z)
        is_done = np.zeros(len(theta_S), dtype=bool)
        penalty = 2 * _PENALTY * HUBER * np.asarray([0, 0, 0, 1, 1])
        for _ in range(_ROUNDS):
            terms = self._terms(theta_S)
            fitted = terms.sum(axis=1)
            errors = np.log(fitted) - z
            slopes = np.concatenate([terms, -self.x * terms[:, 1:2], -self.y * terms[:, 2:]], axis=1)
            slopes /= fitted[:, None]
            weighted = slopes * np.minimum(1.0, HUBER / np.maximum(np.abs(errors), 1e-300))[:, None]
            downhill = (weighted @ errors[..., None])[..., 0] + penalty * theta_S
            normal = weighted @ slopes.swapaxes(1, 2) + np.diag(penalty)
            # a constant at its bound stays there if it would leave the range
            stays = ((theta_S <= self.low) & (downhill > 0)) | ((theta_S >= self.high) & (downhill < 0))
            downhill[stays] = 0
            normal *= ~(stays[:, :, None] | stays[:, None, :])
            scale = np.diagonal(normal, axis1=1, axis2=2)
            normal += np.eye(5) * (damping[:, None] * scale + 1e-12)[:, None]
            step = np.linalg.solve(normal, downhill[..., None])[..., 0]
            trial = np.clip(theta_S - np.clip(step, -1.0, 1.0), self.low, self.high)
            new = self._huber(trial, z)
            is_better = (new < loss) & ~is_done
            is_done |= np.where(is_better, loss - new < 1e-13 * np.maximum(loss, 1e-30), damping > 1e9)
            theta_S, loss = np.where(is_better[:, None], trial, theta_S), np.where(is_better, new, loss)
            damping = np.where(is_better, np.maximum(damping / 3, 1e-9), 4 * damping)
            if is_done.all():
                break
        return theta_S, loss

    def _huber(self, theta_S: Floats, z: Floats) -> Floats:
        """Return the sum of Huber's loss of the errors, and the penalty."""
        errors = np.abs(np.log(self._terms(theta_S).sum(axis=1)) - z)
        total = np.where(errors <= HUBER, errors**2 / 2, HUBER * (errors - HUBER / 2)).sum(axis=1)
        return np.asarray(total + _PENALTY * HUBER * np.sum(theta_S[:, 3:] ** 2, axis=1))
