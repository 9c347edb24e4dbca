"""Minimal pairs: which sentence a model prefers, by phenomenon."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Fails, Run

import chainrule as cr
from chainrule.masked.pseudo import one_by_one
from chainrule.tasks.objects import read_objects
from chainrule.tasks.pairs import read_pairs, wilson

BLIMP = [
    {"sentence_good": "the cat sleeps", "sentence_bad": "the cat sleep", "UID": "singular", "field": "morphology"},
    {"sentence_good": "the cats sleep", "sentence_bad": "the cats sleeps", "UID": "plural", "field": "morphology"},
    {"sentence_good": "zebra", "sentence_bad": "gnu", "UID": "unknown", "field": "syntax"},
    {"sentence_good": "the cat sleep", "sentence_bad": "the cat sleeps", "UID": "singular", "field": "syntax"},
]


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    return cr.train("ngram", ["the cat sleeps", "the cats sleep"], order=2, smoothing="laplace", tokenizer="word")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "pairs.jsonl", BLIMP)


def written(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def folder(tmp_path: Path, lm: cr.LanguageModel) -> Path:
    lm.save(tmp_path / "model")
    return tmp_path / "model"


def test_accuracy_by_phenomenon_counts_ties_half(lm: cr.LanguageModel, file: Path) -> None:
    judged = cr.tasks.minimal_pairs(lm, file)
    # right, right, tie of two unknown words, wrong
    assert [one.credit for one in judged.pairs] == [1, 1, 0.5, 0]
    assert judged.accuracy == 2.5 / 4
    found = {one.name: (one.pairs, one.ties, one.accuracy) for one in judged.phenomena}
    assert found == {"singular": (2, 0, 0.5), "plural": (1, 0, 1.0), "unknown": (1, 1, 0.5)}
    assert judged.mean_accuracy == pytest.approx((0.5 + 1 + 0.5) / 3)
    for one in judged.pairs:
        assert one.good == pytest.approx(lm.log_prob(one.pair.good))
        assert one.bad == pytest.approx(lm.log_prob(one.pair.bad))


def test_impossible_sentences_tie() -> None:
    mle = cr.train("ngram", ["a b", "b a"], order=2, smoothing="mle", tokenizer="word")
    judged = cr.tasks.minimal_pairs(mle, [("a a", "b b"), ("a b", "b b")])
    assert judged.pairs[0].good == -math.inf
    assert [one.credit for one in judged.pairs] == [0.5, 1]


def test_longer_sentences_by_the_mean(lm: cr.LanguageModel) -> None:
    pair = [("the cats sleep the cats sleep", "sleep")]
    total, mean = cr.tasks.minimal_pairs(lm, pair), cr.tasks.minimal_pairs(lm, pair, by="mean")
    assert (total.accuracy, mean.accuracy) == (0, 1)
    assert total.fewer_tokens == 0
    assert mean.pairs[0].good == pytest.approx(lm.log_prob(pair[0][0]) / 7)  # six words and the line's end


def test_a_masked_model_goes_by_pseudo_log_likelihoods(toy: Any) -> None:
    judged = cr.tasks.minimal_pairs(
        toy, [("the cat meows today", "the cat barks today"), ("the dog barks", "the fish barks")]
    )
    assert judged.accuracy == 1
    row = toy.tokenizer.encode_lines(b"the cat meows today")
    assert judged.pairs[0].good == pytest.approx(one_by_one(toy, row).sum(), abs=1e-4)


def test_wilson_interval_of_the_textbook() -> None:
    # 0 of 10: (0, z² / (n + z²)) = (0, 3.8415 / 13.8415)
    assert wilson(0, 10) == pytest.approx((0, 0.27753), abs=1e-5)
    low, high = wilson(0.5, 100)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert low == pytest.approx(0.40383, abs=1e-5)


# -- the verb ---------------------------------------------------------------------------------------------


def test_the_verb_prints_json_and_a_table(run: Run, folder: Path, file: Path) -> None:
    result = run("pairs", folder, file, "--json").json
    assert result["accuracy"] == 0.625
    assert [(one["name"], one["pairs"]) for one in result["phenomena"]] == [
        ("singular", 2),
        ("plural", 1),
        ("unknown", 1),
    ]
    table = run("pairs", folder, file).out
    assert "62.5%" in table
    assert "mean of the phenomena" in table
    each = [json.loads(line) for line in run("pairs", folder, file, "--per-pair").out.splitlines()]
    assert [one["credit"] for one in each] == [1, 1, 0.5, 0]


def test_several_models_are_one_table(run: Run, fails: Fails, folder: Path, file: Path) -> None:
    first, second = run("pairs", folder, folder, file, "--json").json
    assert first == second and first["accuracy"] == 0.625
    table = run("pairs", folder, folder, file).out
    assert table.count("62.5%") == 2 and "bits/byte" in table
    assert "what one model says" in fails("pairs", folder, folder, file, "--per-pair")
    assert "and then the file" in fails("pairs", file)


def test_fields_can_be_named(run: Run, folder: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "own.jsonl", [{"yes": "the cat sleeps", "no": "cat the sleeps", "topic": "order"}])
    result = run("pairs", folder, file, "--good", "yes", "--bad", "no", "--group", "topic", "--json").json
    assert [one["name"] for one in result["phenomena"]] == ["order"]


def test_bad_pairs_are_one_line(fails: Fails, folder: Path, tmp_path: Path) -> None:
    equal = written(tmp_path / "equal.jsonl", [{"sentence_good": "a b", "sentence_bad": "a b"}] * 2)
    assert f"{equal}: line 1: the sentences of each pair are equal" in fails("pairs", folder, equal)
    missing = written(tmp_path / "missing.jsonl", [BLIMP[0], {}, {"sentence_good": "a"}])
    message = fails("pairs", folder, missing)
    assert 'line 2: there is no field "sentence_good"' in message and "(choose with --good)" in message
    nothing = written(tmp_path / "nothing.jsonl", [])
    assert f"{nothing}: there are no pairs to judge" in fails("pairs", folder, nothing)
    number = written(tmp_path / "number.jsonl", [{"sentence_good": "a", "sentence_bad": 3}])
    assert 'the field "sentence_bad" should hold text, not 3' in fails("pairs", folder, number)
    empty = written(tmp_path / "empty.jsonl", [])
    assert "no pairs" in fails("pairs", folder, empty)
    assert "No such file" in fails("pairs", folder, tmp_path / "none.jsonl")


def test_equal_sentences_are_ties_and_said_to_be(run: Run, folder: Path, tmp_path: Path) -> None:
    """BLiMP has seven such pairs of 67,000: the others are to be judged."""
    same = {"sentence_good": "a b", "sentence_bad": "a b"}
    file = written(tmp_path / "some.jsonl", [BLIMP[0], same, same])
    ran = run("pairs", folder, file, "--json")
    assert (ran.json["pairs"], ran.json["ties"], ran.json["equal_sentences"]) == (3, 2, 2)
    assert f"count as ties: 2; the first is {file}: line 2" in " ".join(ran.err.split())
    judged = cr.tasks.minimal_pairs(cr.load(folder), [("the cat sleeps", "cat the sleeps"), ("c", "c")])
    assert judged.accuracy == 0.75
    assert [pair.place for pair in judged.equal] == ["pair 1"]


def test_a_model_that_is_none(fails: Fails, file: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert "none" in fails("pairs", tmp_path / "none", file)
    with pytest.raises(cr.ChainruleError, match="expected a model, not 'model'"):
        cr.tasks.minimal_pairs("model", file)  # type: ignore[arg-type]


def test_a_tagger_is_refused(tmp_path: Path, file: Path, fails: Fails) -> None:
    sentences = tmp_path / "tagged.txt"
    sentences.write_text("the/DET cat/NOUN sleeps/VERB\n" * 20)
    tagger = cr.train("tagger", sentences, steps=1)
    tagger.save(tmp_path / "tagger")
    assert "use chainrule tag" in fails("pairs", tmp_path / "tagger", file)


# -- JSON objects of files --------------------------------------------------------------------------------


def test_objects_of_a_list_know_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[\n {"a": 1},\n\n {"a":\n 2}, {"a": 3}\n]\n')
    assert list(read_objects(path)) == [
        (f"{path}: line 2", {"a": 1}),
        (f"{path}: line 4", {"a": 2}),
        (f"{path}: line 5", {"a": 3}),
    ]
    path.write_text(" []")
    assert list(read_objects(path)) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[{"a": 1}\n{"a": 2}]', "line 2: not JSON: expected , or ]"),
        ('[{"a": 1},\n{"a": }]', "line 2: not JSON"),
        ('[{"a": 1}', "not JSON: expected , or ]"),
        ('[{"a": 1}] []', "nothing after the list"),
        ('{"a": 1}\n[1]\n', "line 2: expected a JSON object"),
        ('{"a": 1}\n{"a"\n', "line 2: not JSON"),
        ("[3]", "line 1: expected a JSON object, found 3"),
    ],
)
def test_what_is_no_json_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(cr.ChainruleError, match=named.replace("]", r"\]").replace("[", r"\[")):
        list(read_objects(path))


def test_groups_by_the_first_name_that_is_there(file: Path) -> None:
    assert [pair.phenomenon for pair in read_pairs(file)] == ["singular", "plural", "unknown", "singular"]
    assert next(pair.phenomenon for pair in read_pairs(file, group="field")) == "morphology"
