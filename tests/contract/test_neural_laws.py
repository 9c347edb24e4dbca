"""Tests of every law on networks of every design, with texts longer than the window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import pad
from chainrule.contract import chain, kinds
from chainrule.contract.lm import LanguageModel, read
from chainrule.inference.neural_model import NeuralModel
from chainrule.settings import parse
from chainrule.testing.laws import LAWS, prefixes

TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n"))
SMALL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 4, "window": 5}
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "lecture": ("transformer", {"preset": "lecture"}),
    "gpt2": ("transformer", {"preset": "gpt2"}),
    "llama": ("transformer", {"preset": "llama", "kv_heads": 2}),
    "bert": ("transformer", {"preset": "bert"}),
    "fast": ("transformer", {"preset": "fast", "kv_heads": 1}),
    "no residual": ("transformer", {"residual": False}),
    "alibi": ("transformer", {"positions": "alibi", "slide": 0.2}),
    "no positions": ("transformer", {"positions": "none", "slide": 1.0}),
    "bag of words": ("bagofwords", {"window": 4, "embedding": 8, "hidden": 16}),
    "endless bag": ("bagofwords", {"window": None, "embedding": 8, "hidden": 16}),
    "bigram network": ("feedforward", {"order": 2, "embedding": 8, "hidden": 16}),
    "direct": ("feedforward", {"order": 4, "embedding": 8, "hidden": 16, "direct": True, "activation": "sigmoid"}),
    "relu elman": ("elman", {"embedding": 8, "hidden": 16, "layers": 3, "activation": "relu"}),
    "learned start": ("lstm", {"embedding": 8, "hidden": 16, "learned_start": True, "tied": False}),
    "gru": ("gru", {"embedding": 8, "hidden": 16}),
    "reset before": ("gru", {"embedding": 8, "hidden": 16, "layers": 1, "reset": "before", "biases": 1}),
    "sigmoid elman": ("elman", {"embedding": 8, "hidden": 16, "layers": 1, "activation": "sigmoid"}),
    "no bias": ("feedforward", {"order": 3, "embedding": 8, "hidden": 16, "bias": False}),
    "qrnn": ("qrnn", {"embedding": 8, "hidden": 16, "layers": 2, "learned_start": True}),
}


def made(name: str) -> NeuralModel:
    """Return a network whose random weights are so large that its probabilities differ."""
    kind_name, settings = DESIGNS[name]
    kind = kinds.find_kind(kind_name)
    settings = {**SMALL, **settings} if kind_name == "transformer" else settings
    text = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    lm = cr.train(kind.name, text, tokenizer=TOKENIZER, context="stream", steps=1, **settings)
    assert isinstance(lm, NeuralModel)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in lm.network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return lm


@pytest.fixture(scope="module", params=DESIGNS)
def lm(request: pytest.FixtureRequest) -> LanguageModel:
    return made(request.param)


@pytest.mark.parametrize("law", LAWS)
def test_law(lm: LanguageModel, law: str) -> None:
    LAWS[law](lm)


def test_long_texts_are_read_alike_in_any_pieces(lm: LanguageModel) -> None:
    """Texts longer than any window: all at once, token by token, and in pieces of odd sizes from a state."""
    ids_BT = np.random.default_rng(0).integers(3, TOKENIZER.vocab_size, (2, 23))
    expected = chain.score(lm, ids_BT)
    np.testing.assert_allclose(lm.score(ids_BT).numpy(), expected, rtol=1e-5, atol=1e-5)
    state, scores = lm.start(2), []
    for piece in np.split(ids_BT, [1, 4, 11, 12], axis=1):
        some, state = read(lm, state, piece)
        scores.append(some.numpy())
    np.testing.assert_allclose(np.concatenate(scores, axis=1), expected, rtol=1e-5, atol=1e-5)


def test_rows_of_any_length_slide_by_themselves(lm: LanguageModel) -> None:
    rows = [list(range(3, 3 + length % 6)) * 3 for length in (1, 2, 5, 3)]
    state = lm.extend(lm.extend(lm.start(4), pad(rows)), pad([row[:2] for row in rows]))
    after = lm.next_log_probs(state).numpy()
    for i, row in enumerate(rows):
        alone = lm.next_log_probs(chain.after(lm, [*row, *row[:2]])).numpy()[0]
        np.testing.assert_allclose(after[i], alone, rtol=1e-5, atol=1e-5)


def test_settings_are_read_back_as_they_were() -> None:
    for name, (kind, _) in DESIGNS.items():
        settings = made(name).settings
        assert parse(kinds.find_kind(kind).settings, vars(settings)) == settings


def test_prefixes_are_longer_than_the_window() -> None:
    assert max(map(len, prefixes(made("gpt2")))) > SMALL["window"]
