"""The lectures' n-gram models, to the last digit."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule import chain
from chainrule.arrays import pad
from chainrule.errors import SettingsError
from chainrule.ngram.count import count_ngrams, pad_text
from chainrule.ngram.smooth import tune_lambdas
from chainrule.progress import Silent

TOY = "i love cats\ni love dogs\ncats chase mice\n"


def probability(lm: cr.LanguageModel, context: str, word: str) -> float:
    """p(word | <s> <s> context)."""
    ids = lm.tokenizer.encode(context).astype(np.int64)
    log_probs = cr.to_numpy(lm.next_log_probs(chain.after(lm, ids.tolist())))[0]
    token = lm.tokenizer.eos if word == "</s>" else int(lm.tokenizer.encode(word)[0])
    return math.exp(log_probs[token])


def test_the_toy_corpus_of_the_lecture() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="mle")
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


@pytest.mark.parametrize("smoothing", ["laplace", "interpolated"])
def test_smoothing_makes_the_unseen_possible(smoothing: str) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing=smoothing)
    assert math.isfinite(lm.perplexity("i love mice"))
    assert math.isfinite(lm.perplexity("zebras love i"))


def test_cows_eat() -> None:
    """After eleven times "cows eat": corn four times, grass three, hay two, and two words once each."""
    foods = ["corn"] * 4 + ["grass"] * 3 + ["hay"] * 2 + ["if", "which"]
    lm = cr.train("ngram", cr.Corpus.from_text("".join(f"cows eat {f}\n" for f in foods)), order=3, smoothing="mle")
    for word, count in Counter(foods).items():
        assert math.isclose(probability(lm, "cows eat", word), count / 11, rel_tol=1e-6)


def test_laplace_by_hand() -> None:
    # V is 6 words, </s> and <unk>; "i love" occurred twice, "i love cats" once, "i love mice" never
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="laplace")
    assert math.isclose(probability(lm, "i love", "cats"), (1 + 1) / (2 + 8), rel_tol=1e-6)
    assert math.isclose(probability(lm, "i love", "mice"), (0 + 1) / (2 + 8), rel_tol=1e-6)
    assert math.isclose(probability(lm, "mice mice", "mice"), 1 / 8, rel_tol=1e-6)
    half = cr.train("ngram", cr.Corpus.from_text(TOY), order=1, smoothing="laplace", k=0.5)
    # twelve events, "i" twice: (2 + 1/2) / (12 + 8/2)
    assert math.isclose(probability(half, "", "i"), 2.5 / 16, rel_tol=1e-6)


def test_interpolation_by_hand() -> None:
    """With no held-out text every weight is 1/2; p(cats | i love) mixes four estimates."""
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), order=3, smoothing="interpolated")
    assert lm.metrics["lambdas"] == [0.5, 0.5, 0.5]
    # trigram 1, bigram 1, unigram 1/4 (i love cats </s>), uniform 1/5 (3 words, </s>, <unk>)
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5))
    assert math.isclose(probability(lm, "i love", "cats"), expected, rel_tol=1e-6)
    # after "cats love": unseen as a context of two, so the bigram "love cats" leads
    expected = 0.5 * 1 + 0.5 * (0.5 * 1 / 4 + 0.5 * 1 / 5)
    assert math.isclose(probability(lm, "cats love", "cats"), expected, rel_tol=1e-6)


def test_no_held_out_text_is_said() -> None:
    notes = []

    class Listening(Silent):
        def note(self, message: str) -> None:
            notes.append(message)

    cr.train("ngram", cr.Corpus.from_text("one line\n"), progress=Listening())
    assert notes == ["no held-out text to tune the interpolation on: every order gets weight 1/2"]


def test_em_finds_the_best_weights() -> None:
    """Against a search over a grid: no weights on it make the held-out text likelier."""
    train, held_out = "a b a b c a\n" * 3 + "b c a c b a a\n", "a b c a b\nb a a c\n"
    tokenizer = cr.train_tokenizer("word", cr.Corpus.from_text(train))
    bos, eos, size = tokenizer.bos, tokenizer.eos, tokenizer.vocab_size
    counts = count_ngrams(tokenizer.encode_lines(train.encode()), 2, size, bos, eos, "line")
    text = pad_text(tokenizer.encode_lines(held_out.encode()), 2, bos, eos, "line")
    found = tune_lambdas(counts, text, text != bos)

    def log_likelihood(lambdas: tuple[float, float]) -> float:
        total = 0.0
        for line in held_out.splitlines():
            before = bos
            for token in [*tokenizer.encode(line).tolist(), eos]:
                unigram, bigram, context = brute(train, tokenizer, before, token)
                lower = lambdas[0] * unigram + (1 - lambdas[0]) / (size - 1)
                total += math.log(lambdas[1] * bigram + (1 - lambdas[1]) * lower if context else lower)
                before = token
        return total

    grid = np.linspace(0.02, 0.98, 25)
    best = max(log_likelihood(point) for point in itertools.product(grid, grid))
    assert log_likelihood((found[0], found[1])) >= best - 1e-4


def brute(text: str, tokenizer: cr.Tokenizer, before: int, token: int) -> tuple[float, float, bool]:
    """c(w) / c(), c(v w) / c(v), and whether v was seen as a context, by looping."""
    lines = [[tokenizer.bos, *tokenizer.encode(line).tolist(), tokenizer.eos] for line in text.splitlines()]
    words = [w for line in lines for w in line[1:]]
    pairs = [pair for line in lines for pair in itertools.pairwise(line)]
    contexts = [v for v, _ in pairs]
    bigram = pairs.count((before, token)) / max(contexts.count(before), 1)
    return words.count(token) / len(words), bigram, before in contexts


lines = st.lists(st.lists(st.integers(3, 6), max_size=6), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(lines, st.integers(1, 4), st.sampled_from(["line", "stream"]))
def test_counts_are_those_of_a_loop(text: list[list[int]], order: int, context: str) -> None:
    bos, eos, size = 1, 2, 7
    ids = np.asarray([token for line in text for token in [*line, eos]])
    counts = count_ngrams(ids, order, size, bos, eos, context)

    expected: Counter[tuple[int, ...]] = Counter()
    sequences = [[*line, eos] for line in text] if context == "line" else [ids.tolist()]
    for sequence in sequences:
        padded = [bos] * (order - 1) + sequence
        for end in range(order - 1, len(padded)):
            for length in range(1, order + 1):
                expected[tuple(padded[end - length + 1 : end + 1])] += 1

    trie = counts.trie
    spelled = {0: ()}
    for node in range(1, len(counts.count)):
        parent, word = int(trie.parent(np.asarray([node]))[0]), int(trie.word(np.asarray([node]))[0])
        spelled[node] = (*spelled[parent], word)
    got = {spelled[node]: int(counts.count[node]) for node in spelled if counts.count[node]}
    assert got == dict(expected)
    for node, ngram in spelled.items():
        if node:
            assert spelled[int(trie.suffix[node])] == ngram[1:]
        followers = sum(count for other, count in expected.items() if other[:-1] == ngram)
        assert counts.total[node] == (followers if len(ngram) < order else 0)


@settings(max_examples=40, deadline=None)
@given(
    lines,
    st.integers(1, 4),
    st.sampled_from(["mle", "laplace", "interpolated"]),
    st.sampled_from(["line", "stream"]),
)
def test_every_context_sums_to_one(text: list[list[int]], order: int, smoothing: str, context: str) -> None:
    words = "\n".join(" ".join("abcd"[token - 3] for token in line) for line in text) + "\n"
    lm = cr.train("ngram", cr.Corpus.from_text(words), order=order, smoothing=smoothing, context=context)
    every = np.asarray(list(itertools.product(range(2, lm.tokenizer.vocab_size), repeat=2)), dtype=np.int64)
    state = lm.extend(lm.start(len(every)), every.reshape(len(every), -1))
    np.testing.assert_allclose(np.exp(lm.next_log_probs(state)).sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(lm.score(every), chain.score(lm, every), rtol=1e-5, atol=1e-5)


def test_more_context_helps_on_real_text() -> None:
    corpus = cr.Corpus.open("builtin:python")
    text = "The following sections describe the standard types that are built into the interpreter."
    scores = [cr.train("ngram", corpus, order=order).perplexity(text) for order in (1, 2, 3)]
    assert scores == sorted(scores, reverse=True)


def test_an_order_beyond_any_line_works() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=20, smoothing="mle")
    assert math.isclose(math.exp(lm.log_prob("i love cats")), 1 / 3, rel_tol=1e-6)


def test_one_word_and_one_line() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("a\n"), order=3, smoothing="mle")
    assert math.isclose(lm.perplexity("a"), 1.0, rel_tol=1e-6)


def test_empty_lines_are_events() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("\n\na\n\n"), order=2, smoothing="mle")
    # three of four lines end at once
    assert math.isclose(math.exp(lm.log_prob("")), 3 / 4, rel_tol=1e-6)


@pytest.mark.parametrize("wrong", [{"order": 0}, {"order": "x"}, {"smoothing": "magic"}, {"k": 0}, {"oder": 3}])
def test_settings_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(SettingsError):
        cr.train("ngram", cr.Corpus.from_text(TOY), **wrong)


def test_scoring_many_rows_from_different_states() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=4)
    histories = [[4, 5], [], [3, 6, 7, 2, 4], [0]]
    state = lm.extend(lm.start(4), pad(histories))
    np.testing.assert_allclose(
        lm.score(np.full((4, 1), 3), state)[:, 0],
        [chain.score(lm, np.asarray([[*history, 3]]))[0, -1] for history in histories],
        rtol=1e-6,
    )
