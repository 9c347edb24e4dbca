"""Confidence intervals over documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.evaluation.intervals import drawn_bits_per_byte, middle_of, per_document


def test_draws_of_documents_that_are_alike_do_not_differ() -> None:
    drawn = drawn_bits_per_byte(np.full((1, 20), 5 * math.log(2)), np.full(20, 5), draws=10)
    assert drawn == pytest.approx(np.ones((10, 1)))


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """The mean of n draws with deviation s has the deviation s / √n; 95 % lie within 1.96 of them."""
    random = np.random.default_rng(1)
    bits_D = random.normal(2.0, 0.5, 400)
    low, high = middle_of(drawn_bits_per_byte(bits_D[None] * 10 * math.log(2), np.full(400, 10))[:, 0])
    deviation = bits_D.std() / math.sqrt(400)
    assert low <= bits_D.mean() <= high
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_models_are_compared_on_the_same_draws() -> None:
    """A model that is worse by the same in every document is worse in every draw, however the documents differ."""
    nats_D = np.random.default_rng(2).uniform(1, 100, 50)
    drawn = drawn_bits_per_byte(np.stack([nats_D, nats_D + 0.7]), np.full(50, 10))
    low, high = middle_of(drawn[:, 1] - drawn[:, 0])
    assert low == pytest.approx(0.07 / math.log(2)) == high
    assert drawn[:, 0].std() > 10 * (high - low)


def test_a_text_that_is_impossible_has_no_finite_figure() -> None:
    drawn = drawn_bits_per_byte(np.asarray([[1.0, math.inf], [1.0, 2.0]]), np.asarray([4, 4]), draws=50)
    assert not np.isfinite(drawn[:, 0]).all() and np.isfinite(drawn[:, 1]).all()


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=5), min_size=1, max_size=8))
def test_values_are_summed_by_document(documents: list[list[int]]) -> None:
    values = np.asarray([value for document in documents for value in document], np.float64)
    sizes = np.asarray([len(document) for document in documents])
    assert per_document(values, sizes).tolist() == [sum(document) for document in documents]


def test_any_whole_number_is_a_seed() -> None:
    nats_D, bytes_D = np.arange(1.0, 21.0)[None], np.full(20, 10)
    below, same, other = (drawn_bits_per_byte(nats_D, bytes_D, seed=seed) for seed in (-1, 2**64 - 1, -2))
    assert np.array_equal(below, same) and not np.array_equal(below, other)
