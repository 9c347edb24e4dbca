"""Tests of the distribution of each strategy, computed by hand, in both array libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.arrays import Array, inverse_transform, to_numpy
from chainrule.decode.sample import write_steps
from chainrule.decode.strategies import Chain, EachRow, Forbid, Read, Strategy, normalised
from chainrule.errors import DecodingError

NO_IDS = np.zeros((1, 0), dtype=np.int64)


def left(strategy: Strategy, probabilities: list[float], ids: list[int] | None = None) -> list[float]:
    """Return the distribution of a strategy, computed by NumPy and by torch, which must agree."""
    read = NO_IDS if ids is None else np.asarray([ids])
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.asarray([probabilities]))
    ours = np.exp(normalised(strategy.apply(log_probs, lambda: read)))[0]
    theirs = torch.exp(normalised(strategy.apply(torch.as_tensor(log_probs), lambda: torch.as_tensor(read))))[0]
    np.testing.assert_allclose(theirs.numpy(), ours, atol=1e-12)
    return [round(float(p), 6) for p in ours]


def test_greedy_takes_the_most_likely_and_the_first_among_equals() -> None:
    assert left(cr.Greedy(), [0.2, 0.4, 0.4]) == [0, 1, 0]


def test_temperature_raises_to_the_power_of_its_inverse() -> None:
    # p^2 = 0.25, 0.09, 0.04 of 0.38
    assert left(cr.Temperature(0.5), [0.5, 0.3, 0.2]) == [0.657895, 0.236842, 0.105263]
    assert left(cr.Temperature(1), [0.5, 0.3, 0.2]) == [0.5, 0.3, 0.2]
    for cold in (0, 1e-310, 1e-5):
        assert left(cr.Temperature(cold), [0.5, 0.3, 0.2]) == [1, 0, 0]


def test_top_k_keeps_exactly_k_even_among_equals() -> None:
    assert left(cr.TopK(2), [0.2, 0.5, 0.3]) == [0, 0.625, 0.375]
    assert left(cr.TopK(2), [0.25, 0.25, 0.25, 0.25]) == [0.5, 0.5, 0, 0]
    assert left(cr.TopK(9), [0.2, 0.5, 0.3]) == [0.2, 0.5, 0.3]


def test_top_p_keeps_the_fewest_that_make_up_p() -> None:
    # 0.5 < 0.8, 0.5 + 0.3 = 0.8: two tokens; for 0.81 it takes three
    assert left(cr.TopP(0.8), [0.2, 0.5, 0.3]) == [0, 0.625, 0.375]
    assert left(cr.TopP(0.81), [0.2, 0.5, 0.3]) == [0.2, 0.5, 0.3]
    assert left(cr.TopP(0.1), [0.2, 0.5, 0.3]) == [0, 1, 0]
    assert left(cr.TopP(1.0), [0.2, 0.5, 0.3]) == [0.2, 0.5, 0.3]


def test_min_p_is_relative_to_the_most_likely() -> None:
    # 0.5 * 0.5 = 0.25: the token at 0.2 goes
    assert left(cr.MinP(0.5), [0.2, 0.5, 0.3]) == [0, 0.625, 0.375]
    assert left(cr.MinP(0), [0.2, 0.5, 0.3]) == [0.2, 0.5, 0.3]


def test_repetition_penalty_touches_only_what_occurred() -> None:
    # p^2 = 0.04 of 0.04 + 0.5 + 0.3
    assert left(cr.RepetitionPenalty(2), [0.2, 0.5, 0.3], [0, 0, cr.PAD]) == [0.047619, 0.595238, 0.357143]
    assert left(cr.RepetitionPenalty(2), [0.2, 0.5, 0.3], [cr.PAD]) == [0.2, 0.5, 0.3]
    assert left(cr.RepetitionPenalty(2), [0, 0.5, 0.5], [0]) == [0, 0.5, 0.5]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 2.0])
def test_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    """Scores of either sign become the same scores as in transformers."""
    processors = pytest.importorskip("transformers.generation.logits_process")
    chance = np.random.default_rng(1)
    scores, ids = chance.normal(size=(3, 11)), chance.integers(0, 11, (3, 6))
    theirs = processors.RepetitionPenaltyLogitsProcessor(penalty)(torch.as_tensor(ids), torch.as_tensor(scores))
    np.testing.assert_allclose(cr.RepetitionPenalty(penalty).apply(scores, lambda: ids), theirs.numpy())


def test_presence_and_frequency_penalties_are_subtracted() -> None:
    # e^-ln 2 = 1/2, once, or once for each of two times: 0.2, 0.25, 0.3 of 0.75 and 0.2, 0.125, 0.3 of 0.625
    assert left(cr.PresencePenalty(math.log(2)), [0.2, 0.5, 0.3], [1, 1, cr.PAD]) == [
        0.266667,
        0.333333,
        0.4,
    ]
    assert left(cr.FrequencyPenalty(math.log(2)), [0.2, 0.5, 0.3], [1, 1, cr.PAD]) == [0.32, 0.2, 0.48]
    assert left(cr.FrequencyPenalty(-math.log(2)), [0.2, 0.5, 0.3], [0, cr.PAD]) == [
        0.333333,
        0.416667,
        0.25,
    ]
    assert left(cr.PresencePenalty(3), [0, 0.5, 0.5], [0]) == [0, 0.5, 0.5]


def test_forbidden_tokens_cannot_be_chosen() -> None:
    assert left(Forbid((0, 2)), [0.2, 0.5, 0.3]) == [0, 1, 0]


def test_values_compose_from_left_to_right_and_compare() -> None:
    both = cr.TopK(2) | cr.Temperature(0.5)
    # 0.5 and 0.3 are left, squared 0.25 and 0.09 of 0.34
    assert left(both, [0.2, 0.5, 0.3]) == [0, 0.735294, 0.264706]
    assert both == Chain((cr.TopK(2), cr.Temperature(0.5)))
    assert both | cr.MinP(0.1) == cr.TopK(2) | (cr.Temperature(0.5) | cr.MinP(0.1))
    # the order matters: squared first, 0.8 is reached by 0.25 / 0.38 + 0.09 / 0.38, which are two tokens
    assert left(cr.Temperature(0.5) | cr.TopP(0.6), [0.2, 0.5, 0.3]) == [0, 1, 0]
    assert left(cr.TopP(0.6) | cr.Temperature(0.5), [0.2, 0.5, 0.3]) == [0, 0.735294, 0.264706]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cr.Temperature(-1),
        lambda: cr.Temperature(math.nan),
        lambda: cr.Temperature(math.inf),
        lambda: cr.TopK(0),
        lambda: cr.TopP(0),
        lambda: cr.TopP(1.1),
        lambda: cr.MinP(-0.1),
        lambda: cr.MinP(2),
        lambda: cr.RepetitionPenalty(0),
        lambda: cr.PresencePenalty(math.inf),
        lambda: cr.FrequencyPenalty(math.nan),
        lambda: cr.RepetitionPenalty(1e300),  # in float32 these would make ln p infinite
        lambda: cr.PresencePenalty(-1e300),
        lambda: cr.FrequencyPenalty(1e39),
        lambda: cr.Beam(2, ending="late"),  # type: ignore[arg-type]
        lambda: cr.Beam(0),
        lambda: cr.Beam(2, -1),
    ],
)
def test_values_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(DecodingError, match="should be"):
        wrong()


distributions = st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda p: sum(p) > 0.01)


@settings(max_examples=60, deadline=None)
@given(distributions, st.integers(1, 12), st.floats(0.05, 1), st.floats(0, 1))
def test_filters_only_remove(weights: list[float], k: int, p: float, least: float) -> None:
    probabilities = [w / sum(weights) for w in weights]
    for strategy in (cr.TopK(k), cr.TopP(p), cr.MinP(least), cr.Greedy()):
        kept = [i for i, q in enumerate(left(strategy, probabilities)) if q > 0]
        gone = [i for i in range(len(weights)) if i not in kept and probabilities[i] > 1e-6]
        assert kept
        # nothing that went was likelier than something that stayed
        assert all(probabilities[i] <= probabilities[j] + 1e-9 for i in gone for j in kept)


def test_a_draw_is_the_inverse_of_the_cumulative_distribution() -> None:
    log_probs = np.log(np.asarray([[0.5, 0.3, 0.2]] * 5))
    at = np.asarray([0.0, 0.499, 0.5, 0.79, 1 - 2**-40])
    assert inverse_transform(log_probs, at).tolist() == [0, 0, 1, 1, 2]
    assert inverse_transform(torch.as_tensor(log_probs), at).tolist() == [0, 0, 1, 1, 2]


def test_a_draw_never_takes_what_is_impossible() -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.asarray([[0, 0.4, 0, 0.6, 0]] * 2))
    assert inverse_transform(log_probs, np.asarray([0.0, 1 - 2**-40])).tolist() == [1, 3]


def test_a_strategy_says_what_it_does() -> None:
    both = Forbid((0,)) | cr.Temperature(0.5) | cr.TopK(3) | cr.TopP(0.9) | cr.MinP(0.1)
    assert both.operations() == (
        ("forbid", (0,)),
        ("temperature", 0.5),
        ("top_k", 3),
        ("top_p", 0.9),
        ("min_p", 0.1),
    )
    assert cr.Sample().operations() == ()
    assert cr.Greedy().operations() == cr.Temperature(0).operations() == cr.TopK(1).operations()
    penalties = cr.RepetitionPenalty(2) | cr.PresencePenalty(2) | cr.FrequencyPenalty(1)
    assert penalties.looks_back
    assert penalties.operations() == (
        ("repetition_penalty", 2),
        ("presence_penalty", 2),
        ("frequency_penalty", 1),
    )


def test_a_chain_with_a_strategy_of_ones_own_has_no_operations() -> None:
    class Own(Strategy):
        def apply(self, log_probs_BV: Array, read: Read) -> Array:
            return log_probs_BV

    assert (cr.TopK(3) | Own()).operations() is None


@pytest.mark.parametrize("engine", ["tape", "torch"])
def test_logits_are_for_the_rows_that_ask_for_them(engine: Any) -> None:
    """In a batch of several strategies each row is written, and scored, as it is alone."""
    small: dict[str, Any] = {"engine": engine, "steps": 2, "hidden": 8, "embedding": 8}
    lm = cr.train("lstm", "a b c a b\nb c a\n" * 20, context="stream", tokenizer="char", **small)
    strategies = (cr.RepetitionPenalty(1.5) | cr.TopK(3), cr.Sample(), cr.Temperature(0.5))
    ids, uniforms = np.asarray([[3, 4, 5]] * 3), np.random.default_rng(1).random((3, 12))
    state = lm.extend(lm.start(3), ids)
    _, tokens, scores = write_steps(lm, state, EachRow(strategies, (0, 1, 2)), ids, uniforms, None)
    for row, strategy in enumerate(strategies):
        one = lm.extend(lm.start(1), ids[:1])
        _, alone, own = write_steps(lm, one, strategy, ids[:1], uniforms[row : row + 1], None)
        assert to_numpy(tokens)[row].tolist() == to_numpy(alone)[0].tolist()
        np.testing.assert_allclose(to_numpy(scores)[row], to_numpy(own)[0], rtol=1e-4)
        expected = lm.score(to_numpy(alone), one)
        np.testing.assert_allclose(to_numpy(own), to_numpy(expected), rtol=1e-4)


def test_only_strategies_that_declare_it_see_earlier_tokens() -> None:
    class Own(Strategy):
        def apply(self, log_probs_BV: Array, read: Read) -> Array:
            return log_probs_BV + 0 * read().shape[1]

    def unread() -> Array:
        raise AssertionError("it said that it does not look back")

    log_probs = np.log(np.asarray([[0.2, 0.5, 0.3]]))
    blind = [cr.Sample(), cr.Greedy(), cr.Temperature(0.5), cr.TopK(2), cr.TopP(0.8), cr.MinP(0.5), Forbid((0,))]
    for strategy in (*blind, Chain(tuple(blind))):
        assert not strategy.looks_back
        strategy.apply(log_probs, unread)
    # a strategy of somebody else may look back unless it says otherwise
    for strategy in (cr.RepetitionPenalty(2), Own(), cr.TopK(2) | Own()):
        assert strategy.looks_back
        with pytest.raises(AssertionError, match="does not look back"):
            strategy.apply(log_probs, unread)


@pytest.mark.parametrize(
    "strategy",
    [
        cr.Sample(),
        cr.Greedy(),
        cr.Temperature(0.5),
        cr.TopK(2),
        cr.TopP(0.6),
        cr.MinP(0.4),
        Forbid((1, 4, 6)) | cr.Temperature(0.7) | cr.TopK(2),
    ],
)
def test_a_strategy_among_few_tokens_is_the_one_among_all(strategy: Strategy) -> None:
    tokens_V = np.asarray([1, 4, 5, 8])
    every_BV = np.full((2, 10), -np.inf)
    every_BV[:, tokens_V] = np.log([[0.4, 0.3, 0.2, 0.1], [0.05, 0.15, 0.2, 0.6]])
    narrowed = strategy.among(tokens_V)
    assert narrowed is not None
    found_BV = narrowed.apply(every_BV[:, tokens_V], lambda: np.zeros((2, 0), np.int64))
    expected_BV = strategy.apply(every_BV, lambda: np.zeros((2, 0), np.int64))
    np.testing.assert_array_equal(found_BV, expected_BV[:, tokens_V])
    assert (np.delete(expected_BV, tokens_V, axis=1) == -np.inf).all()


def test_a_strategy_that_looks_back_cannot_be_narrowed() -> None:
    assert (cr.TopK(2) | cr.RepetitionPenalty(1.5)).among(np.arange(3)) is None
