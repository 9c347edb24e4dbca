"""Tests of suggestions: words that complete a text or follow it, and next tokens."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from test_generate import NotANumber
from test_healing import LOG, TOKENIZERS, Short, by_brute_force

import chainrule as cr
from chainrule.arrays import Array
from chainrule.contract.lm import State
from chainrule.decode.suggest import NextToken, next_tokens
from chainrule.errors import DecodingError, ModelError
from chainrule.ngram.ngram_model import NgramModel, NgramState
from toy_models import Delegate

START = "Jan 12 10:05 host2 auth[127]: "


@pytest.fixture(scope="module", params=TOKENIZERS)
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    choice = cr.TokenizerChoice(request.param, vocab_size=600) if "piece" in request.param else request.param
    return cr.train("ngram", cr.Corpus.from_text(LOG), order=5, tokenizer=choice)


def words(lm: cr.LanguageModel, text: str, k: int = 5) -> dict[str, float]:
    return {suggestion.word: suggestion.probability for suggestion in cr.suggest(lm, text, k)}


def test_an_incomplete_word_is_completed(lm: cr.LanguageModel) -> None:
    found = cr.suggest(lm, START + "re")
    # two requests, a reset and a rejection
    assert found[0].word == "request"
    assert found[0].probability == pytest.approx(0.5, abs=0.1)
    assert {s.word.rstrip(":") for s in found[:3]} == {"request", "reset", "rejected"}
    assert all(("re" + s.completion).startswith(s.word) for s in found[:3])
    probabilities = [s.probability for s in found]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) <= 1 + 1e-6


def test_next_words_follow_a_space_or_bring_one(lm: cr.LanguageModel) -> None:
    for text, appended in ((START + "request ", "accepted"), (START + "request", " accepted")):
        best = cr.suggest(lm, text)[0]
        assert (best.word, best.completion) == ("accepted", appended)
        assert best.probability > 0.8


def test_words_are_ranked_by_what_was_seen(lm: cr.LanguageModel) -> None:
    found = words(lm, START + "request accepted for ", 2)
    assert set(found) == {"alice", "bob"}
    assert all(p == pytest.approx(0.5, abs=0.06) for p in found.values())


def test_the_method_of_a_model_is_the_function(lm: cr.LanguageModel) -> None:
    assert lm.suggest("the", k=2) == cr.suggest(lm, "the", 2)


def test_unlikely_words_can_be_left_out(lm: cr.LanguageModel) -> None:
    every = cr.suggest(lm, "a", 20)
    least = every[0].probability
    assert cr.suggest(lm, "a", 20, at_least=least) == [s for s in every if s.probability >= least] != every
    assert cr.suggest(lm, "a", 20, at_least=1.0) == []
    with pytest.raises(DecodingError, match="between 0 and 1, not 5"):
        cr.suggest(lm, "a", at_least=5)


def test_at_most_the_requested_number_of_words_is_given(lm: cr.LanguageModel) -> None:
    assert len(cr.suggest(lm, START, 1)) == 1
    assert cr.suggest(lm, START, 1) == cr.suggest(lm, START, 4)[:1]
    assert cr.suggest(lm, "")[0].word == "Jan"
    with pytest.raises(DecodingError, match="at least 1, not 0"):
        cr.suggest(lm, "", 0)
    assert 4 < len(cr.suggest(lm, START, 10**9)) <= max(1000, lm.tokenizer.vocab_size)


@pytest.mark.parametrize("prompt", ["a", "ab", "a a", "a "])
def test_words_have_the_probability_that_brute_force_gives(prompt: str) -> None:
    """Probabilities equal sums over all texts that start with the prompt, grouped by their next word."""
    expected: dict[str, float] = defaultdict(float)
    for text, p in by_brute_force(Short(), prompt).items():
        added = text.removeprefix(prompt)
        visible = added.lstrip(" ")
        if visible != "\n":
            expected[added[: len(added) - len(visible)] + visible.partition(" ")[0].partition("\n")[0]] += p
    found = {s.completion: s.probability for s in cr.suggest(Short(), prompt, 1000)}
    assert found == pytest.approx({text: p for text, p in expected.items() if text in found}, rel=1e-3, abs=1e-5)
    best = sorted(expected, key=expected.__getitem__, reverse=True)[:10]
    assert set(best) <= set(found)


@pytest.mark.parametrize("prompt", ["a", "ab", "a a", ""])
def test_next_tokens_have_the_probability_of_the_text(prompt: str) -> None:
    lm = Short()
    found = next_tokens(lm, prompt, 100)
    assert sum(token.probability for token in found) == pytest.approx(1)
    expected = by_brute_force(lm, prompt)
    ends = sum(token.probability for token in found if token.id == lm.tokenizer.eos)
    assert ends == pytest.approx(expected.get(prompt + "\n", 0))
    for letter in "ab ":
        begins = sum(token.probability for token in found if token.adds.startswith(letter))
        assert begins == pytest.approx(sum(p for text, p in expected.items() if text.startswith(prompt + letter)))


def test_without_healing_the_tokens_are_the_models_own(lm: cr.LanguageModel) -> None:
    text = START + "req"
    state = lm.extend(lm.start(1), lm.tokenizer.encode(text)[None])
    log_probs = cr.to_numpy(lm.next_log_probs(state))[0]
    for token in next_tokens(lm, text, 5, heal=False):
        assert math.log(token.probability) == pytest.approx(log_probs[token.id])


def test_characters_of_several_bytes_are_completed() -> None:
    text = "ñandú 漢字 🙂 añil\n" * 20
    for name in ("byte", cr.TokenizerChoice("bpe", vocab_size=260), "char"):
        lm = cr.train("ngram", cr.Corpus.from_text(text), tokenizer=name, order=6)
        assert cr.suggest(lm, "ña")[0].completion == "ndú"
        assert cr.suggest(lm, "ñandú ")[0].word == "漢字"
        assert cr.suggest(lm, "ñandú 漢字")[0].completion == " 🙂"


def test_an_unknown_word_is_followed_by_words() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(LOG), order=3, tokenizer="word")
    assert all(s.completion.startswith(" ") for s in cr.suggest(lm, "Jan 12 zebra"))


class Plain(Delegate):
    """A model without fast paths, whose kernels are never loaded: the slow, obvious reference."""

    def next_log_probs(self, state: State) -> Array:
        assert isinstance(self.inner, NgramModel)
        assert isinstance(state, NgramState)
        return self.inner.automaton.next_slowly(state.words)


@pytest.mark.parametrize("text", ["", "J", START, START + "re", START + "request", "zebra", "Jan 12 10:0", LOG * 3])
def test_kernels_suggest_what_the_plain_way_does(lm: cr.LanguageModel, text: str) -> None:
    fast, slow = cr.suggest(lm, text, 10), cr.suggest(Plain(lm), text, 10)
    assert [s.probability for s in fast] == pytest.approx([s.probability for s in slow], rel=1e-5)
    least = 1.0001 * slow[-1].probability  # which of equally likely words come last is up to rounding
    ours, theirs = ({s.word: s.probability for s in found if s.probability > least} for found in (fast, slow))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_the_first_call_prepares_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(LOG), order=3, tokenizer="char")
    assert isinstance(lm, NgramModel)
    state = lm.start(1)
    assert cr.suggest(lm, START + "re", once=True)
    assert lm.next_probs(state) is None
    cr.suggest(lm, START + "re")
    assert lm.next_probs(state) is not None
    monkeypatch.setattr(type(lm.automaton), "prepare", None)
    cr.suggest(lm, START + "re")  # once is enough


def test_a_plugin_that_does_not_spell_its_tokens_suggests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are those found with the spelling, if their ends are among the most likely tokens."""
    lm = cr.train("ngram", cr.Corpus.from_text(LOG), order=8, tokenizer="char")
    with_spelling = words(lm, START + "re", 3)
    monkeypatch.setattr(lm.tokenizer, "spelling", None)
    assert words(lm, START + "re", 3) == pytest.approx(with_spelling, rel=0.1)


def test_a_model_that_gives_nan_is_an_error() -> None:
    for name in ("char", "word"):
        broken = NotANumber(cr.train("ngram", cr.Corpus.from_text(LOG), order=2, tokenizer=name))
        with pytest.raises(ModelError, match="NaN"):
            cr.suggest(broken, "")


def test_figures_show_four_digits() -> None:
    assert repr(cr.decode.Suggestion("none", "one", 0.6557140946388245)) == (
        "Suggestion(word='none', completion='one', probability=0.6557)"
    )
    assert repr(NextToken(7, "n", 0.006557140946)) == "NextToken(id=7, adds='n', probability=0.006557)"
