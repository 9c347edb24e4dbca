"""Tests of mixtures of models: their gains, saving, and models that cannot be mixed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.lm import score_sequences
from chainrule.errors import ChainruleError, CorpusError, DamagedFileError, ModelError, SettingsError

TEXT = "".join(
    f"{a} {verb} {b}\n"
    for a in ("cats", "dogs", "mice")
    for b in ("cats", "dogs", "mice")
    for verb in ("see", "like")
)
VALID = "cats see cats\ndogs like mice\nmice see dogs\ncats like cats\n"
TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text(TEXT))
LETTERS = cr.train_tokenizer("word", cr.Corpus.from_text("a b"))


def ngram(order: int, **settings: Any) -> cr.LanguageModel:
    return cr.train("ngram", TEXT, order=order, tokenizer=TOKENIZER, **{"smoothing": "laplace", **settings})


def gru(context: str = "line") -> cr.LanguageModel:
    return cr.train("gru", TEXT, tokenizer=TOKENIZER, context=context, steps=20, embedding=8, hidden=8)


def test_a_linear_mixture_is_the_weighted_mean() -> None:
    one, other = ngram(1), ngram(3)
    lm = cr.mix([one, other], weights=[1, 3])
    ids = TOKENIZER.encode_lines(VALID.encode())
    p, q = (np.exp(score_sequences(m, ids, *m.bounds(ids))) for m in (one, other))
    np.testing.assert_allclose(score_sequences(lm, ids, *lm.bounds(ids)), np.log(0.25 * p + 0.75 * q))


def test_tuned_weights_are_no_worse_than_any_model() -> None:
    for options in ({}, {"by": "length"}, {"by": "match"}, {"by": "entropy"}, {"form": "log-linear"}):
        lm = cr.mix([ngram(1), ngram(3), gru()], VALID, **options)
        figures = lm.metrics
        assert figures["held_out_perplexity"] <= min(figures["held_out_perplexities"]) + 1e-3, options
        assert math.isclose(figures["held_out_perplexity"], lm.perplexity(VALID), rel_tol=1e-5), options
        for model, perplexity in zip(lm.models, figures["held_out_perplexities"], strict=True):
            assert math.isclose(model.perplexity(VALID), perplexity, rel_tol=1e-5)


@pytest.mark.parametrize("options", [{}, {"by": "length"}, {"form": "log-linear"}])
def test_a_mixture_that_gains_nothing_elsewhere_is_its_best_model(options: dict[str, Any]) -> None:
    """The first line is likely under one model, the second under the other: neither weight fits the other half."""
    one = cr.train("ngram", ["a a a a a b"] * 9, order=1, smoothing="laplace", tokenizer=LETTERS)
    other = cr.train("ngram", ["b b b b b a"] * 9, order=1, smoothing="laplace", tokenizer=LETTERS)
    lm = cr.mix([one, other], "a a a a a a a a\nb b b b b b b\n", **options)
    perplexities = lm.metrics["held_out_perplexities"]
    best = int(np.argmin(perplexities))
    assert lm.metrics["weights"][best] == sum(lm.metrics["weights"]) == 1
    assert lm.metrics["cross_validated_perplexity"] == pytest.approx(perplexities[best])
    assert lm.perplexity("b a b\n") == pytest.approx(lm.models[best].perplexity("b a b\n"))


def test_caches_help_where_words_come_back() -> None:
    text = "cats cats cats cats cats\n" * 5 + "dogs dogs dogs dogs\n" * 5
    for options in ({"cache": 5}, {"continuous_cache": 5}):
        lm = cr.mix([gru("stream")], text, **options)
        assert lm.metrics["held_out_perplexity"] < 0.8 * lm.metrics["held_out_perplexities"][0]
        assert math.isclose(lm.metrics["held_out_perplexity"], lm.perplexity(text), rel_tol=1e-5)


def test_a_mixture_is_saved_with_its_models(tmp_path: Path) -> None:
    lm = cr.mix([ngram(2), gru()], VALID, cache=4, by="match")
    lm.save(tmp_path / "m")
    again = cr.load(tmp_path / "m")
    assert again.perplexity(VALID) == lm.perplexity(VALID)
    assert again.metrics["weights"] == pytest.approx(lm.metrics["weights"])
    assert cr.load(tmp_path / "m" / "parts" / "1").perplexity(VALID) == ngram(2).perplexity(VALID)
    assert cr.generate(again, "cats", cr.Greedy(), max_tokens=3).startswith("cats")
    assert cr.suggest(again, "cats ")


def test_weights_of_another_shape_are_damage(tmp_path: Path) -> None:
    from manifests import read_manifest, write_manifest

    cr.mix([ngram(1), ngram(2)], weights=[0.5, 0.5]).save(tmp_path / "m")
    manifest = read_manifest(tmp_path / "m")
    manifest["config"]["cache"] = 7
    write_manifest(tmp_path / "m", manifest)
    with pytest.raises(DamagedFileError, match="not the weights of 3 models and caches"):
        cr.load(tmp_path / "m", verify=False)


def test_what_cannot_be_mixed_is_refused() -> None:
    one, text = ngram(2), VALID
    other = cr.train("ngram", TEXT + "birds see cats\n", order=2, smoothing="laplace", tokenizer="word")
    with pytest.raises(ModelError, match=r"1 that only number 2 has, such as 'birds'.*--merge"):
        cr.mix([one, other], text)
    with pytest.raises(ModelError, match="the first has 8 word tokens, number 2 has 16 char tokens"):
        cr.mix([one, cr.train("ngram", TEXT, tokenizer="char")], text)
    with pytest.raises(ModelError, match="need the same context"):
        cr.mix([one, ngram(2, context="stream")], text)
    with pytest.raises(ModelError, match="two models or more, or a model and a cache"):
        cr.mix([one], text)
    with pytest.raises(ModelError, match="either held-out text"):
        cr.mix([one, one])
    with pytest.raises(ModelError, match="expected 2 weights, one for each model and cache, found 3"):
        cr.mix([one, one], weights=[1, 1, 1])
    with pytest.raises(ModelError, match="numbers of 0 or more"):
        cr.mix([one, one], weights=[1, -1])
    with pytest.raises(ModelError, match="gives scores"):
        cr.mix([one, ngram(2, smoothing="stupid-backoff")], text)
    with pytest.raises(ModelError, match="no model is a network"):
        cr.mix([one], text, continuous_cache=5)
    with pytest.raises(ModelError, match="n-gram model of bounded order"):
        cr.mix([gru(), gru()], text, by="match")
    with pytest.raises(SettingsError, match="from 1 to 2"):
        cr.mix([one, one], text, by="match", of=3)
    with pytest.raises(SettingsError, match="no caches"):
        cr.mix([one, one], text, form="log-linear", cache=3)
    with pytest.raises(ModelError, match="expected a model"):
        cr.mix([one, "model"], text)  # type: ignore[list-item]
    with pytest.raises(CorpusError, match="empty"):
        cr.mix([one, one], "")
    with pytest.raises(ChainruleError, match="chainrule mix"):
        cr.train("mixture", TEXT)
