"""Re-ranking of n-best lists: word errors, tuned weights, and the gain of a language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import Fails, Run

import chainrule as cr
from chainrule.errors import CorpusError
from chainrule.tasks.nbest.errors import WordErrorRates, word_errors
from chainrule.tasks.nbest.lists import NbestList, read_lists, tuning_and_test
from chainrule.tasks.nbest.weights import best_step, count_errors, envelope, tune

WORDS = st.lists(st.sampled_from("abc"), max_size=6)


# -- word errors ------------------------------------------------------------------------------------------


def distance_by_definition(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return len(one) + len(other)
    substituted = distance_by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(substituted, distance_by_definition(one[1:], other) + 1, distance_by_definition(one, other[1:]) + 1)


@settings(deadline=None, max_examples=30)
@given(WORDS, WORDS)
def test_word_errors_are_those_of_their_definition(one: list[str], other: list[str]) -> None:
    (errors,), words = word_errors([NbestList((" ".join(one),), {}, " ".join(other))])
    assert (errors.tolist(), words.tolist()) == ([distance_by_definition(one, other)], [len(other)])


def test_rates_by_hand() -> None:
    # 10 words in all: the first hypotheses have 2 errors, the chosen 1, the best 0
    errors = [np.asarray([2, 1, 0]), np.asarray([0, 1, 2])]
    rates = WordErrorRates.of(errors, np.asarray([6, 4]), [1, 0])
    assert (rates.before.value, rates.after.value, rates.oracle.value) == (0.2, 0.1, 0.0)
    assert rates.reduction.value == 0.5
    assert (rates.lists, rates.words) == (2, 10)
    # samples of two utterances: both the first 2/12, both the second 0, one of each 0.2
    assert (rates.before.low, rates.before.high) == pytest.approx((0, 1 / 3))
    without = WordErrorRates.of([np.asarray([0, 1])], np.asarray([3]), [0])
    assert without.reduction.value == 0


def test_the_interval_covers_the_truth() -> None:
    """Of 200 experiments of 100 utterances each, about 95 % of the intervals hold the true rate of 0.1."""
    generator, inside = np.random.default_rng(1), 0
    for seed in range(200):
        errors = [np.asarray([int(e)]) for e in generator.binomial(10, 0.1, size=100)]
        interval = WordErrorRates.of(errors, np.full(100, 10), [0] * 100, resamples=300, seed=seed).before
        inside += interval.low <= 0.1 <= interval.high
    assert 180 <= inside <= 199


# -- weights ----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=6))
def test_the_envelope_is_the_greatest_line_everywhere(lines: list[tuple[int, int]]) -> None:
    values_K, slopes_K = np.asarray(lines, dtype=float).T
    at, which = envelope(values_K, slopes_K)
    assert at == sorted(at)
    assert len(which) == len(at) + 1
    for step in np.linspace(-12, 12, 97) + 0.01:
        greatest = (values_K + step * slopes_K).max()
        line = which[int(np.searchsorted(at, step))]
        assert values_K[line] + step * slopes_K[line] == pytest.approx(greatest)


def some_lists(seed: int, count: int = 30) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Lists whose errors depend on two of three features."""
    generator = np.random.default_rng(seed)
    features = [generator.normal(size=(5, 3)) for _ in range(count)]
    errors = [
        np.rint(3 - some @ [1.0, 2.0, 0.0] + generator.normal(size=5)).clip(0).astype(int) for some in features
    ]
    return features, errors


@pytest.mark.parametrize("seed", range(5))
def test_the_step_is_as_good_as_the_best_of_a_fine_grid(seed: int) -> None:
    features, errors = some_lists(seed)
    generator = np.random.default_rng(seed)
    weights, direction = generator.normal(size=3), generator.normal(size=3)
    step, left = best_step(features, errors, weights, direction)
    assert count_errors(features, errors, weights + step * direction) == left
    grid = np.linspace(-20, 20, 1001)
    assert left <= min(count_errors(features, errors, weights + gamma * direction) for gamma in grid)


def test_tuning_finds_what_decides() -> None:
    features, errors = some_lists(7, 200)
    features = [np.column_stack([some, np.ones(len(some))]) for some in features]  # and one that never differs
    start = np.asarray([1.0, 0, 0, 0])
    weights = tune(features, errors, start)
    truth = count_errors(features, errors, np.asarray([1.0, 2, 0, 0]))
    assert count_errors(features, errors, weights) <= truth < count_errors(features, errors, start)
    assert weights[1] / weights[0] == pytest.approx(2, rel=0.5)
    assert weights[3] == 0
    np.testing.assert_array_equal(weights, tune(features, errors, start))


# -- rerank -----------------------------------------------------------------------------------------------

RIGHT = [
    f"{who} {verb} {what}" for who in ("i", "you", "we") for verb in ("love", "chase") for what in ("cats", "mice")
]


def as_record(number: int) -> dict[str, Any]:
    right = RIGHT[number % len(RIGHT)]
    wrong = " ".join(reversed(right.split()))
    first_is_right = number % 3 == 0
    texts = [right, wrong] if first_is_right else [wrong, right]
    return {"id": f"u{number}", "input": texts, "output": right, "am_score": [-1.0, -1.2]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "nbest.json", [as_record(number) for number in range(40)])


def written(path: Path, records: list[Any]) -> Path:
    path.write_text(json.dumps(records, indent=1))
    return path


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    return cr.train("ngram", RIGHT, order=2, smoothing="laplace", tokenizer="word")


@pytest.fixture
def folder(tmp_path: Path, lm: cr.LanguageModel) -> Path:
    lm.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_removes_the_errors_it_can(lm: cr.LanguageModel, file: Path) -> None:
    result = cr.tasks.rerank(lm, file)
    assert result.tested is not None
    assert result.tuned is not None
    assert result.tested.lists == result.tuned.lists == 20
    assert result.tested.before.value > 0.3  # reversed: two of three words wrong, in about two of three lists
    assert result.tested.after.value == result.tested.oracle.value == 0
    assert result.tested.reduction.value == 1
    assert result.best == [one.reference for one in result.lists]
    assert result.weights["am_score"] in (-1, 0, 1)


def test_weights_that_are_given_need_no_references(lm: cr.LanguageModel) -> None:
    lists = [NbestList(("cats love i", "i love cats"), {"am": (-1.0, -1.5)}, id=7)]
    assert cr.tasks.rerank(lm, lists, weights={"am": 1}).best == ["cats love i"]
    result = cr.tasks.rerank(lm, lists, weights={"am": 1, "lm": 1})
    assert result.best == ["i love cats"]
    assert (result.tested, result.tuned) == (None, None)
    expected = [-1.0 + lm.log_prob("cats love i"), -1.5 + lm.log_prob("i love cats")]
    np.testing.assert_allclose(result.totals[0], expected)
    with pytest.raises(cr.ChainruleError, match='no score "ac"'):
        cr.tasks.rerank(lm, lists, weights={"ac": 1})
    with pytest.raises(cr.ChainruleError, match="has no reference"):
        cr.tasks.rerank(lm, lists * 4)


def test_lists_without_scores_have_their_order(lm: cr.LanguageModel, file: Path) -> None:
    result = cr.tasks.rerank(lm, _without(file, "am_score"))
    assert list(result.weights) == ["rank", "lm", "lists", "words", "unknown"]
    assert result.tested is not None and result.tested.after.value == 0
    lists = [NbestList(("cats love i", "i love cats", "you love cats"), {})]
    totals = cr.tasks.rerank(lm, lists, weights={"rank": 1}).totals
    assert totals[0].tolist() == [0, -1, -2]
    records = json.loads(file.read_text())
    records[0]["am_score"] = None
    with pytest.raises(CorpusError, match='a field "am_score", which the first list does not have'):
        cr.tasks.rerank(lm, written(file.with_name("half.json"), records))


def test_a_model_that_does_not_help_is_left_out(run: Run, tmp_path: Path) -> None:
    """Which hypothesis is right does not depend on anything but the score, and the score is right."""
    generator = np.random.default_rng(1)
    records = []
    for number in range(60):
        right, wrong = (" ".join(generator.permutation(["a", "b", "c", "d"])) for _ in range(2))
        records.append({"id": number, "input": [right, wrong], "output": right, "am_score": [1.0, 0.0]})
    file = written(tmp_path / "nbest.json", records)
    cr.train("ngram", ["a b c d", "d c b a"], order=2, smoothing="laplace", tokenizer="word").save(tmp_path / "lm")
    result = run("rerank", tmp_path / "lm", file, "--json").json
    assert result["helps"] is False
    assert result["weights"] == {"am_score": 1, "lm": 0, "lists": 0, "words": 0, "unknown": 0}
    assert "it does not help here" in run("rerank", tmp_path / "lm", file).out


def test_the_model_reads_hypotheses_as_it_expects_them() -> None:
    lm = cr.train("ngram", ["Show me flights.", "Show me fares."] * 3, order=2, tokenizer="word:unicode")
    lists = [NbestList(("show me flights", "me show flights"), {"am": (0.0, 0.0)})]
    result = cr.tasks.rerank(lm, lists, weights={"lm": 1})
    np.testing.assert_allclose(result.totals[0], [lm.log_prob("Show me flights."), lm.log_prob("Me show flights.")])


def test_words_of_other_lists_by_hand(lm: cr.LanguageModel) -> None:
    lists = [NbestList(("a b", "a c"), {"am": (0.0, 0.0)}), NbestList(("b b",), {"am": (0.0,)})]
    totals = cr.tasks.rerank(lm, lists, weights={"lists": 1}).totals
    # the other list has b twice; one more for each of a, b, c and an unknown word: (0 + 1) / 6 and (2 + 1) / 6
    np.testing.assert_allclose(totals[0], [np.log(1 / 6 * 3 / 6), np.log(1 / 6 * 1 / 6)])


def test_no_list_is_tuned_by_a_model_that_read_its_reference(file: Path) -> None:
    """Each reference is a word of its own: a model that knows it has read it."""
    lists = [
        NbestList((f"name{i} {one.hypotheses[0]}",), one.scores | {"am_score": (0.0,)}, f"name{i}", one.id)
        for i, one in enumerate(read_lists(file))
    ]
    read: list[list[str]] = []

    def learner(references: list[str]) -> cr.LanguageModel:
        read.append(references)
        return cr.train("ngram", references, order=1, smoothing="laplace", tokenizer="word")

    result = cr.tasks.rerank(learner, lists)
    tuning, testing = tuning_and_test(len(lists), 0.5)
    assert [len(some) for some in read] == [15, 15, 15, 15, 20]
    assert set(read[-1]) == {lists[i].reference for i in tuning}
    assert not set(read[-1]) & {lists[i].reference for i in testing}
    for references in read[:-1]:  # each misses another quarter
        assert set(references) < set(read[-1])
    assert result.model.tokenizer.vocab_size == 3 + 20


def test_parts_are_disjoint_and_repeatable() -> None:
    tuning, testing = tuning_and_test(809, 0.5, seed=3)
    assert (len(tuning), len(testing)) == (404, 405)
    assert sorted([*tuning, *testing]) == list(range(809))
    np.testing.assert_array_equal(tuning, tuning_and_test(809, 0.5, seed=3)[0])
    assert not np.array_equal(tuning, tuning_and_test(809, 0.5, seed=4)[0])
    with pytest.raises(cr.ChainruleError, match="one part empty"):
        tuning_and_test(1, 0.5)


def test_a_model_that_rules_out_a_hypothesis(file: Path) -> None:
    mle = cr.train("ngram", RIGHT, order=2, smoothing="mle", tokenizer="word")
    with pytest.raises(cr.ChainruleError, match="probability 0: use a smoothed model"):
        cr.tasks.rerank(mle, file)


# -- the verb ---------------------------------------------------------------------------------------------


def test_the_verb(run: Run, folder: Path, file: Path) -> None:
    result = run("rerank", folder, file, "--json").json
    assert result["tested"]["after"]["value"] == 0
    assert set(result["weights"]) == {"am_score", "lm", "lists", "words", "unknown"}
    shown = run("rerank", folder, file).out
    assert "tested on" in shown
    assert "weights: am_score=" in shown
    weights = ",".join(f"{name}={weight}" for name, weight in result["weights"].items())
    lines = run("rerank", folder, file, "--weights", weights, "--best").out.splitlines()
    best = [json.loads(line) for line in lines]
    assert [one["text"] for one in best] == [as_record(i)["output"] for i in range(40)]
    assert best[3] == best[3] | {"id": "u3", "place": 0}
    assert "without references" in run("rerank", folder, _without(file, "output"), "--weights", weights).out


def test_several_models_are_one_table(run: Run, fails: Fails, folder: Path, file: Path) -> None:
    first, second = run("rerank", folder, folder, file, "--json").json
    assert first == second
    table = run("rerank", folder, folder, file).out
    assert table.count(str(folder)) == 2 and "bits/byte" in table and "weight" in table
    assert "for one model" in fails("rerank", folder, folder, file, "--best")


def test_a_negative_weight_is_said(run: Run, folder: Path, file: Path) -> None:
    against = run("rerank", folder, file, "--weights", "am_score=1,lm=-1")
    assert "its weight is negative" in against.out
    assert "negative" not in run("rerank", folder, file, "--weights", "am_score=1,lm=1").out


def test_the_verb_trains_a_model(run: Run, fails: Fails, file: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = run("rerank", new, file, "--train", "ngram", "--set", "order=2", "--json").json
    assert result["tested"]["after"]["value"] < result["tested"]["before"]["value"]
    assert cr.load(new).settings.order == 2
    assert "exists" in fails("rerank", new, file, "--train", "ngram")
    assert "another task" in fails("rerank", new, file, "--train", "tagger", "--overwrite")
    assert "--set is for --train" in fails("rerank", new, file, "--set", "order=2")


def _without(file: Path, name: str) -> Path:
    records = json.loads(file.read_text())
    for record in records:
        del record[name]
    return written(file.with_name(f"without-{name}.json"), records)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"am_score": None}, 'the field "am_score" should hold a list of numbers, not null'),
        ({"am_score": [-1.0]}, 'the field "am_score" has 1 numbers, and "input" 2 texts'),
        ({"am_score": [-1.0, "x"]}, 'the field "am_score" should hold numbers, not "x"'),
        ({"am_score": [-1.0, float("inf")]}, "not finite"),
        ({"input": []}, 'the field "input" is an empty list'),
        ({"output": 3}, 'the field "output" should hold text, not 3'),
    ],
)
def test_wrong_fields_are_named(
    fails: Fails, folder: Path, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    file = written(tmp_path / "bad.json", [as_record(0), as_record(1) | change])
    line = 1 + file.read_text()[: file.read_text().index('"u1"')].count("\n") - 1
    message = fails("rerank", folder, file)
    assert named in message
    assert f"{file}: line {line}: " in message


def test_any_whole_number_is_a_seed(run: Run, folder: Path, file: Path) -> None:
    rates = [run("rerank", folder, file, "--seed", seed, "--json").json for seed in (-1, 2**64 - 1, -3)]
    assert rates[0] == rates[1] and rates[0] != rates[2]


def test_missing_fields_are_named(fails: Fails, folder: Path, file: Path) -> None:
    for name, option in {"input": "--hypotheses", "output": "--reference"}.items():
        bad = _without(file, name)
        message = fails("rerank", folder, bad)
        assert f'{bad}: line 2: there is no field "{name}"; there are: id' in message
        assert f"(choose with {option})" in message
    assert '"am_score"; there are: id' in fails("rerank", folder, _without(file, "am_score"), "--score", "am_score")
    nothing = written(file.with_name("none.json"), [])
    assert f"{nothing}: there are no n-best lists" in fails("rerank", folder, nothing)
    assert "--weights should be" in fails("rerank", folder, file, "--weights", "am_score")
    assert 'no score "x"' in fails("rerank", folder, file, "--weights", "x=1")
    with pytest.raises(cr.ChainruleError, match="expected a model, not 'model'"):
        cr.tasks.rerank("model", file)  # type: ignore[arg-type]
