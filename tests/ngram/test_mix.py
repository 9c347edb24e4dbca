"""Two models mixed into one: it stores the linear mixture, and every context sums to one."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.lm import LanguageModel
from chainrule.errors import CorpusError, ModelError
from chainrule.ngram.mix import tune_weight
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.store.codes import words_of_codes
from chainrule.testing import LAWS
from chainrule.tokens.words.tokenizer import WordTokenizer

ANIMALS = "i love cats\ni love dogs\ncats chase mice\ndogs chase cats\nmice love mice\n"
FOOD = "i love bread\nmice love cheese\nmice chase cheese\nbread\n"
HELD_OUT = "i love mice\nmice love cheese\ndogs chase zebras\n"


def trained(text: str, order: int = 3, smoothing: str = "witten-bell", **options: object) -> NgramModel:
    lm = cr.train(
        "ngram", cr.Corpus.from_text(text), order=order, smoothing=smoothing, **{"tokenizer": "word", **options}
    )
    assert isinstance(lm, NgramModel)
    return lm


@cache
def pair() -> tuple[NgramModel, NgramModel]:
    """Of different orders, smoothings and vocabularies."""
    return trained(ANIMALS), trained(FOOD, order=2, smoothing="kneser-ney")


@cache
def mixed() -> NgramModel:
    return cr.ngram.interpolate(*pair(), weight=0.3)


@pytest.mark.parametrize("name", LAWS)
def test_a_mixture_keeps_the_laws(name: str) -> None:
    LAWS[name](mixed())


def spelled(lm: LanguageModel, i: int) -> str:
    tokenizer = lm.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    return tokenizer.special(i) or tokenizer.words[i - 3]


def own_log_prob(lm: NgramModel, ngram: list[str]) -> float:
    """ln p of the last word after the others, a word the model does not know being impossible, and <unk> before."""
    ids = {spelled(lm, i): i for i in range(lm.tokenizer.vocab_size)}
    if ngram[-1] not in ids:
        return -math.inf
    row = np.asarray([[ids.get(word, 0) for word in ngram]])
    return float(lm.automaton.last_word_scores(row)[0])


def stored(lm: NgramModel) -> dict[tuple[str | bytes, ...], float]:
    """Every n-gram with its ln p."""
    trie, found = lm.automaton.trie, {}
    for n in range(1, trie.order + 1):
        first, last = int(trie.first_of_length[n]), int(trie.first_of_length[n + 1])
        rows = words_of_codes(trie.vocab_size)[trie.ngrams(first, last, n)]
        values = lm.automaton.log_prob.at(np.arange(first, last) - 1, n - 1)
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            found[tuple(spelled(lm, i) for i in row)] = value
    return found


def test_stored_ngrams_are_the_linear_mixture() -> None:
    ngrams = stored(mixed())
    first, second = pair()
    assert set(ngrams) == set(stored(first)) | set(stored(second))
    for ngram, log_prob in ngrams.items():
        # p = 0.3 p_1 + 0.7 p_2
        expected = 0.3 * math.exp(own_log_prob(first, list(ngram))) + 0.7 * math.exp(
            own_log_prob(second, list(ngram))
        )
        assert math.isclose(math.exp(log_prob), expected, rel_tol=1e-5), ngram


def test_every_context_sums_to_one() -> None:
    """Whatever two words came before, known together or not."""
    lm = mixed()
    words = [i for i in range(lm.tokenizer.vocab_size) if i != lm.tokenizer.bos]
    contexts = np.asarray(list(itertools.product(words, repeat=2)))
    state = lm.extend(lm.start(len(contexts)), contexts)
    np.testing.assert_allclose(np.exp(lm.next_log_probs(state)).sum(axis=1), 1, atol=2e-6)


def test_the_vocabulary_is_that_of_both() -> None:
    first, second = pair()
    tokenizer = mixed().tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    assert isinstance(first.tokenizer, WordTokenizer)
    assert tokenizer.words == [*first.tokenizer.words, "bread", "cheese"]
    assert isinstance(second.tokenizer, WordTokenizer)
    assert set(tokenizer.words) == {*first.tokenizer.words, *second.tokenizer.words}


def test_a_model_mixed_with_itself_is_itself() -> None:
    lm = pair()[0]
    both = cr.ngram.interpolate(lm, lm, weight=0.5)
    np.testing.assert_allclose(both.surprisals(HELD_OUT), lm.surprisals(HELD_OUT), rtol=1e-5)


def log_likelihood(weight: float, first: np.ndarray, second: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(weight * np.exp(first) + (1 - weight) * np.exp(second)).sum())


def token_scores(lm: NgramModel, known: set[str]) -> np.ndarray:
    """ln p of the tokens of the held-out text; of a word that only the other model knows, minus infinity."""
    assert isinstance(lm.tokenizer, WordTokenizer)
    scores = -lm.surprisals(HELD_OUT)
    words = [word for line in HELD_OUT.splitlines() for word in [*line.split(), "\n"]]
    return np.where([word in known and word not in lm.tokenizer.words for word in words], -np.inf, scores)


def test_the_tuned_weight_is_the_best() -> None:
    first, second = pair()
    tuned = cr.ngram.interpolate(first, second, cr.Corpus.from_text(HELD_OUT))
    assert isinstance(tuned.tokenizer, WordTokenizer)
    scores = [token_scores(lm, set(tuned.tokenizer.words)) for lm in (first, second)]
    weight = tuned.metrics["weights"][0]
    assert 0.1 < weight < 0.9
    best = log_likelihood(weight, *scores)
    assert all(
        log_likelihood(w, *scores) <= best for w in (0.0, 0.25, 0.5, 0.75, 1.0, weight - 0.01, weight + 0.01)
    )
    for other in (0.1, 0.9):
        assert tuned.perplexity(HELD_OUT) < cr.ngram.interpolate(first, second, weight=other).perplexity(HELD_OUT)


def test_tuning_by_hand() -> None:
    """Two tokens, each possible under one model only: weight 1/2. Three such tokens to one: weight 3/4."""
    never = -math.inf
    assert math.isclose(tune_weight(np.asarray([-1.0, never]), np.asarray([never, -2.0])), 0.5)
    assert math.isclose(tune_weight(np.asarray([-1.0] * 3 + [never]), np.asarray([never] * 3 + [-5.0])), 0.75)
    # what neither can say counts for nothing, and a model that is always worse gets next to nothing
    assert math.isclose(tune_weight(np.asarray([-1.0, never, never]), np.asarray([never, -2.0, never])), 0.5)
    assert tune_weight(np.asarray([never]), np.asarray([never])) == 0.5
    assert tune_weight(np.asarray([-9.0, -9.0]), np.asarray([-1.0, -800.0 / 400])) == 1e-4
    assert tune_weight(np.asarray([-1.0]), np.asarray([never])) == 1 - 1e-4


def test_tokens_that_need_no_vocabulary_and_context_that_flows() -> None:
    models = [trained(text, tokenizer="byte", context="stream") for text in (ANIMALS, FOOD)]
    lm = cr.ngram.interpolate(*models, cr.Corpus.from_text(HELD_OUT))
    assert (lm.context, lm.tokenizer.vocab_size) == ("stream", 257)
    assert lm.perplexity(HELD_OUT) < min(model.perplexity(HELD_OUT) for model in models)


def test_quantised_models_can_be_mixed() -> None:
    small = [trained(text, bits=4) for text in (ANIMALS, FOOD)]
    lm = cr.ngram.interpolate(*small, weight=0.5)
    assert math.isclose(np.exp(lm.next_log_probs(lm.start(1))).sum(), 1, abs_tol=1e-5)


def test_what_cannot_be_mixed_is_refused() -> None:
    first, second = pair()
    text = cr.Corpus.from_text(HELD_OUT)
    with pytest.raises(ModelError, match="either held-out text to tune the weight on, or the weight"):
        cr.ngram.interpolate(first, second)
    with pytest.raises(ModelError, match="either held-out text"):
        cr.ngram.interpolate(first, second, text, weight=0.5)
    for weight in (0, 1, -1, math.nan):
        with pytest.raises(ModelError, match="between 0 and 1"):
            cr.ngram.interpolate(first, second, weight=weight)
    with pytest.raises(ModelError, match="stupid-backoff gives scores"):
        cr.ngram.interpolate(first, trained(FOOD, smoothing="stupid-backoff"), weight=0.5)
    with pytest.raises(ModelError, match="bounded order"):
        cr.ngram.interpolate(first, cr.train("ngram", text, smoothing="infinite", tokenizer="word"), weight=0.5)
    with pytest.raises(ModelError, match="same context: one has line, one stream"):
        cr.ngram.interpolate(first, trained(FOOD, context="stream"), weight=0.5)
    with pytest.raises(ModelError, match="different tokenizers"):
        cr.ngram.interpolate(first, trained(FOOD, tokenizer="char"), weight=0.5)
    with pytest.raises(CorpusError, match="no text to tune on"):
        cr.ngram.interpolate(first, second, cr.Corpus.from_text(""))
