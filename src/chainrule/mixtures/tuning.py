"""The weights under which held-out text is most likely.

Of a linear mixture, p(x) = Σ_k w_k p_k(x), by expectation-maximisation (Jelinek and Mercer 1980): each token is
shared among the models by the posterior probability that it came from each; the mean shares are the next weights.
The weights may depend on the context (gates.py): each token then counts for the two knots between which it lies.

Of a log-linear mixture, p(x) = Π_k p_k(x)^λ_k / Z, by Newton's method: ln p is concave in λ, its gradient is the
difference of ln p_k(x) and its expectation under the mixture, and its curvature the covariance of the ln p_k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainrule.mixtures.gates import Floats, Gate

_MOST_ROUNDS = 300
_ENOUGH = 1e-8  # nats a token
_LEAST = 1e-6  # the smallest weight: with 0, what only one model thinks possible might become impossible
_PRIOR = 20.0  # tokens that count for the weights of all text, at each knot
_NEWTON_STEPS = 30
_DAMPING = 1e-6


def constant_weights(columns_NK: Floats) -> Floats:
    """Return the weights of a linear mixture, from ln p of each token under each model."""
    weights_K: Floats = gated_weights(columns_NK, Gate(), np.zeros(len(columns_NK)))[0]
    return weights_K


def gated_weights(columns_NK: Floats, gate: Gate, values_N: Floats) -> Floats:
    """Return the weights at each knot, [G, K]; those of a knot with few tokens are close to those of all text."""
    possible = np.isfinite(columns_NK).any(axis=1)  # tokens that are impossible under every model are left out
    columns_NK, values_N = columns_NK[possible], values_N[possible]
    models = columns_NK.shape[1]
    even = np.full((1, models), 1 / models)
    if not len(columns_NK):
        return np.repeat(even, len(gate.knots), axis=0)
    # p_k of each token, but for a factor that all models share
    p_NK = np.exp(columns_NK - columns_NK.max(axis=1, keepdims=True))
    overall = _expectation_maximisation(p_NK, Gate(), np.zeros(len(p_NK)), even, np.zeros((1, models)))
    if len(gate.knots) == 1:
        return overall
    first = np.repeat(overall, len(gate.knots), axis=0)
    return _expectation_maximisation(p_NK, gate, values_N, first, _PRIOR * first)


def _expectation_maximisation(
    p_NK: Floats, gate: Gate, values_N: Floats, first: Floats, prior_GK: Floats
) -> Floats:
    weights_GK, before = first, -np.inf
    below_N, share_N = gate.spread(values_N)
    knots = len(gate.knots)
    above_N = np.minimum(below_N + 1, knots - 1)
    for _ in range(_MOST_ROUNDS):
        # E step: how much of each token is each model's, and each knot's
        lower_NK = (1 - share_N)[:, None] * weights_GK[below_N] * p_NK
        upper_NK = share_N[:, None] * weights_GK[above_N] * p_NK
        total_N = lower_NK.sum(axis=1) + upper_NK.sum(axis=1)
        counts_GK = prior_GK.copy()
        for k in range(p_NK.shape[1]):
            counts_GK[:, k] += np.bincount(below_N, lower_NK[:, k] / total_N, minlength=knots)
            counts_GK[:, k] += np.bincount(above_N, upper_NK[:, k] / total_N, minlength=knots)
        # M step
        weights_GK = counts_GK / np.maximum(counts_GK.sum(axis=1, keepdims=True), 1e-300)
        now = float(np.log(total_N).mean())
        if now - before < _ENOUGH:
            break
        before = now
    weights_GK = np.maximum(weights_GK, _LEAST)
    normalised: Floats = weights_GK / weights_GK.sum(axis=1, keepdims=True)
    return normalised


def mixed_scores(columns_NK: Floats, weights: Floats) -> Floats:
    """Return ln Σ_k w_k p_k of each token; the weights are [K], or [N, K]."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    scores: Floats = np.logaddexp.reduce(columns_NK + log_weights, axis=-1)
    return scores


def cross_validated(columns_NK: Floats, gate: Gate, values_N: Floats) -> Floats:
    """Return ln p of each token by a linear mixture whose weights were tuned on the other half of the text."""
    half, scores_N = len(columns_NK) // 2, np.empty(len(columns_NK))
    for mine, other in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        weights_GK = gated_weights(columns_NK[other], gate, values_N[other])
        scores_N[mine] = mixed_scores(columns_NK[mine], gate.weights(weights_GK, values_N[mine]))
    return scores_N


def cross_validated_gain(tokens_KNV: Sequence[Floats], ids_N: NDArray[np.int64]) -> float:
    """Return the mean gain in ln p of a log-linear mixture, tuned on the other half, over its best model."""
    half, gain = len(ids_N) // 2, 0.0
    each_KN = np.stack([column[np.arange(len(ids_N)), ids_N] for column in tokens_KNV])
    best = int(each_KN.mean(axis=1).argmax())
    for mine, other in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        weights_K = log_linear_weights([column[other] for column in tokens_KNV], ids_N[other])
        with np.errstate(invalid="ignore"):
            sums_NV = sum(w * column[mine] for w, column in zip(weights_K, tokens_KNV, strict=True) if w)
        scores_N = sums_NV[np.arange(len(sums_NV)), ids_N[mine]] - np.logaddexp.reduce(sums_NV, axis=1)
        gain += float((scores_N - each_KN[best, mine]).sum())
    return gain / len(ids_N)


def log_linear_weights(tokens_KNV: Sequence[Floats], ids_N: NDArray[np.int64]) -> Floats:
    """Return the exponents λ of a log-linear mixture, from ln p of every token before each of the ids.

    Exponents stay at 0 or above: a model that would get less has nothing to add.
    """
    # a token that one model excludes stays excluded; such ids are left out
    possible_NV = np.logical_and.reduce([np.isfinite(column) for column in tokens_KNV])
    known_N = possible_NV[np.arange(len(ids_N)), ids_N]
    possible_NV, ids_N = possible_NV[known_N], ids_N[known_N]
    logs = [np.where(possible_NV, column[known_N], 0.0) for column in tokens_KNV]
    models = len(logs)
    weights_K = np.full(models, 1 / models)
    if not len(ids_N):
        return weights_K
    given_KN = np.stack([log[np.arange(len(ids_N)), ids_N] for log in logs])
    best = -np.inf
    step, kept, direction = 1.0, weights_K, np.zeros(models)
    for _ in range(_NEWTON_STEPS):
        sums_NV = np.where(possible_NV, sum(w * log for w, log in zip(weights_K, logs, strict=True)), -np.inf)
        top_N1 = sums_NV.max(axis=1, keepdims=True)
        p_NV = np.exp(sums_NV - top_N1)
        z_N1 = p_NV.sum(axis=1, keepdims=True)
        p_NV /= z_N1
        now = float((weights_K @ given_KN - top_N1[:, 0] - np.log(z_N1[:, 0])).mean())
        if now < best:  # too far: half the way
            step /= 2
            if step < 1e-3:
                break
            weights_K = np.maximum(kept + step * direction, 0.0)
            continue
        if now - best < _ENOUGH:
            kept = weights_K
            break
        best, kept, step = now, weights_K, 1.0
        means_KN = np.stack([(p_NV * log).sum(axis=1) for log in logs])
        gradient_K = (given_KN - means_KN).mean(axis=1)
        products = [[(p_NV * a * b).sum(axis=1).mean() for b in logs] for a in logs]
        covariance_KK = np.asarray(products) - means_KN @ means_KN.T / len(ids_N)
        free_K = (kept > 0) | (gradient_K > 0)  # exponents at 0 that would become negative stay at 0
        curvature = covariance_KK[np.ix_(free_K, free_K)] + _DAMPING * np.eye(int(free_K.sum()))
        direction = np.zeros(models)
        direction[free_K] = np.linalg.solve(curvature, gradient_K[free_K])
        weights_K = np.maximum(kept + direction, 0.0)
    return kept
