"""An encoder-decoder is a language model whose states begin from sources: the laws hold, and those of sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD, pad, to_numpy
from chainrule.contract.lm import read
from chainrule.decode.beam import beam_search
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.seq2seq.translate import translate_ids
from chainrule.testing.laws import LAWS

from .toys import DESIGNS, made

TEXTS = ["a b c d", "f", "b b a", "c a f e d"]
TARGETS = ["b", "a c d e f", "", "d d"]


@pytest.fixture(scope="module", params=DESIGNS)
def lm(request: pytest.FixtureRequest) -> EncoderDecoderModel:
    return made(request.param)


@pytest.fixture(scope="module")
def sources(lm: EncoderDecoderModel) -> list[np.ndarray]:
    return [lm.encode_source(text) for text in TEXTS]


@pytest.fixture(scope="module")
def targets(lm: EncoderDecoderModel) -> list[list[int]]:
    return [[*lm.tokenizer.encode(text).tolist(), lm.tokenizer.eos] for text in TARGETS]


@pytest.mark.parametrize("law", LAWS)
def test_law(lm: EncoderDecoderModel, law: str) -> None:
    LAWS[law](lm)


def test_a_batch_of_sources_is_its_sources_one_by_one(
    lm: EncoderDecoderModel, sources: list[np.ndarray], targets: list[list[int]]
) -> None:
    """Sources of different length are padded, and targets too: neither changes anything."""
    together = to_numpy(lm.score(pad(targets), lm.begin(sources)))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = to_numpy(lm.score(np.asarray([target]), lm.begin([source])))[0]
        np.testing.assert_allclose(together[row, : len(target)], alone, atol=2e-5)
        assert (together[row, len(target) :] == 0).all()
    # another source for the first row changes its scores, and no other's
    other = to_numpy(lm.score(pad(targets), lm.begin([sources[1], *sources[1:]])))
    assert abs(together[0] - other[0]).max() > 1e-3
    np.testing.assert_allclose(together[1:], other[1:], atol=2e-5)


def test_scores_from_a_source_are_step_by_step(
    lm: EncoderDecoderModel, sources: list[np.ndarray], targets: list[list[int]]
) -> None:
    state, ids_BT = lm.begin(sources), pad(targets)
    expected = to_numpy(lm.score(ids_BT, state))
    at_once, _ = read(lm, state, ids_BT)
    np.testing.assert_allclose(to_numpy(at_once), expected, atol=2e-5)
    for t in range(ids_BT.shape[1]):
        log_probs = to_numpy(lm.next_log_probs(state))
        np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-5)
        rows = np.flatnonzero(ids_BT[:, t] != PAD)
        np.testing.assert_allclose(log_probs[rows, ids_BT[rows, t]], expected[rows, t], atol=2e-5)
        state = lm.extend(state, ids_BT[:, t : t + 1])


def test_the_source_matters(lm: EncoderDecoderModel, sources: list[np.ndarray]) -> None:
    probs = np.exp(to_numpy(lm.next_log_probs(lm.begin(sources))))
    assert np.abs(probs[0] - probs[1]).max() > 1e-3
    empty = to_numpy(lm.next_log_probs(lm.begin([np.asarray([lm.source_tokenizer.eos])])))
    np.testing.assert_allclose(to_numpy(lm.next_log_probs(lm.start(1))), empty)


def test_rows_keep_their_sources(lm: EncoderDecoderModel, sources: list[np.ndarray]) -> None:
    """Selected, repeated and joined rows see the sources they had; also those whose sources are of other length."""
    state = lm.begin(sources)
    expected = to_numpy(lm.next_log_probs(state))
    rows = np.asarray([2, 0, 0, 3])
    np.testing.assert_allclose(to_numpy(lm.next_log_probs(state.select(rows))), expected[rows])
    joined = lm.begin(sources[:1]).join(lm.begin(sources[1:]))
    np.testing.assert_allclose(to_numpy(lm.next_log_probs(joined)), expected, atol=2e-5)
    again = lm.extend(joined.select(np.asarray([3, 3, 1])), np.asarray([[3], [3], [4]]))
    one = lm.extend(state.select(np.asarray([3, 3, 1])), np.asarray([[3], [3], [4]]))
    np.testing.assert_allclose(to_numpy(lm.next_log_probs(again)), to_numpy(lm.next_log_probs(one)), atol=2e-5)


@pytest.mark.parametrize("rows", [[0, 0, 0, 1, 1, 1], [0, 0, 2, 2], [1, 1, 1], [2, 0, 1], [0, 0, 1], [2, 1, 2]])
def test_rows_that_share_a_source_are_as_rows_that_do_not(
    lm: EncoderDecoderModel, sources: list[np.ndarray], rows: list[int]
) -> None:
    targets = pad([[3 + i % 4, 4, 5 + i % 2] for i in range(len(rows))])
    selected = lm.begin(sources).select(np.asarray(rows))
    expected = to_numpy(lm.score(targets, lm.begin([sources[row] for row in rows])))
    np.testing.assert_allclose(to_numpy(lm.score(targets, selected)), expected, atol=2e-5)
    joined = selected.join(lm.begin([sources[0]]))
    found = to_numpy(lm.score(np.concatenate([targets, targets[:1]]), joined))
    np.testing.assert_allclose(found[: len(rows)], expected, atol=2e-5)


def test_hypotheses_share_their_source(lm: EncoderDecoderModel, sources: list[np.ndarray]) -> None:
    """A beam of rows that point to one source finds what rows with a copy each would."""
    limits = np.asarray([3, 5, 4, 6])
    found = beam_search(lm, lm.begin(sources), cr.Beam(3), max_tokens=limits, end=lm.tokenizer.eos, best=2)
    for row, source in enumerate(sources):
        state = lm.begin([source])
        alone = beam_search(lm, state, cr.Beam(3), max_tokens=int(limits[row]), end=lm.tokenizer.eos, best=2)[0]
        assert [one.ids for one in found[row]] == [one.ids for one in alone]
        for one in found[row]:
            own = float(to_numpy(lm.score(np.asarray([one.ids]), lm.begin([source]))).sum())
            assert own == pytest.approx(one.log_prob, abs=1e-4)


@pytest.mark.parametrize("strategy", [cr.Beam(2), pytest.param(cr.Greedy(), marks=pytest.mark.slow), cr.TopK(3)])
def test_a_translation_does_not_depend_on_the_batch(
    lm: EncoderDecoderModel, sources: list[np.ndarray], strategy: cr.decode.Strategy | cr.Beam
) -> None:
    best = 1 if strategy == cr.Greedy() else 2
    together = translate_ids(lm, sources, strategy, best=best, seed=3)
    for source, found in zip(sources, together, strict=True):
        (alone,) = translate_ids(lm, [source], strategy, best=best, seed=3)
        assert [one.ids for one in alone] == [one.ids for one in found]
        np.testing.assert_allclose(
            [one.log_prob for one in alone], [one.log_prob for one in found], rtol=1e-4, atol=1e-4
        )


def test_attention_weights_are_those_of_each_step(lm: EncoderDecoderModel, sources: list[np.ndarray]) -> None:
    target = np.asarray([*lm.tokenizer.encode("a b"), lm.tokenizer.eos])
    weights = lm.attention_weights(sources[0], target)
    if lm.settings.attention == "none":
        assert weights is None
        return
    assert weights is not None
    layers, heads = (lm.settings.layers, lm.settings.heads) if lm.settings.cell == "transformer" else (1, 1)
    assert weights.shape == (layers, heads, len(target), len(sources[0]))
    if lm.settings.source_start:
        assert (weights.sum(axis=-1) < 1).all()  # the rest is that of <s>, which is no part of the source
    else:
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    first = lm.attention_weights(sources[0], target[:1])
    assert first is not None
    np.testing.assert_allclose(weights[:, :, :1], first, atol=1e-5)


def test_no_sources_are_no_rows(lm: EncoderDecoderModel) -> None:
    assert len(lm.begin([])) == 0
    with pytest.raises(ValueError, match="ids go from 0"):
        lm.begin([np.asarray([99, lm.tokenizer.eos])])


def test_a_device_changes_nothing(lm: EncoderDecoderModel, sources: list[np.ndarray]) -> None:
    wide = lm.on("cpu", "float64")
    assert isinstance(wide, EncoderDecoderModel)
    assert wide.source_tokenizer is lm.source_tokenizer
    with torch.inference_mode():
        np.testing.assert_allclose(
            to_numpy(wide.next_log_probs(wide.begin(sources))),
            to_numpy(lm.next_log_probs(lm.begin(sources))),
            atol=1e-4,
        )
