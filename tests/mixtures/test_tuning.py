"""Tests that tuned weights are the best ones."""

from __future__ import annotations

import numpy as np
import pytest

from chainrule.mixtures.gates import Gate, entropies, knots_for
from chainrule.mixtures.tuning import constant_weights, gated_weights, log_linear_weights, mixed_scores


def test_weights_by_hand() -> None:
    """Two models predict one token each with certainty; the first model is right for three of four tokens."""
    with np.errstate(divide="ignore"):
        columns = np.log(np.asarray([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float64))
    np.testing.assert_allclose(constant_weights(columns), [0.75, 0.25], atol=1e-6)


def test_no_other_weights_are_better() -> None:
    generator = np.random.default_rng(0)
    columns = np.log(generator.dirichlet([0.5] * 20, size=(500, 3))[:, :, 0])
    best = constant_weights(columns)
    found = mixed_scores(columns, best).mean()
    for other in generator.dirichlet([1, 1, 1], size=300):
        assert mixed_scores(columns, other).mean() <= found + 1e-6
    for step in (1e-3, -1e-3):
        moved = best + step * np.asarray([1, -1, 0])
        assert mixed_scores(columns, moved).mean() <= found + 1e-7


def test_weights_follow_the_context() -> None:
    """The first model is right where the number is 0, the second where it is 1; in between both are."""
    values = np.repeat([0.0, 0.5, 1.0], 400)
    right = np.where(np.arange(1200) % 400 < (1 - values) * 400, 0, 1)
    columns = np.log(np.where(np.arange(2) == right[:, None], 0.9, 0.01))
    gate = Gate("length", 0, np.asarray([0.0, 1.0]))
    weights = gated_weights(columns, gate, values)
    assert weights[0, 0] > 0.9
    assert weights[1, 1] > 0.9
    np.testing.assert_allclose(gate.weights(weights, np.asarray([0.5])), [[0.5, 0.5]], atol=0.05)
    gated = mixed_scores(columns, gate.weights(weights, values)).mean()
    assert gated > mixed_scores(columns, constant_weights(columns)).mean() + 0.1


def test_a_context_that_is_never_seen_has_the_weights_of_all() -> None:
    columns = np.log(np.asarray([[0.9, 0.1]] * 30 + [[0.1, 0.9]] * 10))
    weights = gated_weights(columns, Gate("match", 0, np.asarray([0.0, 1.0, 2.0])), np.zeros(40))
    np.testing.assert_allclose(weights[2], constant_weights(columns), atol=1e-6)


def test_a_token_that_is_impossible_for_all_says_nothing() -> None:
    columns = np.asarray([[-1.0, -2.0], [-np.inf, -np.inf], [-2.0, -1.0]])
    np.testing.assert_allclose(constant_weights(columns), [0.5, 0.5])
    assert constant_weights(columns[1:2]).tolist() == [0.5, 0.5]


def test_exponents_are_the_best_there_are() -> None:
    generator = np.random.default_rng(1)
    logs = [np.log(generator.dirichlet([0.3] * 6, size=400)) for _ in range(2)]
    truth = np.exp(0.7 * logs[0] + 0.4 * logs[1])
    truth /= truth.sum(axis=1, keepdims=True)
    ids = np.asarray([generator.choice(6, p=p) for p in truth])

    def loss(weights: np.ndarray) -> float:
        sums = sum(w * log for w, log in zip(weights, logs, strict=True))
        scores = sums - np.log(np.exp(sums).sum(axis=1, keepdims=True))
        return -float(scores[np.arange(400), ids].mean())

    best = log_linear_weights(logs, ids)
    np.testing.assert_allclose(best, [0.7, 0.4], atol=0.15)
    for moved in ([0.01, 0], [-0.01, 0], [0, 0.01], [0, -0.01]):
        assert loss(best + moved) >= loss(best) - 1e-9
    useless = log_linear_weights([logs[0], -logs[0] / 10], ids)
    assert (useless >= 0).all()


def test_entropy_of_even_chances() -> None:
    with np.errstate(divide="ignore"):
        found = entropies(np.log(np.asarray([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])))
    np.testing.assert_allclose(found, [np.log(2), 0])


@pytest.mark.parametrize("by", ["length", "match", "entropy"])
def test_knots_ascend(by: str) -> None:
    values = np.asarray([0.0, 0.0, 1.0, 2.0, 2.0, 3.0])
    knots = knots_for(by, values)  # type: ignore[arg-type]
    assert (np.diff(knots) > 0).all()
    assert (knots[0], knots[-1]) == (0, {"length": 2, "match": 3, "entropy": 3}[by])
