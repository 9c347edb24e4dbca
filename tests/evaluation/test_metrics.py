"""The lectures' numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import SettingsError
from chainrule.evaluation.metrics import (
    BITS,
    NATS,
    bits_per_byte,
    branching_factor,
    cross_entropy,
    entropy,
    kl,
    perplexity,
    perplexity_of,
    yes_no_questions,
)


def test_entropy_of_the_lecture() -> None:
    # -(0.5 log 0.5 + 0.3 log 0.3 + 0.2 log 0.2) = 0.5 + 0.521 + 0.464
    assert round(float(entropy(np.asarray([0.5, 0.3, 0.2]))), 3) == 1.485
    assert round(float(entropy(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))), 3) == 1.485


def test_entropy_is_largest_for_the_uniform_and_zero_for_the_certain() -> None:
    assert math.isclose(entropy(np.full(8, 1 / 8)), 3.0)
    assert entropy(np.asarray([0.0, 1.0, 0.0])) == 0.0


positive = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda w: np.asarray(w) / sum(w))


@settings(max_examples=60, deadline=None)
@given(positive, positive, st.sampled_from([BITS, NATS]))
def test_cross_entropy_is_entropy_plus_divergence(p: np.ndarray, q: np.ndarray, base: float) -> None:
    divergence = float(kl(p, q, base))
    assert math.isclose(cross_entropy(p, q, base), entropy(p, base) + divergence, abs_tol=1e-9)
    # KL = Σ p log (p / q), written out, is never negative, and not symmetric
    assert math.isclose(divergence, float(np.sum(p * np.log(p / q)) / math.log(base)), abs_tol=1e-9)
    assert divergence > -1e-12
    as_torch = kl(torch.as_tensor(p), torch.as_tensor(q), base)
    assert math.isclose(float(as_torch), divergence, abs_tol=1e-9)


def test_divergence_is_infinite_where_the_impossible_happens() -> None:
    p, q = np.asarray([0.5, 0.5]), np.asarray([1.0, 0.0])
    assert kl(p, q) == math.inf
    assert math.isclose(kl(q, p), 1.0)


def test_a_batch_of_distributions_has_a_number_each() -> None:
    p = np.asarray([[0.5, 0.5], [1.0, 0.0]])
    assert entropy(p).tolist() == [1.0, 0.0]


def test_random_digits_have_perplexity_ten() -> None:
    assert math.isclose(perplexity(np.full(1000, math.log(1 / 10))), 10.0)


def test_a_switchboard_has_perplexity_of_about_53() -> None:
    """Operator, sales and support are asked for a quarter of the time each; 30,000 names share the last quarter."""
    p = np.asarray([0.25, 0.25, 0.25] + [0.25 / 30_000] * 30_000)
    # 3 · 1/4 log 4 + 1/4 log 120,000 = 1.5 + 4.22 = 5.72 bits
    assert round(perplexity_of(float(entropy(p, BITS)), BITS)) == 53
    assert branching_factor(p) == pytest.approx(52.643, abs=1e-3)


@given(st.floats(0.01, 20))
def test_perplexity_is_the_same_in_every_base(nats: float) -> None:
    assert math.isclose(perplexity_of(nats, NATS), perplexity_of(nats / math.log(2), BITS), rel_tol=1e-9)


def test_perplexity_of_the_impossible_is_infinite() -> None:
    assert perplexity(np.asarray([-1.0, -math.inf])) == math.inf
    assert perplexity_of(1e6) == math.inf


def test_bits_per_byte() -> None:
    # 8 tokens of 1 bit each for a text of 4 bytes
    assert math.isclose(bits_per_byte(8 * math.log(2), 4), 2.0)


def test_metrics_do_not_warn_on_zeros() -> None:
    with np.errstate(all="raise"):
        assert pytest.approx(1.0) == float(cross_entropy(np.asarray([0.5, 0.5, 0.0]), np.asarray([0.5, 0.5, 0.0])))


def test_the_best_questions_need_a_little_more_than_the_entropy() -> None:
    """The lecture's example: is it the cat? If not, is it the dog? 0.5 · 1 + 0.5 · 2 questions, not 1.485."""
    assert yes_no_questions([0.5, 0.3, 0.2]) == 1.5
    assert yes_no_questions([0.125] * 8) == 3.0 == entropy([0.125] * 8)
    assert yes_no_questions([1.0, 0.0]) == 0.0


@settings(max_examples=60, deadline=None)
@given(positive)
def test_questions_lie_within_one_bit_of_the_entropy(p: np.ndarray) -> None:
    assert float(entropy(p)) - 1e-9 <= yes_no_questions(p) < float(entropy(p)) + 1


def test_what_is_no_distribution_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"sum to 0\.99"):
        entropy([0.7, 0.29])
    with pytest.raises(SettingsError, match=r"at least 0 and sum to 1: the smallest is -"):
        entropy([1.5, -0.5])
    with pytest.raises(SettingsError, match="same outcomes: 2 and 3"):
        cross_entropy([0.5, 0.5], [0.4, 0.4, 0.2])
