"""Games: Shannon's guessing game, twenty questions, and real text against generated text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import CorpusError, ModelError
from chainrule.evaluation.metrics import entropy, yes_no_questions
from chainrule.tasks import games
from chainrule.tasks.games.questions import leaves, question_tree
from chainrule.tasks.games.shannon import shannon_bounds

LINES = [f"the {animal} sat on the {thing} today" for animal in ("cat", "dog") for thing in ("mat", "log", "bed")]


@pytest.fixture(scope="module")
def words() -> cr.LanguageModel:
    return cr.train("ngram", LINES, order=3, tokenizer="word")


@pytest.fixture(scope="module")
def letters() -> cr.LanguageModel:
    return cr.train("ngram", LINES, order=4, tokenizer="char")


def player(answers: Sequence[str]) -> tuple[Callable[[str], str | None], list[str]]:
    """Someone who gives these answers, and what was asked."""
    left, asked = iter(answers), []

    def ask(question: str) -> str | None:
        asked.append(question)
        return next(left, None)

    return ask, asked


def ignore(line: str) -> None:
    pass


def test_bounds_hold_for_a_known_source() -> None:
    """Someone who knows the probabilities guesses in their order: the bounds enclose the entropy."""
    p = np.array([0.6, 0.2, 0.1, 0.05, 0.05])
    guesses = [i for i, share in enumerate(p, start=1) for _ in range(round(100 * share))]
    lower, upper = shannon_bounds(guesses)
    assert lower == pytest.approx(1 * 0.4 * 0 + 2 * 0.1 * 1 + 3 * 0.05 * math.log2(3) + 5 * 0.05 * math.log2(5))
    assert upper == pytest.approx(float(entropy(p)))
    assert lower < upper


def test_words_are_guessed_until_they_are_right(words: cr.LanguageModel) -> None:
    line = next(games.drawn_lines(LINES, 0)).split()
    ask, asked = player(["ran", line[2], line[3], "", line[5].upper()])
    found = games.guessing_game(words, LINES, ask, ignore, rounds=4)
    assert found is not None
    assert (found.unit, found.guesses, found.given_up) == ("word", [2, 1, -1, 1], 1)
    assert asked[:2] == ["next word, guess 1: ", "next word, guess 2: "]
    assert found.model_guesses[:3] == [1, 1, 1]  # sat on the
    assert found.symbols == words.tokenizer.vocab_size - 3
    lower, upper = found.bounds
    assert lower == shannon_bounds([2, 1, 1, 1])[0]
    assert upper == shannon_bounds([2, 1, 0, 1])[1] + math.log2(found.symbols) / 4
    special = [words.tokenizer.bos, words.tokenizer.eos, words.tokenizer.unk]
    nats = 0.0
    for place in range(2, 6):
        read = words.tokenizer.encode(" ".join(line[:place]))[None]
        p = np.exp(words.next_log_probs(words.extend(words.start(1), read)))
        p[0, special] = 0
        nats -= math.log(p[0, words.tokenizer.encode(line[place])[0]] / p.sum())
    assert found.model_bits == pytest.approx(nats / math.log(2) / 4, rel=1e-5)


def test_letters_are_guessed_and_an_underscore_is_a_space(letters: cr.LanguageModel) -> None:
    line = next(games.drawn_lines(LINES, 0))
    ask, _ = player(["s", "A", "t", "_", "o"])
    assert line.split()[2] == "sat"
    found = games.guessing_game(letters, LINES, ask, ignore)
    assert found is not None
    assert (found.unit, found.guesses) == ("letter", [1] * 5)  # the game ends with the answers
    assert found.bounds == (0, 0)


def test_a_game_without_answers_or_symbols(words: cr.LanguageModel) -> None:
    assert games.guessing_game(words, LINES, player([])[0], ignore) is None
    assert games.real_or_written({"words": words}, LINES, player([])[0], ignore) is None
    with pytest.raises(CorpusError, match="6 words or more"):
        games.guessing_game(words, ["too short"], player([])[0], ignore)
    subwords = cr.train("ngram", LINES, order=2, tokenizer="bpe")
    with pytest.raises(ModelError, match="letters or words"):
        games.guessing_game(subwords, LINES, player([])[0], ignore)


@pytest.mark.parametrize("p", [[0.5, 0.3, 0.2], [0.25] * 4, [0.9, 0.05, 0.03, 0.02], [1 / 7] * 7])
def test_the_tree_asks_as_few_questions_as_can_be(p: list[float]) -> None:
    shares = {f"word {i}": share for i, share in enumerate(p)}
    mean = sum(shares[word] * depth for word, depth in leaves(question_tree(shares)))
    assert mean == pytest.approx(yes_no_questions(p))
    bits = float(entropy(np.array(p)))
    assert bits - 1e-9 <= mean < bits + 1


def test_each_word_is_found_by_its_answers(words: cr.LanguageModel) -> None:
    for word in ("mat", "log", "bed"):
        left = [word]

        def ask(question: str, left: list[str] = left) -> str:
            return "yes" if repr(left[0]) in question else "no"

        found = games.twenty_questions(words, "sat on the", ask, ignore, words=8)
        assert found is not None
        assert found.word == word
        assert found.questions <= 8
        assert found.entropy <= found.expected < found.entropy + 1


def test_the_quiz_counts_for_each_model(words: cr.LanguageModel, letters: cr.LanguageModel) -> None:
    told: list[str] = []

    def ask(question: str) -> str:
        """The real text is a line of the corpus."""
        a, b = (line[5:] for line in told[-2:])
        is_real = [any(line.startswith(one) for line in LINES) for one in (a, b)]
        return "a" if is_real[0] else "b"

    models = {"words": words, "letters": letters}
    found = games.real_or_written(models, LINES, ask, told.append, rounds=6, seed=1)
    assert found is not None
    assert found.total[1] == 6 == sum(found.rounds.values())
    assert set(found.rounds) <= {"words", "letters"}
    figures = found.to_json()["all"]
    assert figures["interval"][0] < figures["right"] / 6 < figures["interval"][1] + 1e-9
    again: list[str] = []
    games.real_or_written(models, LINES, lambda question: "a", again.append, rounds=6, seed=1)
    assert again[:3] == told[:3]  # the seed draws the same texts


def test_the_right_answers_of_the_quiz_are_said_at_its_end_alone(words: cr.LanguageModel) -> None:
    told: list[str] = []
    found = games.real_or_written({"words": words}, LINES, lambda question: "a", told.append, rounds=5)
    assert found is not None
    key = told[-1].strip().split(", ")
    assert len(key) == 5
    assert found.right == {"words": sum(one.endswith(": a") for one in key)}
    for number, one in enumerate(key):
        real = told[3 * number + 1 + "ab".index(one[-1])][5:]
        assert any(line.startswith(real) for line in LINES)
