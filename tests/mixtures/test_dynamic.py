"""Tests of dynamic evaluation: it is causal, it helps on repeated text, and it does not change the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.lm import score_sequences
from chainrule.errors import ModelError, SettingsError
from chainrule.mixtures.dynamic import Dynamic, dynamic_scores

TEXT = "cats see dogs\nmice like cats\ndogs see mice\n" * 3
TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text(TEXT))
AGAIN = "mice see mice see mice see mice\n" * 12
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 8, "hidden": 8},
    "gru": {"embedding": 8, "hidden": 8, "engine": "tape"},
    "transformer": {"layers": 1, "width": 8, "heads": 2, "window": 8},
    "feedforward": {"embedding": 8, "hidden": 8, "order": 3},
}
LEARNS = Dynamic(rate=0.1, decay=0.0, segment=8, method="sgd")


def network(kind: str, context: str = "stream") -> cr.LanguageModel:
    return cr.train(kind, TEXT, tokenizer=TOKENIZER, context=context, steps=5, **NETWORKS[kind])


def scores(lm: cr.LanguageModel, text: str, dynamic: Dynamic) -> np.ndarray:
    return np.concatenate(list(dynamic_scores(lm, TOKENIZER.encode_lines(text.encode()), dynamic)))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("method", ["sgd", "rms"])
def test_a_network_learns_what_it_reads_and_stays_what_it_is(kind: str, method: Any) -> None:
    lm = network(kind)
    before = lm.perplexity(AGAIN)
    rate = 0.1 if method == "sgd" else 0.01
    learned = cr.evaluate(lm, AGAIN, dynamic=Dynamic(rate=rate, decay=0.001, segment=8, method=method))
    assert learned.perplexity < 0.9 * before
    assert lm.perplexity(AGAIN) == before


@pytest.mark.parametrize("context", ["line", "stream"])
def test_without_steps_the_scores_are_those_of_the_model(context: str) -> None:
    lm = network("lstm", context)
    ids = TOKENIZER.encode_lines(TEXT.encode())
    expected = score_sequences(lm, ids, *lm.bounds(ids))
    np.testing.assert_allclose(scores(lm, TEXT, Dynamic(rate=0.0, segment=5)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_what_comes_later_changes_nothing(kind: str) -> None:
    lm = network(kind)
    one, other = (scores(lm, AGAIN + rest, LEARNS) for rest in ("cats like dogs\n", "dogs dogs\n"))
    shared = len(TOKENIZER.encode_lines(AGAIN.encode()))
    np.testing.assert_array_equal(one[:shared], other[:shared])


def test_one_step_by_hand() -> None:
    """θ - η g of the mean loss of the first segment scores the second one."""
    import copy

    import torch

    lm: Any = network("feedforward")
    ids = TOKENIZER.encode_lines(AGAIN.encode())[:16].astype(np.int64)
    stepped: Any = lm.with_network(copy.deepcopy(lm.network))
    inputs = torch.from_numpy(np.concatenate([[TOKENIZER.eos], ids[:7]])[None])
    loss = stepped.network.loss(inputs, torch.from_numpy(ids[None, :8])).nats / 8
    gradients = torch.autograd.grad(loss, list(stepped.network.parameters()))
    with torch.no_grad():
        for weight, gradient in zip(stepped.network.parameters(), gradients, strict=True):
            weight -= 0.1 * gradient
    found = np.concatenate(list(dynamic_scores(lm, ids, LEARNS)))
    expected = stepped.score(ids[None]).numpy()[0, 8:]
    # the first token's own features are read before the step: gradients do not reach the weights through them
    np.testing.assert_allclose(found[8:], expected, atol=0.02)
    np.testing.assert_allclose(found[:8], lm.score(ids[None, :8]).numpy()[0], rtol=1e-5)


def test_the_networks_of_a_mixture_learn() -> None:
    inner = cr.mix([network("gru"), cr.train("ngram", TEXT, tokenizer=TOKENIZER, context="stream")], weights=[1, 1])
    lm = cr.mix([inner, network("lstm")], weights=[0.5, 0.4, 0.1], continuous_cache=5, theta=1.0)
    assert cr.evaluate(lm, AGAIN, dynamic=LEARNS).perplexity < 0.95 * lm.perplexity(AGAIN)
    tuned = cr.mix([inner, network("lstm")], AGAIN, dynamic=LEARNS)
    measured = cr.evaluate(tuned, AGAIN, dynamic=LEARNS)
    assert math.isclose(tuned.metrics["held_out_perplexity"], measured.perplexity, rel_tol=1e-5)


def test_what_makes_no_sense_is_refused() -> None:
    ngram = cr.train("ngram", TEXT, tokenizer=TOKENIZER)
    with pytest.raises(ModelError, match="here is none"):
        cr.evaluate(ngram, TEXT, dynamic=Dynamic())
    for wrong in ({"rate": -1.0}, {"decay": 2.0}, {"segment": 0}, {"method": "adam"}):
        with pytest.raises(SettingsError):
            Dynamic(**wrong)  # type: ignore[arg-type]
