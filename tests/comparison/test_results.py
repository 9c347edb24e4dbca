"""The record of a comparison: its costs, its frontier, and which model to take."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.comparison import measured_training
from chainrule.comparison.advice import advise, second_half, times_to_gain
from chainrule.comparison.measured_training import LEAST_STEPS, check_steps
from chainrule.comparison.results import COSTS, FORMAT, RESULTS, Comparison, Result, read_comparison
from chainrule.comparison.tables import comparison_parts
from chainrule.contract.kinds import Figures, LadderEntry
from chainrule.errors import ChainruleError, ModelError
from chainrule.evaluation.intervals import among
from chainrule.report.record import ComparisonDetails


def result(name: str, loss: float, speed: float, megabytes: float, seconds: float) -> Result:
    return Result(name, "kind", {}, name, Figures({}, loss, speed), seconds, megabytes, "")


def compared(*results: Result) -> Comparison:
    return Comparison(FORMAT, "word", 10, "line", {}, list(results), {}, task="tagging")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8))
def test_a_model_is_on_the_frontier_if_none_on_it_beats_it(points: list[tuple[int, int]]) -> None:
    models = [result(str(number), loss, price, price, price) for number, (loss, price) in enumerate(points)]
    found = compared(*models)
    for key, sign in (("training_seconds", 1), ("megabytes", 1), ("tokens_per_second", -1)):
        on = found.frontier(key)
        best = {(loss, sign * price) for number, (loss, price) in enumerate(points) if str(number) in on}
        for number, (loss, price) in enumerate(points):
            point = loss, sign * price
            beaten = any(b[0] <= point[0] and b[1] <= point[1] and b != point for b in best)
            assert beaten != (str(number) in on)


def test_costs_may_be_missing() -> None:
    one = result("one", 1.0, 5.0, 2.0, 3.0)
    assert {key: cost.of(one) for key, cost in COSTS.items()} == {
        "training_seconds": 3.0,
        "megabytes": 2.0,
        "tokens_per_second": 5.0,
        **dict.fromkeys(COSTS.keys() - {"training_seconds", "megabytes", "tokens_per_second"}),
    }
    assert [cost.key for cost in compared(one).costs] == ["training_seconds", "megabytes", "tokens_per_second"]
    assert compared(one).frontier("parameters") == set()


def test_a_worse_model_that_is_no_cheaper_is_not_named_for_less() -> None:
    best, near = result("best", 1.0, 100, 50, 60), result("near", 1.01, 100, 20, 20)
    alike, small = result("alike", 1.02, 100, 19, 19), result("small", 1.03, 100, 5, 19)
    assert str(advise(compared(best, near, alike))).count("For less") == 1
    assert "For less: near trains 3x as fast" in str(advise(compared(best, near, alike)))
    assert "For less: small" in str(advise(compared(best, near, alike, small)))


def test_the_advice_says_when_a_network_would_overtake_counting() -> None:
    counted = result("5-gram", 2.0, 1e6, 6, 0.2)
    network = replace(result("lstm", 2.1, 3e4, 1, 60), flops_per_token=1e6, second_half=0.2, epochs=0.5)
    said = str(advise(compared(counted, network)))
    assert "lstm would pass 5-gram after about 85 s of training (60 s to 2.1 minutes) instead of 60 s." in said
    read_often = replace(network, epochs=20.0)  # the more often a text was read, the less another reading gives
    assert "lstm would not pass 5-gram in 8 times its 60 s" in str(advise(compared(counted, read_often)))
    for other in (replace(network, second_half=None), replace(network, test=Figures({}, 1.9, 3e4))):
        assert "learning curve" not in str(advise(compared(counted, other)))


def test_a_curve_is_continued_further_for_a_larger_gain() -> None:
    times = [times_to_gain(gain, 0.3, 1.0) or math.inf for gain in (0.05, 0.1, 0.2, 0.4, 5.0)]
    assert times == sorted(set(times)) and times[-1] == math.inf
    assert times_to_gain(0.1, 0.0, 1.0) is None and times_to_gain(0.1, -0.1, 1.0) is None
    points = [{"step": 5, "loss": 3.0}, {"step": 10, "validation_loss": 2.0}]
    assert second_half(points) is None and second_half([]) is None


def test_a_model_that_is_nearly_as_good_and_much_cheaper_is_named() -> None:
    best, near = result("best", 1.0, 100, 50, 60), result("near", 1.04, 5000, 40, 6)
    far, dear = result("far", 1.2, 1e6, 1, 1), result("dear", 1.01, 90, 60, 80)
    assert advise(compared(far, near, best, dear)) == (
        "Take best for quality. For less: near trains 10x as fast and scores text 50x as fast; "
        "its loss is 4.0% higher."
    )


def test_other_models_are_named_only_if_they_are_much_cheaper() -> None:
    assert advise(compared(result("only", 1.0, 100, 50, 60))) == "Take only for quality."
    near = result("b", 1.01, 150, 30, 50)
    assert advise(compared(result("a", 1.0, 100, 50, 60), near)) == "Take a for quality."
    assert advise(compared()) is None
    assert advise(compared(result("a", math.inf, 100, 50, 60))) is None


def test_the_cheapest_is_taken_of_models_that_cannot_be_told_apart() -> None:
    best, worse = result("mixture", 1.0, 100, 50, 60), result("lstm", 1.1, 100, 5, 60)
    counted = replace(result("5-gram", 1.0001, 5000, 49, 0.1), behind=(0.0001, -0.001, 0.0012))
    assert advise(compared(counted, replace(worse, behind=(0.1, 0.05, 0.15)), best)) == (
        "Take 5-gram: the test text cannot tell it from mixture, the best, and it trains 600x as fast and "
        "scores text 50x as fast."
    )
    slow = replace(result("slow", 1.0001, 10, 500, 600), behind=(0.0001, -0.001, 0.0012))
    assert advise(compared(slow, best)) == (
        "Take mixture: the test text cannot tell it from slow, and it costs least of them."
    )


def test_a_network_of_a_few_steps_is_no_result() -> None:
    timed = LadderEntry("lstm", {"minutes": 1.0})
    with pytest.raises(ModelError, match="took 1 step in 12 s, and 20 are the least"):
        check_steps(timed, 1, 12.0)
    for entry, steps in ((timed, LEAST_STEPS), (timed, None), (LadderEntry("lstm", {"steps": 1}), 1)):
        check_steps(entry, steps, 12.0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("parts", "train"), 7),
        (("identity", "ladder"), "x"),
        (("identity", "ladder"), ["x"]),
        (("results", 0, "test"), "x"),
        (("results", 0, "megabytes"), "x"),
        (("results", 0, "steps"), {}),
        (("results", 0, "interval"), [1.0]),
        (("results", 0, "behind"), [1.0, None, 2.0]),
        (("results", 0, "sample"), None),
        (("curve",), [{}]),
    ],
)
def test_a_damaged_file_is_no_comparison(place: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    found = compared(replace(result("a", 1.0, 1, 1, 1), interval=(0.5, 1.5)))
    found.write(tmp_path)
    assert read_comparison(tmp_path) == found
    written = json.loads((tmp_path / RESULTS).read_text())
    within = written
    for key in place[:-1]:
        within = within.setdefault(key, {}) if isinstance(within, dict) else within[key]
    within[place[-1]] = value
    (tmp_path / RESULTS).write_text(json.dumps(written))
    assert read_comparison(tmp_path) is None


def test_intervals_are_wider_for_more_models() -> None:
    """One of many equal models differs from the best by chance, unless the interval allows for their number."""
    draws = np.random.default_rng(1).normal(0.02, 0.01, 1000)
    alone, of_many = among(draws, 1), among(draws, 20)
    assert of_many[0] < 0 < alone[0]


def test_any_two_models_have_an_interval_of_their_own(tmp_path: Path) -> None:
    """It is narrower than that of a model among all of them; the stored record has no draws."""
    texts = [f"{who} {what} {how}" for who in "abcde" for what in "fghij" for how in "klmno"]
    found = cr.compare(texts, tmp_path / "out", ladder="lecture-ngrams", tokenizer=cr.TokenizerChoice("word"))
    rows = {one.name: one for one in found.results}
    best = found.best
    assert best is not None and len(rows) == 3
    for name in rows.keys() - {best.name}:
        difference, behind = found.difference(name, best.name), rows[name].behind
        assert difference is not None and behind is not None
        assert difference[0] == behind[0] and behind[1] < difference[1] < difference[2] < behind[2]
    there, back = found.difference("unigram", "bigram"), found.difference("bigram", "unigram")
    assert there is not None and back is not None
    assert there == pytest.approx((-back[0], -back[2], -back[1]))
    read = read_comparison(tmp_path / "out")
    assert read == found and read.difference("unigram", "bigram") is None
    with pytest.raises(ChainruleError, match="no model tetragram in the comparison: it has unigram, bigram"):
        found.difference("tetragram", "bigram")


def test_less_of_a_large_text_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.comparison.compare._HELD_OUT", 100)
    lines = [f"i love cats, the {number}th time" for number in range(400)]
    options: dict[str, Any] = {"tokenizer": cr.TokenizerChoice("char"), "ladder": "quick", "kinds": ["ngram"]}
    many = cr.compare("\n".join(lines), tmp_path / "lines", split="line", minutes=4, **options)
    assert many.results and 200 < (tmp_path / "lines" / "test.txt").stat().st_size < 800
    (tmp_path / "files").mkdir()
    for number in range(25):
        (tmp_path / "files" / f"{number}.txt").write_text("\n".join(f"{line}, file {number}" for line in lines))
    few = cr.compare(cr.Corpus.open(tmp_path / "files"), tmp_path / "few", split="file", minutes=4, **options)
    assert few.results and (tmp_path / "few" / "test.txt").stat().st_size > 10_000  # whole documents


def test_a_model_that_was_trained_on_the_test_text_is_not_the_best(tmp_path: Path) -> None:
    """It stands apart, while one that was trained on the training text, as all models here, does not."""
    texts = [f"{what} of the {number * number:,} animals lived in a house" for number in range(90) for what in "ab"]
    chars = cr.TokenizerChoice("char")
    pytest.importorskip("altair")
    cr.train("ngram", texts, order=5, tokenizer=chars).save(tmp_path / "seen")
    options: Any = {"ladder": "lecture-ngrams", "tokenizer": chars, "split": "line"}
    cr.compare(texts, tmp_path / "first", **options)
    folders = [tmp_path / "seen", tmp_path / "first" / "trigram"]
    found = cr.compare(texts, tmp_path / "out", include=folders, **options)
    seen, fair = found.results[3:]
    assert seen.rank < min(one.rank for one in found.results if one is not seen)
    assert seen.test.trained_on == 1.0 and fair.test.trained_on is None
    assert found.apart == [seen] and found.best not in (None, seen) and fair in found.comparable
    assert "seen" not in str(found.advice)
    shown = [str(part) for part in comparison_parts(found)]
    assert "of held-out text" in shown[0]
    assert "seen was trained on about 100% of the test text's long lines, so its figures do not compare" in shown
    report = cr.report.make_report(tmp_path / "out", prompts=[])
    assert "seen: not drawn, since the figures do not compare." in report.html
    assert isinstance(report.record, ComparisonDetails) and report.record.kinds is not None
    assert "trigram" in report.record.kinds.means and "seen" not in report.record.kinds.means


def test_a_kind_for_the_cpu_alone_is_loaded_there_in_a_comparison_on_a_gpu(tmp_path: Path) -> None:
    cr.train("anygram", "i love cats\n" * 9, tokenizer="word").save(tmp_path / "m")
    assert 0 < measured_training._loading_seconds(tmp_path / "m", "cuda") < 60
