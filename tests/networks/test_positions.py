from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.networks.transformer.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_tables,
    rotate,
    sinusoidal_table,
)


def test_sinusoidal_positions_by_hand() -> None:
    table_TD = sinusoidal_table(window=4, width=4)
    # features 0 and 1 turn once in 2π tokens, 2 and 3 at 10000^(2/4) = 100 times the length
    expected = [[math.sin(t), math.cos(t), math.sin(t / 100), math.cos(t / 100)] for t in range(4)]
    torch.testing.assert_close(table_TD, torch.tensor(expected))


def test_sinusoidal_positions_of_an_odd_width() -> None:
    table_TD = sinusoidal_table(window=3, width=5)
    assert table_TD.shape == (3, 5)
    torch.testing.assert_close(table_TD[2, 4], torch.tensor(math.sin(2 / 10000 ** (4 / 5))))


def test_rotation_by_hand() -> None:
    cos_TK, sin_TK = rotary_tables(window=3, head_size=4, base=10000.0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    # pairs are (x_0, x_2), turned by t, and (x_1, x_3), turned by t / 10000^(2/4) = t / 100
    turned = rotate(x, cos_TK[2], sin_TK[2])
    expected = [
        1 * math.cos(2) - 3 * math.sin(2),
        2 * math.cos(0.02) - 4 * math.sin(0.02),
        3 * math.cos(2) + 1 * math.sin(2),
        4 * math.cos(0.02) + 2 * math.sin(0.02),
    ]
    torch.testing.assert_close(turned, torch.tensor(expected))


@given(t=st.integers(0, 30), s=st.integers(0, 30), shift=st.integers(0, 30), seed=st.integers(0, 9))
def test_rotary_scores_depend_only_on_the_distance(t: int, s: int, shift: int, seed: int) -> None:
    cos_TK, sin_TK = rotary_tables(window=64, head_size=8, base=10000.0)
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))
    here = rotate(q, cos_TK[t], sin_TK[t]) @ rotate(k, cos_TK[s], sin_TK[s])
    there = rotate(q, cos_TK[t + shift], sin_TK[t + shift]) @ rotate(k, cos_TK[s + shift], sin_TK[s + shift])
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),  # 1/2, 1/4, ..., 1/256, as published
        (4, [2, 4, 6, 8]),
        (1, [8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),  # those of 8, then every other one of 16
        (3, [4, 8, 2]),
    ],
)
def test_alibi_slopes_as_published(heads: int, exponents: list[float]) -> None:
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor([2.0**-e for e in exponents]))


def test_alibi_lowers_by_distance_and_hides_the_future() -> None:
    distance_TS = torch.tensor([[1, 0, -1], [2, 1, 0]])
    bias_HTS = alibi_bias(torch.tensor([0.5, 0.25]), distance_TS)
    never = -math.inf
    expected = [[[-0.5, 0, never], [-1, -0.5, 0]], [[-0.25, 0, never], [-0.5, -0.25, 0]]]
    torch.testing.assert_close(bias_HTS, torch.tensor(expected))
