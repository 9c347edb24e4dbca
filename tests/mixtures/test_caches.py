"""Tests of caches against counts by hand, and of one sort of cache against the other."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.arrays import PAD, pad
from chainrule.mixtures.caches import Cache, CacheState, counts_before

V, BOS = 7, 1


def slowly(cache: Cache, row: list[int], keys: np.ndarray, token: int, query: np.ndarray) -> float:
    """p(w) = (n Σ a_i + 1 / (V - 1)) / (n + 1), term by term."""
    last = range(max(len(row) - cache.size, 0), len(row))
    powers = {i: math.exp(cache.theta * float(query @ keys[i])) for i in last}
    share = sum(power for i, power in powers.items() if row[i] == token) / max(sum(powers.values()), 1e-300)
    return (len(last) * share + 1 / (V - 1)) / (len(last) + 1)


def test_a_cache_by_hand() -> None:
    """After a b a, a cache of 2 has b and a: p(a) = (1 + 1/6) / 3."""
    cache = Cache(2, V, BOS)
    state = cache.extend(cache.start(1, None), np.asarray([[3, 4, 3]]), None)
    p = np.exp(cache.log_probs(state, None))[0]
    assert math.isclose(p[3], (1 + 1 / 6) / 3)
    assert math.isclose(p[4], (1 + 1 / 6) / 3)
    assert math.isclose(p[5], 1 / 6 / 3)
    assert p[BOS] == 0
    assert math.isclose(p.sum(), 1)


@given(
    st.lists(st.lists(st.integers(2, V - 1), max_size=12), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_counting_is_attending_with_equal_weights(rows: list[list[int]], size: int, cut: int) -> None:
    """A unigram cache is a continuous one with θ = 0, read in any two pieces."""
    ids_BT = pad(rows)
    features = np.random.default_rng(0).normal(size=(*ids_BT.shape, 3))
    counted, attended = Cache(size, V, BOS), Cache(size, V, BOS, 0, 0.0)
    one, other = counted.start(len(rows), None), attended.start(len(rows), np.zeros((len(rows), 3)))
    for piece in (np.s_[:, :cut], np.s_[:, cut:]):
        is_token = ids_BT[piece] != PAD
        np.testing.assert_allclose(
            counted.scores(one, ids_BT[piece], None)[is_token],
            attended.scores(other, ids_BT[piece], features[piece])[is_token],
        )
        one = counted.extend(one, ids_BT[piece], None)
        other = attended.extend(other, ids_BT[piece], features[piece])
    anything_BD = np.ones((len(rows), 3))
    np.testing.assert_allclose(counted.log_probs(one, None), attended.log_probs(other, anything_BD))


@given(
    st.lists(st.lists(st.integers(2, V - 1), min_size=1, max_size=9), min_size=1, max_size=3),
    st.integers(1, 5),
    st.floats(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_a_continuous_cache_is_what_the_formula_says(rows: list[list[int]], size: int, theta: float) -> None:
    ids_BT, cache = pad(rows), Cache(size, V, BOS, 0, theta)
    features = np.random.default_rng(1).normal(size=(*ids_BT.shape, 4))
    expected = np.zeros(ids_BT.shape)
    for b, row in enumerate(rows):
        for t, token in enumerate(row):
            expected[b, t] = math.log(slowly(cache, row[:t], features[b], token, features[b, t]))
    is_token = ids_BT != PAD
    for array in (np.asarray, torch.from_numpy):
        found = np.asarray(cache.scores(cache.start(len(rows), array(features[:, 0])), ids_BT, array(features)))
        np.testing.assert_allclose(found[is_token], expected[is_token], rtol=1e-9)
        state = cache.extend(cache.start(len(rows), array(features[:, 0])), ids_BT, array(features))
        log_probs = np.asarray(cache.log_probs(state, array(features[:, 0])))
        for b, row in enumerate(rows):
            p = [0 if w == BOS else slowly(cache, row, features[b], w, features[b, 0]) for w in range(V)]
            np.testing.assert_allclose(np.exp(log_probs[b]), p, rtol=1e-9)


def test_long_texts_are_attended_to_in_pieces() -> None:
    """More than 512 tokens: several products, whose windows overlap."""
    generator = np.random.default_rng(2)
    row, features = generator.integers(2, V, 1300), generator.normal(size=(1, 1300, 3))
    cache = Cache(40, V, BOS, 0, 0.7)
    found = cache.scores(cache.start(1, features[:, 0]), row[None], features)[0]
    for t in (0, 1, 39, 40, 41, 511, 512, 513, 1024, 1299):
        expected = slowly(cache, row[:t].tolist(), features[0], int(row[t]), features[0, t])
        assert math.isclose(math.exp(found[t]), expected, rel_tol=1e-9), t


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 9))
def test_counts_before(tokens: list[int], size: int) -> None:
    array = np.asarray(tokens)
    found = counts_before(array, np.zeros(len(array), np.int64), np.arange(len(array)), size)
    assert found.tolist() == [tokens[max(i - size, 0) : i].count(token) for i, token in enumerate(tokens)]


def test_rows_of_different_lengths_join() -> None:
    one = CacheState(np.asarray([[3, 4, 5]]), np.ones((1, 3, 2)))
    other = CacheState(np.asarray([[6]]), np.zeros((1, 1, 2)))
    joined = other.join(one)
    assert joined.ids_BN.tolist() == [[PAD, PAD, 6], [3, 4, 5]]
    assert joined.select(np.asarray([1])).ids_BN.tolist() == [[3, 4, 5]]
