"""Minimum error rate training (Och 2003): find the weights of scores with the fewest errors.

A hypothesis h has the score Σ_d w_d f_d(h), and the best of each list is chosen. Along a direction, w + γ v, the
score of each hypothesis is a straight line in γ, and the choice changes only where lines of the upper envelope of a
list cross. Between two such points of all lists the errors are constant, so the best γ is found exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Features = Sequence[np.ndarray]
"""For each list, the features of its hypotheses, [K, D]."""

_BEYOND = 1.0  # how far beyond the last crossing a step goes, in standard deviations of the crossings
_LEAST_GAIN = 1e-9


def chosen(features: Features, weights_D: np.ndarray) -> list[int]:
    """Return the number of the best hypothesis of each list, the first among equals."""
    return [int(np.argmax(some_KD @ weights_D)) for some_KD in features]


def count_errors(features: Features, errors: Sequence[np.ndarray], weights_D: np.ndarray) -> float:
    """Count the errors of the chosen hypotheses."""
    return float(sum(some[i] for some, i in zip(errors, chosen(features, weights_D), strict=True)))


def tune(
    features: Features, errors: Sequence[np.ndarray], start_D: np.ndarray, *, starts: int = 20, seed: int = 0
) -> np.ndarray:
    """Search along single weights and random directions, and return the weights with the fewest errors.

    The first search begins at `start_D`, the others at random weights; of equal results the earlier one is kept.
    """
    generator = np.random.default_rng(seed % 2**64)
    within = np.concatenate([some_KD - some_KD.mean(axis=0) for some_KD in features])
    deviations_D = np.sqrt((within**2).mean(axis=0))
    used = np.flatnonzero(deviations_D > 0)  # a feature that is constant in each list changes no choice
    if not len(used):
        return start_D
    scaled = [some_KD[:, used] / deviations_D[used] for some_KD in features]
    start_U = start_D[used] * deviations_D[used]
    best_U, fewest = start_U, count_errors(scaled, errors, start_U)
    for number in range(starts):
        begin_U = start_U if number == 0 else generator.normal(size=len(used))
        weights_U, left = _descend(scaled, errors, begin_U, generator)
        if left < fewest - _LEAST_GAIN:
            best_U, fewest = weights_U, left
    weights_D = np.zeros(len(start_D))
    weights_D[used] = best_U / deviations_D[used]
    return weights_D


def _descend(
    features: Features, errors: Sequence[np.ndarray], weights_U: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    left = count_errors(features, errors, weights_U)
    while True:
        directions = [*np.eye(len(weights_U)), *generator.normal(size=(len(weights_U), len(weights_U)))]
        tried = []
        for direction_U in directions:
            step, after = best_step(features, errors, weights_U, direction_U)
            tried.append((after, weights_U + step * direction_U))
        after, there_U = min(tried, key=lambda pair: pair[0])
        after = count_errors(features, errors, there_U)  # rounding may decide a tie otherwise
        if after >= left - _LEAST_GAIN:
            return weights_U, left
        weights_U, left = there_U / np.linalg.norm(there_U), after


def best_step(
    features: Features, errors: Sequence[np.ndarray], weights_D: np.ndarray, direction_D: np.ndarray
) -> tuple[float, float]:
    """Return the step γ with the fewest errors, in the middle of the widest such interval, and these errors."""
    first, places, changes = 0.0, list[float](), list[float]()
    for some_KD, some in zip(features, errors, strict=True):
        at, which = envelope(some_KD @ weights_D, some_KD @ direction_D)
        first += some[which[0]]
        places.extend(at)
        changes.extend(float(some[after] - some[before]) for before, after in pairwise(which))
    if not places:
        return 0.0, first
    order = np.argsort(places, kind="stable")
    at_E = np.asarray(places)[order]
    left_E = first + np.concatenate([[0.0], np.cumsum(np.asarray(changes)[order])])
    beyond = _BEYOND * (float(at_E.std()) or 1.0)
    borders = np.concatenate([[at_E[0] - 2 * beyond], at_E, [at_E[-1] + 2 * beyond]])
    widths_E = np.diff(borders)
    left_E = np.where(widths_E > 0, left_E, np.inf)
    best = np.lexsort([-widths_E, left_E])[0]
    return float(borders[best] + borders[best + 1]) / 2, float(left_E[best])


def envelope(values_K: np.ndarray, slopes_K: np.ndarray) -> tuple[list[float], list[int]]:
    """Return the upper envelope of the lines value + γ slope: the points where it changes lines, and these lines.

    Of equal lines the first counts.
    """
    order = np.lexsort([np.arange(len(values_K)), -values_K, slopes_K]).tolist()
    values, slopes = values_K.tolist(), slopes_K.tolist()
    at: list[float] = []
    lines: list[int] = []
    for k in order:
        if lines and slopes[k] == slopes[lines[-1]]:
            continue  # a parallel line below, or the same
        while lines:
            crossing = (values[lines[-1]] - values[k]) / (slopes[k] - slopes[lines[-1]])
            if at and crossing <= at[-1]:
                lines.pop()
                at.pop()
            else:
                at.append(crossing)
                break
        lines.append(k)
    return at, lines
