"""Tests of every law on networks of every design that the tape computes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import pad
from chainrule.autodiff import tape_model
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract import chain
from chainrule.networks import loss_on_cpu
from chainrule.networks.loss_on_cpu import nats_of_targets
from chainrule.testing.laws import LAWS

TEXT = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "bigram network": ("feedforward", {"order": 2}),
    "direct": ("feedforward", {"order": 4, "direct": True, "activation": "sigmoid"}),
    "bag of words": ("bagofwords", {"window": 4, "layers": 1}),
    "bag that slides by one": ("bagofwords", {"window": 5, "slide": 0.1}),
    "endless bag": ("bagofwords", {"window": None, "tied": True}),
    "relu elman": ("elman", {"activation": "relu"}),
    "learned start": ("lstm", {"learned_start": True, "tied": False, "layers": 1}),
    "gru": ("gru", {"layers": 1, "last": 12}),
    "reset before": ("gru", {"embedding": 8, "hidden": 16, "layers": 1, "reset": "before", "biases": 1}),
    "sigmoid elman": ("elman", {"embedding": 8, "hidden": 16, "layers": 1, "activation": "sigmoid"}),
    "no bias": ("feedforward", {"order": 3, "embedding": 8, "hidden": 16, "bias": False}),
    "qrnn": ("qrnn", {"layers": 2, "kernel": 3}),
    "lecture's transformer": ("transformer", {"preset": "lecture"}),
    "gpt2": ("transformer", {"preset": "gpt2", "slide": 1.0}),
    "llama": ("transformer", {"preset": "llama", "kv_heads": 2, "heads": 4}),
    "fast transformer": ("transformer", {"preset": "fast", "kv_heads": 1}),
    "no residual": ("transformer", {"residual": False}),
    "alibi": ("transformer", {"positions": "alibi", "slide": 0.2}),
}
SMALL = {"embedding": 8, "hidden": 16}
SMALL_TRANSFORMER = {"width": 8, "heads": 2, "hidden": 16, "layers": 1, "window": 6}


@cache
def made(design: str) -> TapeModel:
    """Return a network whose random weights are so large that its probabilities differ."""
    kind, settings = DESIGNS[design]
    small = SMALL_TRANSFORMER if kind == "transformer" else SMALL
    lm = cr.train(kind, TEXT, context="stream", engine="tape", steps=1, **{**small, **settings}, tokenizer="word")
    assert isinstance(lm, TapeModel)
    rng = np.random.default_rng(1)
    for parameter in lm.network.parameters.values():
        parameter.out_tensor[:] = rng.normal(0, 0.3, parameter.out_tensor.shape)
    return lm


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("design", DESIGNS)
def test_law(design: str, law: str) -> None:
    LAWS[law](made(design))


@pytest.mark.parametrize("design", DESIGNS)
def test_long_texts_are_read_alike_in_any_pieces(design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read texts all at once, token by token, in pieces of odd sizes, and by a model with small batches."""
    lm = made(design)
    ids_BT = np.random.default_rng(0).integers(3, lm.tokenizer.vocab_size, (2, 23))
    expected = chain.score(lm, ids_BT)
    np.testing.assert_allclose(lm.score(ids_BT), expected, rtol=1e-5, atol=1e-5)
    state, scores = lm.start(2), []
    for piece in np.split(ids_BT, [1, 4, 11, 12], axis=1):
        some, state = lm.read(state, piece)
        scores.append(some)
    np.testing.assert_allclose(np.concatenate(scores, axis=1), expected, rtol=1e-5, atol=1e-5)
    padded = lm.extend(state, pad([[3, 4], [3]]))
    assert {part.dtype for part in (padded.features_BD, lm.next_log_probs(padded))} == {np.dtype(np.float32)}
    monkeypatch.setattr("chainrule.autodiff.tape_model.TOKENS_AT_ONCE", 10)
    monkeypatch.setattr("chainrule.autodiff.tape_model.LOGITS_AT_ONCE", 30)
    np.testing.assert_allclose(lm.score(ids_BT), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("design", DESIGNS)
def test_rows_of_any_length_go_on_by_themselves(design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = made(design)
    monkeypatch.setattr("chainrule.autodiff.tape_model.TOKENS_AT_ONCE", 10)
    rows = [list(range(3, 3 + length % 6)) * 3 for length in (1, 2, 5, 3)]
    state = lm.extend(lm.extend(lm.start(4), pad(rows)), pad([row[:2] for row in rows]))
    scores, read = lm.read(lm.start(4), pad(rows))
    for i, row in enumerate(rows):
        alone = lm.next_log_probs(chain.after(lm, [*row, *row[:2]]))[0]
        np.testing.assert_allclose(lm.next_log_probs(state)[i], alone, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scores[i, : len(row)], lm.score(pad([row]))[0], rtol=1e-5, atol=1e-5)
        after = lm.next_log_probs(chain.after(lm, row))[0]
        np.testing.assert_allclose(lm.next_log_probs(read)[i], after, rtol=1e-5, atol=1e-5)


def test_empty_texts_and_no_rows() -> None:
    lm = made("gru")
    assert lm.score(np.zeros((2, 0), np.int64)).shape == (2, 0)
    assert lm.next_log_probs(lm.start(0)).shape == (0, lm.tokenizer.vocab_size)
    state = lm.start(1)
    np.testing.assert_array_equal(
        lm.next_log_probs(lm.extend(state, np.zeros((1, 0), np.int64))), lm.next_log_probs(state)
    )


def test_compiled_loops_give_the_scores_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, ids_BT = made("gru"), pad([[3, 4, 5, 2], [4, 2]])
    called: list[int] = []

    def counted(*arguments: Any) -> Any:
        called.append(len(arguments[0]))
        return nats_of_targets(*arguments)

    monkeypatch.setattr(tape_model, "IS_ARM", False)
    plain = lm.score(ids_BT)
    monkeypatch.setattr(tape_model, "IS_ARM", True)
    monkeypatch.setattr(tape_model, "_NANOSECONDS", 1e9)
    monkeypatch.setattr(loss_on_cpu, "nats_of_targets", counted)
    np.testing.assert_allclose(lm.score(ids_BT), plain, rtol=1e-5, atol=1e-6)
    assert called == [8]
