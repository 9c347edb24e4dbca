"""Tests of every law on mixtures: with every gate, with caches, of n-grams and networks of both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.mixtures.mixture import Mixture
from chainrule.mixtures.settings import MixtureSettings
from chainrule.testing.laws import LAWS

from .test_laws import TOY

TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text(TOY))
TINY: dict[str, Any] = {"tokenizer": TOKENIZER, "steps": 3}
NETWORK = {"embedding": 8, "hidden": 8}


def network(kind: str, context: str, **settings: Any) -> cr.LanguageModel:
    return cr.train(kind, TOY, context=context, **TINY, **settings)


def trigram(context: str) -> cr.LanguageModel:
    return cr.train("ngram", TOY, order=3, context=context, tokenizer=TOKENIZER)


def transformer(context: str, **settings: Any) -> cr.LanguageModel:
    return network("transformer", context, layers=1, width=8, heads=2, window=5, **settings)


def mixture(name: str) -> cr.LanguageModel:
    if name == "n-grams, line":
        bigram = cr.train("ngram", TOY, order=2, smoothing="laplace", tokenizer=TOKENIZER)
        return cr.mix([trigram("line"), bigram], weights=[0.3, 0.7])
    if name == "any length and a cache, line":
        anygram = cr.train("anygram", TOY, tokenizer=TOKENIZER)
        return cr.mix([anygram], weights=[0.6, 0.4], cache=3)
    if name == "continuous cache, stream":
        models = [trigram("stream"), network("lstm", "stream", **NETWORK)]
        return cr.mix(models, weights=[0.2, 0.2, 0.2, 0.4], cache=2, continuous_cache=4, theta=2.0)
    if name == "continuous cache of a window, stream":
        return cr.mix([transformer("stream")], weights=[0.5, 0.5], continuous_cache=3, theta=1.0)
    if name == "continuous cache on the tape, line":
        return cr.mix(
            [network("gru", "line", engine="tape", **NETWORK)], weights=[0.5, 0.5], continuous_cache=4, theta=3.0
        )
    if name == "log-linear, stream":
        return cr.mix(
            [trigram("stream"), transformer("stream", engine="tape")], weights=[0.9, 0.4], form="log-linear"
        )
    if name == "mixture in a mixture, line":
        inner = cr.mix([trigram("line")], weights=[0.5, 0.5], cache=2)
        return cr.mix([inner, network("elman", "line", **NETWORK)], weights=[0.5, 0.5])
    by, _, context = name.removeprefix("by ").partition(", ")
    models = [trigram(context), network("lstm", context, **NETWORK)]
    of = 2 if name == "by entropy, stream" else 1
    settings = MixtureSettings(models=2, by=by, of=of, cache=3)  # type: ignore[arg-type]
    knots = np.asarray([0.0, 1.0, 2.0] if of == 1 else [2.0, 2.07, 2.08])
    return Mixture(models, settings, np.asarray([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.2, 0.7, 0.1]]), knots)


NAMES = [
    "n-grams, line",
    "any length and a cache, line",
    "continuous cache, stream",
    "continuous cache of a window, stream",
    "continuous cache on the tape, line",
    "log-linear, stream",
    "mixture in a mixture, line",
    *(f"by {by}, {context}" for by in ("length", "match", "entropy") for context in ("line", "stream")),
]


AGAIN = {"by length, stream", "by match, line", "by entropy, line"}
"""Gates that are also tested with the other context."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in AGAIN else []) for name in NAMES],
)
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    return mixture(request.param)


@pytest.mark.parametrize("law", LAWS)
def test_law(lm: cr.LanguageModel, law: str) -> None:
    LAWS[law](lm)


def test_gates_of_these_tests_open_and_close() -> None:
    """The gates depend on the context; otherwise the laws would test little."""
    for name in NAMES:
        if name.startswith("by "):
            lm = mixture(name)
            assert isinstance(lm, Mixture)
            ids = TOKENIZER.encode_lines(TOY.encode())
            _, values = lm.columns(ids, *lm.bounds(ids))
            assert len(np.unique(lm.gate.weights(lm.weights_GK, values), axis=0)) > 1, name
