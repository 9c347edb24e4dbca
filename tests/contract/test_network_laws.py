"""Tests of every law on networks of every design, by torch and on the tape, with texts longer than the window."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import pad, to_numpy
from chainrule.autodiff import tape_model
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract import chain, kinds
from chainrule.contract.lm import LanguageModel, read
from chainrule.networks import loss_on_cpu
from chainrule.networks.loss_on_cpu import nats_of_targets
from chainrule.settings import parse
from chainrule.testing.laws import LAWS, prefixes
from toy_models import with_random_weights

TEXT = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
TOKENIZER = cr.train_tokenizer("word", TEXT)
SMALL: dict[str, Any] = {"embedding": 8, "hidden": 16}
SMALL_TRANSFORMER: dict[str, Any] = {"layers": 2, "width": 16, "heads": 4, "window": 5}
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "lecture": ("transformer", {"preset": "lecture"}),
    "gpt2": ("transformer", {"preset": "gpt2", "slide": 1.0}),
    "llama": ("transformer", {"preset": "llama", "kv_heads": 2}),
    "bert": ("transformer", {"preset": "bert"}),
    "fast": ("transformer", {"preset": "fast", "kv_heads": 1}),
    "no residual": ("transformer", {"residual": False}),
    "alibi": ("transformer", {"positions": "alibi", "slide": 0.2}),
    "no positions": ("transformer", {"positions": "none", "slide": 1.0}),
    "bag of words": ("bagofwords", {"window": 4}),
    "bag that slides by one": ("bagofwords", {"window": 5, "slide": 0.1, "layers": 1}),
    "endless bag": ("bagofwords", {"window": None, "tied": True}),
    "bigram network": ("feedforward", {"order": 2}),
    "direct": ("feedforward", {"order": 4, "direct": True, "activation": "sigmoid"}),
    "no bias": ("feedforward", {"order": 3, "bias": False}),
    "relu elman": ("elman", {"layers": 3, "activation": "relu"}),
    "sigmoid elman": ("elman", {"layers": 1, "activation": "sigmoid"}),
    "learned start": ("lstm", {"learned_start": True, "tied": False}),
    "gru": ("gru", {"last": 12}),
    "reset before": ("gru", {"layers": 1, "reset": "before", "biases": 1}),
    "qrnn": ("qrnn", {"layers": 2, "kernel": 3, "learned_start": True}),
}


@cache
def made(engine: str, design: str) -> Any:
    """Return a network whose random weights are so large that its probabilities differ."""
    kind, settings = DESIGNS[design]
    settings = {**(SMALL_TRANSFORMER if kind == "transformer" else SMALL), **settings}
    lm: Any = cr.train(kind, TEXT, tokenizer=TOKENIZER, context="stream", steps=1, engine=engine, **settings)
    assert isinstance(lm, TapeModel) is (engine == "tape")
    if engine == "torch":
        return with_random_weights(lm)
    rng = np.random.default_rng(1)
    for parameter in lm.network.parameters.values():
        parameter.out_tensor[:] = rng.normal(0, 0.3, parameter.out_tensor.shape)
    return lm


@pytest.fixture(scope="module", params=[(engine, design) for engine in ("torch", "tape") for design in DESIGNS])
def lm(request: pytest.FixtureRequest) -> LanguageModel:
    return made(*request.param)


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_law(lm: LanguageModel, law: str) -> None:
    LAWS[law](lm)


def test_long_texts_are_read_alike_in_any_pieces(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts longer than any window: all at once, token by token, and in pieces of odd sizes from a state."""
    ids_BT = np.random.default_rng(0).integers(3, TOKENIZER.vocab_size, (2, 23))
    expected = chain.score(lm, ids_BT)
    assert_close(lm.score(ids_BT), expected)
    state, scores = lm.start(2), []
    for piece in np.split(ids_BT, [1, 4, 11, 12], axis=1):
        some, state = read(lm, state, piece)
        scores.append(to_numpy(some))
    assert_close(np.concatenate(scores, axis=1), expected)
    if isinstance(lm, TapeModel):
        padded = lm.extend(state, pad([[3, 4], [3]]))
        assert {part.dtype for part in (padded.features_BD, lm.next_log_probs(padded))} == {np.dtype(np.float32)}
        monkeypatch.setattr(tape_model, "TOKENS_AT_ONCE", 10)
        monkeypatch.setattr(tape_model, "LOGITS_AT_ONCE", 30)
        assert_close(lm.score(ids_BT), expected)


def test_rows_of_any_length_slide_by_themselves(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_model, "TOKENS_AT_ONCE", 10)
    rows = [list(range(3, 3 + length % 6)) * 3 for length in (1, 2, 5, 3)]
    state = lm.extend(lm.extend(lm.start(4), pad(rows)), pad([row[:2] for row in rows]))
    scores, after = read(lm, lm.start(4), pad(rows))
    for i, row in enumerate(rows):
        alone = lm.next_log_probs(chain.after(lm, [*row, *row[:2]]))[0]
        assert_close(lm.next_log_probs(state)[i], alone)
        assert_close(scores[i, : len(row)], lm.score(pad([row]))[0])
        assert_close(lm.next_log_probs(after)[i], lm.next_log_probs(chain.after(lm, row))[0])


def test_settings_are_read_back_as_they_were() -> None:
    for design, (kind, _) in DESIGNS.items():
        settings = made("torch", design).settings
        assert parse(kinds.find_kind(kind).settings, vars(settings)) == settings


def test_prefixes_are_longer_than_the_window() -> None:
    assert max(map(len, prefixes(made("torch", "gpt2")))) > SMALL_TRANSFORMER["window"]


@pytest.mark.parametrize(("engine", "design"), [("tape", "gru"), ("torch", "gru"), ("torch", "gpt2")])
def test_empty_texts_and_no_rows(engine: str, design: str) -> None:
    lm = made(engine, design)
    assert lm.score(np.zeros((2, 0), np.int64)).shape == (2, 0)
    assert lm.next_log_probs(lm.start(0)).shape == (0, lm.tokenizer.vocab_size)
    state = lm.start(1)
    nothing = lm.extend(state, np.zeros((1, 0), np.int64))
    np.testing.assert_array_equal(lm.next_log_probs(nothing), lm.next_log_probs(state))


def test_compiled_loops_give_the_scores_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, ids_BT = made("tape", "gru"), pad([[3, 4, 5, 2], [4, 2]])
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
