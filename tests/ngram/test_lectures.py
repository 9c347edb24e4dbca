"""The lectures' n-gram models, to the last digit."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import pad
from chainrule.contract import chain
from chainrule.errors import SettingsError
from chainrule.ngram.settings import SMOOTHINGS
from listening import Listening

TOY = "i love cats\ni love dogs\ncats chase mice\n"


def probability(lm: cr.LanguageModel, context: str, word: str) -> float:
    """p(word | <s> <s> context)."""
    ids = lm.tokenizer.encode(context).astype(np.int64)
    log_probs = cr.to_numpy(lm.next_log_probs(chain.after(lm, ids.tolist())))[0]
    token = lm.tokenizer.eos if word == "</s>" else int(lm.tokenizer.encode(word)[0])
    return math.exp(log_probs[token])


def test_the_toy_corpus_of_the_lecture() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="mle", tokenizer="word")
    table = {
        ("", "i"): 2 / 3,
        ("", "cats"): 1 / 3,
        ("i", "love"): 1.0,
        ("i love", "cats"): 0.5,
        ("i love", "dogs"): 0.5,
        ("cats", "chase"): 1.0,
    }
    for (context, word), p in table.items():
        assert math.isclose(probability(lm, context, word), p, rel_tol=1e-6), (context, word)
    assert lm.log_prob("i love mice") == -math.inf
    assert lm.perplexity("i love mice") == math.inf


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "mle"])
def test_smoothing_makes_the_unseen_possible(smoothing: str) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing=smoothing, tokenizer="word")
    assert math.isfinite(lm.perplexity("i love mice"))
    assert math.isfinite(lm.perplexity("zebras love i"))


def test_cows_eat() -> None:
    """After eleven times "cows eat": corn four times, grass three, hay two, and two words once each."""
    foods = ["corn"] * 4 + ["grass"] * 3 + ["hay"] * 2 + ["if", "which"]
    lm = cr.train(
        "ngram",
        cr.Corpus.from_text("".join(f"cows eat {f}\n" for f in foods)),
        order=3,
        smoothing="mle",
        tokenizer="word",
    )
    for word, count in Counter(foods).items():
        assert math.isclose(probability(lm, "cows eat", word), count / 11, rel_tol=1e-6)


def test_laplace_by_hand() -> None:
    # V is 6 words, </s> and <unk>; "i love" occurred twice, "i love cats" once, "i love mice" never
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="laplace", tokenizer="word")
    assert math.isclose(probability(lm, "i love", "cats"), (1 + 1) / (2 + 8), rel_tol=1e-6)
    assert math.isclose(probability(lm, "i love", "mice"), (0 + 1) / (2 + 8), rel_tol=1e-6)
    assert math.isclose(probability(lm, "mice mice", "mice"), 1 / 8, rel_tol=1e-6)
    half = cr.train("ngram", cr.Corpus.from_text(TOY), order=1, smoothing="add-k", k=0.5, tokenizer="word")
    # twelve events, "i" twice: (2 + 1/2) / (12 + 8/2)
    assert math.isclose(probability(half, "", "i"), 2.5 / 16, rel_tol=1e-6)


def test_jelinek_mercer_by_hand() -> None:
    """Given weights; p(cats | i love) mixes four estimates."""
    how: Any = {"order": 3, "smoothing": "jelinek-mercer", "tokenizer": "word"}
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), lambdas="0.5,0.25,0.125", **how)
    assert lm.metrics["lambdas"] == {"trigram": 0.5, "bigram": 0.25, "unigram": 0.125, "uniform": 0.125}
    # trigram 1, bigram 1, unigram 1/4 (i love cats </s>), uniform 1/5 (3 words, </s>, <unk>)
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5))
    assert math.isclose(probability(lm, "i love", "cats"), expected, rel_tol=1e-6)
    # after "cats love": unseen as a context of two, so the bigram "love cats" leads
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5)
    assert math.isclose(probability(lm, "cats love", "cats"), expected, rel_tol=1e-6)


def test_the_weights_of_the_lecture() -> None:
    """0.6 p(cats | i love) + 0.3 p(cats | love) + 0.1 p(cats), on all three sentences of the toy."""
    how: Any = {"order": 3, "smoothing": "jelinek-mercer", "tokenizer": "word"}
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), lambdas="0.6,0.3,0.1", **how)
    assert lm.provenance["corpus_tokens"] == 12
    assert lm.metrics["lambdas"] == {"trigram": 0.6, "bigram": 0.3, "unigram": 0.1, "uniform": 0.0}
    expected = 0.6 * 1 / 2 + 0.3 * 1 / 2 + 0.1 * 2 / 12
    assert math.isclose(probability(lm, "i love", "cats"), expected, rel_tol=1e-6)
    assert math.isclose(probability(lm, "i love", "mice"), 0.1 * 1 / 12, rel_tol=1e-6)
    # a context that was never seen leaves its weight to the others, in proportion
    expected = 0.3 / 0.4 * 1 / 2 + 0.1 / 0.4 * 2 / 12
    assert math.isclose(probability(lm, "dogs love", "cats"), expected, rel_tol=1e-6)


def test_a_toy_corpus_loses_no_sentence() -> None:
    """Without held-out text, each token is predicted from the counts of the others; the words stay known."""
    how: Any = {"order": 2, "smoothing": "jelinek-mercer", "tokenizer": "word"}
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), **how)
    assert lm.provenance["corpus_tokens"] == 12 and "dogs" in lm.tokenizer.words
    found = lm.metrics["lambdas"]
    # by hand: (c(h w) - 1) / (c(h) - 1) of each bigram and unigram, over all weights on a grid
    bigrams = [(1, 2), (1, 1), (0, 1), (0, 1), (1, 2), (1, 1), (0, 1), (0, 0), (0, 2), (0, 1), (0, 0), (0, 0)]
    unigrams = [1, 1, 1, 2, 1, 1, 0, 2, 1, 0, 0, 2]

    def log_likelihood(second: float, first: float) -> float:
        lower = [first * count / 11 + (1 - first) / 8 for count in unigrams]
        mixed = (second * c / t + (1 - second) * p if t else p for (c, t), p in zip(bigrams, lower, strict=True))
        return sum(math.log(p) for p in mixed)

    grid = [i / 50 for i in range(50)]
    best = max(log_likelihood(second, first) for second in grid for first in grid)
    second, first = found["bigram"], found["unigram"] / (1 - found["bigram"])
    assert best - 1e-3 <= log_likelihood(second, first) <= best + 1e-2


def test_no_held_out_text_is_said() -> None:
    progress = Listening()
    cr.train(
        "ngram", cr.Corpus.from_text("one line\n"), smoothing="jelinek-mercer", progress=progress, tokenizer="word"
    )
    assert progress.notes == [
        "5-gram, jelinek-mercer: no held-out text, so the interpolation is tuned on the text itself, each "
        "token predicted from the counts of the others"
    ]


def test_more_context_helps_on_real_text() -> None:
    corpus = cr.Corpus.open("builtin:python")
    text = "The following sections describe the standard types that are built into the interpreter."
    scores = [cr.train("ngram", corpus, order=order, tokenizer="word").perplexity(text) for order in (1, 2, 3)]
    assert scores == sorted(scores, reverse=True)


def test_an_order_beyond_any_line_works() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=20, smoothing="mle", tokenizer="word")
    assert math.isclose(math.exp(lm.log_prob("i love cats")), 1 / 3, rel_tol=1e-6)


def test_one_word_and_one_line() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("a\n"), order=3, smoothing="mle", tokenizer="word")
    assert math.isclose(lm.perplexity("a"), 1.0, rel_tol=1e-6)


def test_empty_lines_are_events() -> None:
    lm = cr.train(
        "ngram", cr.Corpus.from_text("\n\na\n\n"), order=2, smoothing="mle", tokenizer="word", context="line"
    )
    # three of four lines end at once
    assert math.isclose(math.exp(lm.log_prob("")), 3 / 4, rel_tol=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"order": 0}, {"order": "x"}, {"smoothing": "magic"}, {"smoothing": "add-k", "k": 0}, {"oder": 3}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(SettingsError):
        cr.train("ngram", cr.Corpus.from_text(TOY), **wrong, tokenizer="word")


def test_scoring_many_rows_from_different_states() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=4, tokenizer="word")
    histories = [[4, 5], [], [3, 6, 7, 2, 4], [0]]
    state = lm.extend(lm.start(4), pad(histories))
    np.testing.assert_allclose(
        lm.score(np.full((4, 1), 3), state)[:, 0],
        [chain.score(lm, np.asarray([[*history, 3]]))[0, -1] for history in histories],
        rtol=1e-6,
    )
