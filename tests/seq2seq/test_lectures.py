"""The shapes and the steps of the lectures, with vectors worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from chainrule.arrays import to_numpy
from chainrule.networks.seq2seq.alignment import Alignment as Scores
from chainrule.networks.seq2seq.config import Attention

from .toys import made

S_1, S_2, H = [1.0, 0.0], [0.0, 2.0], [1.0, 1.0]
"""Two states of the encoder, and one of the decoder."""


def attended(kind: Attention, *, key: list[list[float]] | None = None) -> tuple[list[float], list[float]]:
    """The attention weights α_1, α_2 and the context c of the decoder's state."""
    alignment = Scores(kind, 2)
    with torch.no_grad():
        if key is not None:
            alignment.key.weight.copy_(torch.tensor(key))
        if kind == "additive":
            alignment.query.weight.copy_(torch.eye(2))
            alignment.key.bias.zero_()
            alignment.v.copy_(torch.tensor([1.0, 1.0]))
        states_NSD, h_NTD = torch.tensor([[S_1, S_2]]), torch.tensor([[H]])
        c, weights = alignment(h_NTD, alignment.keys(states_NSD), states_NSD, torch.ones(1, 2, dtype=torch.bool))
    return weights[0, 0].tolist(), c[0, 0].tolist()


def softmax(*scores: float) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize(
    ("kind", "key", "scores"),
    [
        # hᵀ s: 1·1 + 1·0 = 1 and 1·0 + 1·2 = 2
        ("dot", None, (1.0, 2.0)),
        # the same by sqrt(2)
        ("scaled", None, (1 / math.sqrt(2), 2 / math.sqrt(2))),
        # W = [[0, 1], [3, 0]]: W s_1 = (0, 3), W s_2 = (2, 0); hᵀ W s = 3 and 2
        ("general", [[0.0, 1.0], [3.0, 0.0]], (3.0, 2.0)),
        # vᵀ tanh(h + s): tanh 2 + tanh 1, and tanh 1 + tanh 3
        ("additive", [[1.0, 0.0], [0.0, 1.0]], (math.tanh(2) + math.tanh(1), math.tanh(1) + math.tanh(3))),
    ],
)
def test_attention_step_by_step(kind: Attention, key: list[list[float]] | None, scores: tuple[float, ...]) -> None:
    weights, context = attended(kind, key=key)
    assert weights == pytest.approx(softmax(*scores), abs=1e-6)
    # c = α_1 s_1 + α_2 s_2 = (α_1, 2 α_2)
    assert context == pytest.approx([weights[0], 2 * weights[1]], abs=1e-6)


def test_padding_gets_no_weight() -> None:
    alignment = Scores("dot", 2)
    states_NSD = torch.tensor([[S_1, S_2]])
    _, weights = alignment(torch.tensor([[H]]), states_NSD, states_NSD, torch.tensor([[True, False]]))
    assert weights[0, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("design", ["no attention", "dot", "transformer"])
def test_many_to_many(design: str) -> None:
    """S source tokens in, T target tokens out: neither length decides the other, and each step gives V numbers."""
    lm = made(design, window=16) if design == "transformer" else made(design)
    size = lm.tokenizer.vocab_size
    for source, steps in (("a", 4), ("a b c d e f", 1)):
        state = lm.begin([lm.encode_source(source)])
        for _ in range(steps):
            log_probs_BV = to_numpy(lm.next_log_probs(state))
            assert log_probs_BV.shape == (1, size)
            state = lm.extend(state, log_probs_BV.argmax(axis=1)[:, None])


def test_without_attention_the_last_state_is_all_there_is() -> None:
    """The decoder's memory has the same size for every source: nothing of the source's length is in it."""
    lm = made("one direction")
    memories = [lm.begin([lm.encode_source(text)]).memory for text in ("a", "a b c d e f")]
    for memory in memories:
        assert memory.sources.arrays == ()  # type: ignore[attr-defined]
    shapes = [[tuple(part.shape) for part in memory.target.states[0]] for memory in memories]  # type: ignore[attr-defined]
    assert shapes[0] == shapes[1] == [(1, 16), (1, 16)]
    with_attention = made("dot").begin([lm.encode_source("a b c")]).memory
    keys, states = with_attention.sources.arrays  # type: ignore[attr-defined]
    assert keys.shape == states.shape == (1, 4, 16)  # three words and </s>


def test_the_three_attentions_of_a_transformer() -> None:
    """The encoder sees all of the source, the decoder what came before, and all of the source."""
    lm = made("transformer", window=16)
    network = lm.network

    def encoded(text: str) -> np.ndarray:
        ids = torch.from_numpy(lm.encode_source(text))[None]
        with torch.inference_mode():
            return to_numpy(network.encoder(ids, torch.ones_like(ids, dtype=torch.bool)))  # type: ignore[operator]

    # encoder self-attention: another last word changes the features of the first
    assert np.abs(encoded("a b c")[0, 0] - encoded("a b d")[0, 0]).max() > 1e-4
    # masked decoder self-attention: a later token changes no earlier prediction
    source = lm.encode_source("a b c")
    one, other = (np.asarray([[*lm.tokenizer.encode(text)]]) for text in ("a b c", "a b d"))
    first, second = (to_numpy(lm.score(ids, lm.begin([source])))[0] for ids in (one, other))
    np.testing.assert_allclose(first[:2], second[:2], atol=1e-6)
    # cross-attention: every source token has a weight, the last one too
    weights = lm.attention_weights(source, np.append(one[0], lm.tokenizer.eos))
    assert weights is not None
    assert (weights > 0).all()
