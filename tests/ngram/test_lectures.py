"""The lectures' n-gram models, to the last digit."""

from __future__ import annotations

import math
from collections import Counter

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
    """With no held-out text every weight is 1/2; p(cats | i love) mixes four estimates."""
    lm = cr.train(
        "ngram", cr.Corpus.from_text("i love cats\n"), order=3, smoothing="jelinek-mercer", tokenizer="word"
    )
    assert lm.metrics["lambdas"] == [0.5, 0.5, 0.5]
    # trigram 1, bigram 1, unigram 1/4 (i love cats </s>), uniform 1/5 (3 words, </s>, <unk>)
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5))
    assert math.isclose(probability(lm, "i love", "cats"), expected, rel_tol=1e-6)
    # after "cats love": unseen as a context of two, so the bigram "love cats" leads
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5)
    assert math.isclose(probability(lm, "cats love", "cats"), expected, rel_tol=1e-6)


def test_no_held_out_text_is_said() -> None:
    progress = Listening()
    cr.train(
        "ngram", cr.Corpus.from_text("one line\n"), smoothing="jelinek-mercer", progress=progress, tokenizer="word"
    )
    assert progress.notes == [
        "5-gram, jelinek-mercer: no held-out text to tune the interpolation on: every weight is 1/2"
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
    lm = cr.train("ngram", cr.Corpus.from_text("\n\na\n\n"), order=2, smoothing="mle", tokenizer="word")
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
