"""Spelling correction: candidates, the channel, and words corrected in context."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import OSA
from tests.cli.running import Fails, Run

import chainrule as cr
from chainrule.tasks.spelling.channel import SYMBOLS, Channel, encoded, read_misspellings
from chainrule.tasks.spelling.correct import Corrector
from chainrule.tasks.spelling.forms import likely_forms
from chainrule.tasks.spelling.measure import measure_clean, measure_misspellings
from chainrule.tasks.spelling.words import Lexicon, in_case_of, words_of

TEXT = [
    "the cat sat on the mat",
    "the dog sat on the mat",
    "a piece of cake and a piece of bread",
    "peace and war and peace again",
    "I went to London to see the queen",
    "The cat saw the dog",
]


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    return cr.train("ngram", TEXT * 5, order=3, tokenizer="word:unicode")


@pytest.fixture(scope="module")
def corrector(lm: cr.LanguageModel) -> Corrector:
    return Corrector(lm)


@pytest.fixture
def folder(tmp_path: Path, lm: cr.LanguageModel) -> Path:
    lm.save(tmp_path / "model")
    return tmp_path / "model"


# -- candidates -------------------------------------------------------------------------------------------


def edits_by_definition(word: str, letters: str) -> set[str]:
    """Every word that one insertion, deletion, substitution or swap of neighbours makes of a word."""
    places = range(len(word) + 1)
    return {
        *(word[:i] + letter + word[i:] for i in places for letter in letters),
        *(word[:i] + word[i + 1 :] for i in places),
        *(word[:i] + letter + word[i + 1 :] for i in places[:-1] for letter in letters),
        *(word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-2]),
    }


def test_words_within_one_and_two_edits() -> None:
    words = ["".join(letters) for size in range(1, 5) for letters in itertools.product("ab", repeat=size)]
    near = Lexicon(words).near("abab")
    found = {words[n]: d for n, d in zip(near.numbers.tolist(), near.distances.tolist(), strict=True)}
    one = edits_by_definition("abab", "ab") & {*words} - {"abab"}
    assert {word for word, distance in found.items() if distance == 1} == one
    assert found["abab"] == 0 and found["baba"] == 2 and "b" not in found


def test_distances_by_hand() -> None:
    pairs = {"teh": "the", "acress": "across", "contenpted": "contented", "naive": "naïve", "日本": "日本語"}
    vocabulary = [*pairs.values(), "x" * 60]
    lexicon = Lexicon(vocabulary)
    for number, near in enumerate(map(lexicon.near, [*pairs, "x" * 59, "x"])):
        assert (near.numbers.tolist(), near.distances.tolist()) == (
            ([number], [1]) if number <= len(pairs) else ([], [])
        )
    assert Lexicon([]).near("word").numbers.tolist() == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text("abcé日", min_size=1, max_size=7), max_size=8), st.text("abcé日", min_size=1, max_size=7))
def test_near_words_are_those_that_another_program_finds(words: list[str], typed: str) -> None:
    near = Lexicon(words).near(typed)
    distances = [OSA.distance(typed, word) for word in words]
    found = dict(zip(near.numbers.tolist(), near.distances.tolist(), strict=True))
    assert found == {number: distance for number, distance in enumerate(distances) if distance <= 2}


def test_forms_that_a_vocabulary_makes_likely() -> None:
    stems = [a + b + c for a in "bdf" for b in "aou" for c in ("lk", "rt", "sp")]
    words = [stem + ending for stem in stems for ending in ("ed", "ing")]
    forms = likely_forms([*words, "embarked"])
    assert forms["embarking"] == pytest.approx(27 / 28)  # 27 of the 28 stems with "ed" have "ing"
    assert "embarked" not in forms and "embarks" not in forms
    corrector = Corrector(cr.train("ngram", [" ".join([*words, "embarked"])], order=1, tokenizer="word:unicode"))
    (found,) = corrector.correct(["embarkign"])
    assert found.corrected == "embarking"


# -- the channel ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text("abcéèh", min_size=1, max_size=5), min_size=1, max_size=8),
    st.text("abcéèh", min_size=1, max_size=5),
)
def test_costs_of_many_words_are_those_of_each(words: list[str], typed: str) -> None:
    channel, lexicon = Channel.default(), Lexicon(words)
    near = lexicon.near(typed, 6)
    found = lexicon.costs(typed, near, channel, 6)
    expected = [channel.cost(typed, words[number]) for number in near.numbers.tolist()]
    assert len(expected) == len(words)
    np.testing.assert_allclose(found, expected)


def test_costs_by_hand() -> None:
    channel = Channel.default()
    assert channel.cost("the", "the") == 0
    assert channel.cost("teh", "the") == pytest.approx(3.1)  # he swapped
    assert channel.cost("begining", "beginning") == pytest.approx(0.7)  # one of a double letter
    assert channel.cost("independant", "independent") == pytest.approx(4.6)  # a vowel for a vowel
    assert channel.cost("cab", "car") == pytest.approx(7.0)  # any letter for another
    assert channel.cost("cat", "car") == pytest.approx(6.0)  # one beside it on the keyboard
    assert channel.edits("teh", "the") == [("transpose", *encoded("he"))]
    assert channel.edits("aples", "apple") == [("delete", *encoded("pp")), ("insert", *encoded("es"))]


def test_learned_costs_are_counts() -> None:
    # "a" was typed for "e" twice; "e" stands in the right words 3 times: (2 + 1) / (3 + SYMBOLS)
    channel = Channel.learned([("bat", "bet"), ("sat", "set"), ("te", "tee"), ("same", "same")])
    e, a = encoded("ea")
    assert channel.substitute[e, a] == pytest.approx(-np.log(3 / (4 + SYMBOLS)))
    assert channel.delete[e, e] == pytest.approx(-np.log(2 / (1 + SYMBOLS)))
    t, h = encoded("th")
    assert channel.transpose[t, h] == pytest.approx(-np.log(1 / SYMBOLS))
    assert channel.cost("bat", "bet") < channel.cost("bot", "bet")
    with pytest.raises(cr.ChainruleError, match="no misspelled words"):
        Channel.learned([("same", "same")])


def test_misspellings_of_both_forms(tmp_path: Path) -> None:
    file = tmp_path / "errors.txt"
    file.write_text("beginning: begining beginnning\n\nteh\tthe\n")
    assert read_misspellings(file) == [("begining", "beginning"), ("beginnning", "beginning"), ("teh", "the")]
    for text, named in (
        ("the: the\nword\n", "line 2: expected typed TAB"),
        ("word:\n", "line 1"),
        ("\n", "no misspelled"),
    ):
        file.write_text(text)
        with pytest.raises(cr.ChainruleError, match=named):
            read_misspellings(file)


# -- words ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: "\n" not in text))
def test_words_are_those_of_the_tokenizer(line: str) -> None:
    for splitting in ("whitespace", "unicode"):
        words = words_of(line, splitting)  # type: ignore[arg-type]
        name = "word" if splitting == "whitespace" else "word:unicode"
        if any(word.text for word in words):
            tokenizer = cr.train_tokenizer(name, cr.Corpus.from_text(line))
            assert [word.text for word in words] == [tokenizer.token(int(i)) for i in tokenizer.encode(line)]
        for word in words:
            assert line[word.start : word.start + len(word.text)] == word.text
            assert line[word.core_start : word.core_start + len(word.core)] == word.core
            assert "".join([word.around[0], word.core, word.around[1]]) == word.text


def test_case() -> None:
    assert [in_case_of("the", typed) for typed in ("teh", "Teh", "TEH", "tEh")] == ["the", "The", "THE", "the"]


# -- correction -------------------------------------------------------------------------------------------


def test_case_punctuation_and_spaces_stay(corrector: Corrector) -> None:
    (found,) = corrector.correct(['  Teh cta, "sat" on\tTHHE mat (queeen)! 42 x'])
    assert found.corrected == '  The cat, "sat" on\tTHE mat (queen)! 42 x'
    assert [(edit.typed, edit.corrected) for edit in found.edits] == [
        ("Teh", "The"),
        ("cta", "cat"),
        ("THHE", "THE"),
        ("queeen", "queen"),
    ]
    for edit in found.edits:
        assert found.original[edit.start : edit.end] == edit.typed
        assert 0.5 < edit.probability <= 1


def test_a_real_word_is_corrected_in_context() -> None:
    text = ["the cat sat on the mat"] * 40 + ["we sing to thee", "from here to there"] * 3
    better = Corrector(cr.train("ngram", text, order=3, tokenizer="word:unicode"))
    (found,) = better.correct(["the cat sat on thee mat"])
    assert found.corrected == "the cat sat on the mat"
    assert [one.corrected for one in better.correct(["we sing to thee"])] == ["we sing to thee"]


def test_of_two_words_that_fit_as_well_neither_is_taken() -> None:
    text = ["we saw the bold man", "we saw the cold man"] * 10
    corrector = Corrector(cr.train("ngram", text, order=3, tokenizer="word:unicode"))
    typed = "we saw the qold man"
    assert [one.corrected for one in corrector.correct([typed])] == [typed]
    (known_wrong,) = Corrector(corrector.lm, keep=0).correct([typed])
    assert known_wrong.corrected in text and known_wrong.edits[0].probability < 0.55
    (alone,) = corrector.correct(["qold"])
    assert alone.corrected in ("bold", "cold")


def test_a_word_alone_is_corrected_sooner(corrector: Corrector) -> None:
    def margin(line: str, of: Corrector) -> float:
        """The prior of a correction of the first word over that of keeping it."""
        first = of.choices_of(of.words_of(line))[0]
        return float(first.scores[1] - first.scores[0])

    given = Corrector(corrector.lm, keep=0.9, lm_weight=0.85)
    assert margin("queeen", given) == margin("queeen sat", given)
    sooner = math.log(0.95 / 0.05) - math.log(0.02 / 0.98)
    by_prior = Corrector(corrector.lm, lm_weight=0.85)
    assert margin("queeen", by_prior) - margin("queeen sat", by_prior) == pytest.approx(sooner)
    # punctuation and numbers beside it are no words
    assert [word.is_alone for word in words_of("queeen! 42", "unicode")] == [True, False, False]
    assert not any(word.is_alone for word in words_of("the queeen", "unicode"))


def test_the_model_has_less_weight_for_a_word_alone(corrector: Corrector) -> None:
    """Words that are asked about are rarer than words of running text."""

    def weights(line: str, of: Corrector) -> list[float]:
        return of.choices_of(of.words_of(line))[0].weights.tolist()

    assert weights("the sat", corrector)[0] == 0.85 and weights("the", corrector)[0] == 0.6
    assert weights("queeen", corrector)[:2] == [0, 0.6]  # the model does not know the typed word
    given = Corrector(corrector.lm, lm_weight=0.7)
    assert weights("the", given) == weights("the sat", given)
    # "ths" for a frequent word, by a wrong letter, or for a rare one, by a letter left out
    text = ["the the the the the the the thus and the cat sat on the mat with the dog"] * 12
    words = Corrector(cr.train("ngram", text, order=1, tokenizer="word:unicode"))
    assert [one.corrected for one in words.correct(["ths"])] == ["thus"]
    assert [one.corrected for one in Corrector(words.lm, lm_weight=2.5).correct(["ths"])] == ["the"]


def test_priors_by_hand(lm: cr.LanguageModel) -> None:
    corrector = Corrector(lm, keep=0.9)

    def scores_of(typed: str) -> dict[str, float]:
        (found,) = corrector.choices_of(corrector.words_of(typed))
        return dict(zip(found.words, found.scores.tolist(), strict=True))

    # a word of the vocabulary is wrong 0.3 times as often as another: 0.1 * 0.3
    mat = scores_of("mat")
    assert mat["mat"] == pytest.approx(math.log(0.97))
    assert mat["sat"] == pytest.approx(math.log(0.03) - Channel.default().cost("mat", "sat"))
    # the vocabulary has London with a capital alone
    assert scores_of("Lodnon")["London"] == pytest.approx(
        math.log(0.1) - Channel.default().cost("lodnon", "london")
    )
    assert scores_of("lodnon")["london"] == pytest.approx(scores_of("Lodnon")["London"] - 2.3)


def test_the_baseline_takes_the_nearest_word_then_the_most_frequent() -> None:
    corrector = Corrector(cr.train("ngram", ["the the the the ten ten tea"], order=1, tokenizer="word:unicode"))
    assert corrector.nearest(["teg", "the", "zzz"]) == {"teg": "ten", "the": "the", "zzz": "zzz"}


def test_right_text_is_left_alone(corrector: Corrector) -> None:
    for line in (*TEXT, "", "   ", "Zbigniew", "!?", "3.14"):
        (found,) = corrector.correct([line])
        assert (found.corrected, found.edits) == (line, ())


def test_lines_together_are_lines_alone(corrector: Corrector) -> None:
    lines = ["teh cat", "", "a peice of cakke and a dgo", "I wnet to Lodnon", *TEXT, "x"]
    together = list(corrector.correct(lines))
    alone = [one for line in lines for one in corrector.correct([line])]
    assert [one.corrected for one in together] == [one.corrected for one in alone]
    assert [one.original for one in together] == lines
    assert together[3].corrected == "I went to London"


def test_the_search_finds_the_best_reading(lm: cr.LanguageModel) -> None:
    """With enough readings kept, the beam finds what trying all combinations finds."""
    corrector = Corrector(lm, beams=2000, choices=4, lm_weight=1.0)
    line = "teh cta sta on"
    words = corrector.words_of(line)
    choices = corrector.choices_of(words)

    def total(taken: tuple[int, ...]) -> float:
        ids = np.asarray([[int(of.ids[i]) for of, i in zip(choices, taken, strict=True)]])
        given = sum(float(of.scores[i]) for of, i in zip(choices, taken, strict=True))
        weights = np.asarray([of.weights[i] for of, i in zip(choices, taken, strict=True)])
        return given + float((lm.score(ids)[0] * weights).sum())

    best = max(itertools.product(*(range(len(of.words)) for of in choices)), key=total)
    (found,) = corrector.correct([line])
    assert found.corrected == " ".join(of.words[i] for of, i in zip(choices, best, strict=True)) == "the cat sat on"


def test_whitespace_words_keep_their_punctuation() -> None:
    lm = cr.train("ngram", ["the cat, the dog.", "a cat, a dog."] * 5, order=2, tokenizer="word")
    assert cr.tasks.correct(lm, '"teh cta, teh dgo.')[0].corrected == '"the cat, the dog.'


def test_a_network_scores_too() -> None:
    lm = cr.train("lstm", TEXT * 20, tokenizer="word:unicode", steps=5, seed=1)
    found = cr.tasks.correct(lm, ["teh cat sat on the mat", "the dgo"], keep=0)
    assert len(found) == 2
    assert found[0].corrected != found[0].original


def test_an_impossible_word_does_not_rule_out_the_line() -> None:
    lm = cr.train("ngram", ["the cat sat", "a dog ran"], order=2, smoothing="mle", tokenizer="word:unicode")
    assert cr.tasks.correct(lm, "teh cat ran")[0].corrected == "the cat ran"


def test_measures_by_hand(lm: cr.LanguageModel) -> None:
    corrector = Corrector(lm)
    # right, right, right word unknown (kept), wrong: "mat" is nearer to "mta" than "sat"
    pairs = [("teh", "the"), ("qeuen", "Queen"), ("zzyzx", "zyzzyva"), ("mta", "sat")]
    measured = measure_misspellings(corrector, pairs)
    assert (measured.texts, measured.accuracy, measured.baseline) == (4, 0.5, 0.5)
    assert measured.unreachable == 0.25
    clean = measure_clean(corrector, [*TEXT[:2], "the queeen"])
    assert (clean.words, clean.changed) == (14, 1)
    assert clean.rate == clean.baseline == clean.unknown == pytest.approx(1 / 14)


# -- the verb ---------------------------------------------------------------------------------------------


def test_the_verb(run: Run, run_alone: Run, folder: Path, tmp_path: Path) -> None:
    assert run("correct", folder, "Teh cta sat.").out == "The cat sat.\n"
    found = run("correct", folder, "Teh cta sat.", "--json").json
    assert found["corrected"] == "The cat sat."
    assert [edit["start"] for edit in found["edits"]] == [0, 4]
    file = tmp_path / "text.txt"
    file.write_text("teh cat\n\nthe dgo\n")
    assert run("correct", folder, file).out == "the cat\n\nthe dog\n"
    assert run_alone("correct", folder, stdin=b"teh cat\nthe dgo").out == "the cat\nthe dog\n"


def test_the_verb_measures(run: Run, folder: Path, tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.txt", tmp_path / "right.txt"
    wrong.write_text("the: teh\ncat: cta caat\n")
    right.write_text("\n".join(TEXT))
    words = ("correct", folder, "--evaluate", wrong, "--clean", right)
    figures = run(*words, "--json").json
    assert figures["misspelled"]["accuracy"] == 1
    assert figures["clean"]["changed"] == 0
    shown = run(*words).out
    assert "100.0%" in shown
    assert "falsely changed" in shown
    both = run("correct", folder, folder, *words[2:])
    assert both.out.count(str(folder)) == 4 and "bits/byte" in both.out
    first, second = run("correct", folder, folder, *words[2:], "--json").json
    assert first["misspelled"]["accuracy"] == second["misspelled"]["accuracy"] == 1
    learned = run("correct", folder, "teh cat", "--errors", wrong).out
    assert learned == "the cat\n"


def test_what_is_refused_is_one_line(fails: Fails, folder: Path, tmp_path: Path) -> None:
    bpe = cr.train("ngram", TEXT, order=2, tokenizer="char")
    bpe.save(tmp_path / "char")
    assert "takes a model of words, and the tokens of this one are char" in fails(
        "correct", tmp_path / "char", "a b"
    )
    assert "--keep" in fails("correct", folder, "a b", "--keep", "1")
    assert "one model corrects a text; several are measured" in fails("correct", folder, folder, "a b")
    assert "a text of several words goes in quotes" in fails("correct", folder, "a", "b")
    assert "No such file" in fails("correct", folder, "a b", "--errors", tmp_path / "none.txt")
    (tmp_path / "empty").mkdir()
    assert "empty" in fails("correct", tmp_path / "empty", "a b")
    for options in ({"keep": 1.0}, {"new": -0.1}, {"beams": 0}, {"choices": 0}):
        given: Any = options
        with pytest.raises(cr.ChainruleError, match="should be at least"):
            cr.tasks.correct(cr.load(folder), "a b", **given)
    with pytest.raises(cr.ChainruleError, match="expected a model, not 'model'"):
        cr.tasks.correct("model", "a b")  # type: ignore[arg-type]


def test_json_has_every_field(folder: Path) -> None:
    found = json.loads(json.dumps(cr.tasks.correct(cr.load(folder), "teh")[0].to_json()))
    assert set(found) == {"original", "corrected", "edits"}
    assert set(found["edits"][0]) == {"start", "end", "typed", "corrected", "probability"}
