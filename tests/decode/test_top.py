"""Tests of finding the largest values of each row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.decode.top import reaching_share, reaching_share_by_sorting, top_k, top_places_by_bits

rows = st.lists(st.sampled_from([-np.inf, -3.0, -1.0, -0.5, 0.0]), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(rows, st.integers(1, 25))
def test_the_largest_come_first_and_ties_go_to_the_lowest_place(row: list[float], k: int) -> None:
    expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:k]
    for array in (np.asarray([row, row]), torch.tensor([row, row])):
        values, places = top_k(array, k)
        assert places.tolist() == [expected, expected]
        assert values.tolist() == [[row[place] for place in expected]] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_places_as_one_integer(dtype: torch.dtype) -> None:
    """As a device finds the largest values: numbers of every sign and size, zeros of both signs, and many ties."""
    sizes = 10.0 ** torch.arange(-3, 2)[:, None]
    values = (torch.randn(5, 400, generator=torch.Generator().manual_seed(0)) * sizes).to(dtype)
    values[:, 200:], values[:, 3::50], values[:, 5::50] = values[:, :200].clone(), 0.0, -0.0
    values[1:, ::3] = values[1:, ::3].abs() * -1e30
    values[2, :390] = -torch.inf
    expected = values.argsort(dim=-1, descending=True, stable=True)
    for k in (1, 20, 400):
        assert torch.equal(top_places_by_bits(values, k), expected[:, :k])


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999999, 1 - 1e-12])
def test_a_share_without_sorting_all(share: float) -> None:
    """Rows whose share needs one value, some, and nearly all; among equal values the lowest indices are taken."""
    numbers = np.random.default_rng(0)
    values = numbers.normal(size=(4, 6000)) * np.asarray([[0.0], [0.01], [1.0], [9.0]])
    values = np.concatenate([values, values.round(), np.where(values > 1, values, -np.inf)[2:]])
    prob = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    found = reaching_share(values, prob, share)
    np.testing.assert_array_equal(found, reaching_share_by_sorting(values, prob, share))
    assert found.any(axis=1).all()
