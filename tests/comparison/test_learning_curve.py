"""Learning curves: parts of a text, the time for them, and a comparison that has them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.comparison import budget as budgets
from chainrule.comparison.budget import TimeBudget
from chainrule.comparison.compare import compare
from chainrule.comparison.learning_curve import SHARES, CurveTexts, Job, add_whole_text, curve_jobs, timed_as
from chainrule.comparison.measured_training import MeasuredTraining
from chainrule.comparison.results import FORMAT, Comparison, Failure, Point, Result, read_comparison
from chainrule.contract.kinds import LadderEntry, find_kind
from chainrule.errors import ChainruleError, CorpusError
from chainrule.evaluation.measure import Measured
from chainrule.tokens.char import ByteTokenizer

NGRAM = find_kind("ngram")


def written(path: Path, documents: Sequence[str]) -> Path:
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@given(st.integers(0, 3), st.integers(40, 120))
def test_parts_are_whole_documents_each_within_the_next(
    tmp_path_factory: pytest.TempPathFactory, seed: int, many: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    documents = [f"document {number}\n{'x' * (number % 7)}" for number in range(many)]
    corpus = cr.Corpus.open(written(folder / "text.txt", documents))
    found = CurveTexts(corpus, ByteTokenizer(), folder, seed).encoded
    assert list(found) == list(SHARES)
    whole, before = corpus.size(), set[str]()
    for share, encoded in found.items():
        lines = ByteTokenizer().decode(encoded.ids.tolist()).split("\n")
        names = {line for line in lines if line.startswith("document")}
        assert before < names
        assert all(f"{name}\n{'x' * (int(name.split()[1]) % 7)}" in "\n".join(lines) for name in names)
        assert encoded.bytes / whole == pytest.approx(share, abs=0.03)
        before = names


def test_a_text_of_few_documents_has_no_curve(tmp_path: Path) -> None:
    corpus = cr.Corpus.open(written(tmp_path / "text.txt", ["one\nline", "two", "three\nlines", "three\nlines"]))
    with pytest.raises(CorpusError, match="too few documents for a learning curve, which needs 5 that differ"):
        _ = CurveTexts(corpus, ByteTokenizer(), tmp_path).encoded


def test_models_of_the_short_ladder_have_a_curve_or_else_all() -> None:
    short, other, network = (
        LadderEntry("a", {}, quick=True),
        LadderEntry("b", {}),
        LadderEntry("c", {"minutes": 1}, quick=True),
    )
    found = curve_jobs([(NGRAM, other), (NGRAM, short), (NGRAM, network)])
    on_parts = [Job(NGRAM, short, share) for share in SHARES]
    assert found == [*on_parts, Job(NGRAM, network, 0.25), Job(NGRAM, network, 0.5)]
    assert curve_jobs([(NGRAM, other)]) == [Job(NGRAM, other, share) for share in SHARES]


def measured(name: str, bits: float, *, normalised: bool = True, **settings: object) -> Result:
    test = Measured(2**bits, bits, bits, bits, 10, 100, 0.0, True, 0, normalised, 1.0, 10.0)
    return Result(name, "ngram", settings, name, test, 2.0, 1.0, "", seconds=3.0)


def test_a_network_has_the_same_time_on_each_part() -> None:
    whole = measured("net", 2.0, minutes=0.8)
    network = LadderEntry("net", {"minutes": 5, "width": 3})
    assert timed_as(network, whole).settings == {"minutes": 0.8, "width": 3}
    counted = LadderEntry("counts", {"order": 2})
    assert timed_as(counted, whole) is counted


def test_curves_fit_into_the_time_of_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: now[0])
    small, large = LadderEntry("small", {"minutes": 1}), LadderEntry("large", {"minutes": 1}, share=3.0)
    ladder = [(NGRAM, small), (NGRAM, large), (NGRAM, LadderEntry("counted", {}))]
    jobs = sorted([*(Job(*one) for one in ladder), *curve_jobs(ladder)], key=lambda job: job.order)
    assert [(job.entry.name, job.share) for job in jobs[:7]] == [
        ("counted", 1.0),
        *(("counted", share) for share in SHARES),
        ("small", 1.0),
        ("large", 1.0),
    ]
    budget, results = TimeBudget(4.0, each=1.0, began=0.0), dict[str, Result]()
    for number, job in enumerate(jobs[5:], start=6):
        if job.share == 1:
            entry = budget.within(job.entry, [other.entry for other in jobs[number:]])
            results[entry.name] = measured(entry.name, 1.0, **entry.settings)
        else:
            entry = timed_as(job.entry, results[job.entry.name])
        now[0] += 60 * entry.settings["minutes"] + 1.0  # to measure it
        budget.took(entry, 60 * entry.settings["minutes"] + 1.0)
    assert now[0] == pytest.approx(236, abs=0.1)  # 4 s are left for the mixture
    times = {name: one.settings["minutes"] for name, one in results.items()}
    assert times["large"] == pytest.approx(3 * times["small"], abs=1e-3)


def point_of(name: str, share: float) -> Point:
    return Point(name, "ngram", {}, share, 10, 40, 2.0, 16.0, 1.0, 1.0)


def test_a_comparison_is_finished_when_its_curves_are() -> None:
    results = [measured("a", 2.0), measured("scores", 1.0, normalised=False), measured("never", math.inf)]
    identity = {
        "ladder": [{"name": one.name} for one in results],
        "curve": [[one.name, share] for one in results for share in SHARES],
    }
    parts = {"train": {"tokens": 100, "bytes": 400}}
    found = Comparison(FORMAT, "word", 10, "line", parts, results, identity)
    add_whole_text(found, ["a", "scores", "never"])
    add_whole_text(found, ["a"])
    assert [(one.name, one.share, one.bits_per_byte, one.tokens) for one in found.curve] == [
        ("a", 1.0, pytest.approx(2.0), 100)
    ]
    assert not found.is_finished
    for share in SHARES[:3]:
        found.curve.append(point_of("a", share))
    assert not found.is_finished
    found.failures.append(Failure("a", "ngram", "no luck", SHARES[3]))
    assert found.is_finished
    add_whole_text(found, ["a"])
    assert [one.share for one in found.curve] == [*SHARES[:3], 1.0]


LADDER = """
[[model]]
kind = "ngram"
name = "pairs"
settings = { order = 2, smoothing = "witten-bell" }
"""


def test_a_curve_is_measured_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["a b c d", "a b d c", "b a c", "d d a b", "c a b"]
    documents = [f"{words[number % 5]}\n{words[number * 7 % 5]} {number % 11}" for number in range(120)]
    text = written(tmp_path / "text.txt", [f"{one} {number}" for number, one in enumerate(documents)])
    ladder, out = tmp_path / "ladder.toml", tmp_path / "out"
    ladder.write_text(LADDER, encoding="utf-8")
    train_on_part, calls = MeasuredTraining.train_on_part, list[float]()

    def noted(training: MeasuredTraining, kind: object, entry: LadderEntry, share: float, part: object) -> Point:
        calls.append(share)
        if len(calls) == 2:
            raise RuntimeError("no luck")
        return train_on_part(training, kind, entry, share, part)  # type: ignore[arg-type]

    monkeypatch.setattr(MeasuredTraining, "train_on_part", noted)
    first = compare(text, out, ladder=ladder, tokenizer=cr.TokenizerChoice("word"), curve=True)
    assert calls == list(SHARES)
    assert [(one.name, one.share) for one in first.failures] == [("pairs", SHARES[1])]
    assert [one.share for one in first.curve] == [SHARES[0], *SHARES[2:], 1.0]
    again = compare(text, out, ladder=ladder, tokenizer=cr.TokenizerChoice("word"), curve=True)
    assert calls == [*SHARES, SHARES[1]]  # what failed is tried again, and nothing else
    assert [one.share for one in again.curve] == [*SHARES, 1.0]
    assert replace(again, curve=[]).results == first.results
    found = read_comparison(out)
    assert found is not None and found.is_finished and found.curve == again.curve
    assert found.curve[-1].bits_per_byte == found.results[0].test.to_json()["bits_per_byte"]
    assert [one.tokens for one in found.curve] == sorted(one.tokens for one in found.curve)
    assert found.curve[0].bits_per_byte > found.curve[-1].bits_per_byte
    without = compare(text, out, ladder=ladder, tokenizer=cr.TokenizerChoice("word"))
    assert without.curve == found.curve  # it is not lost where it is not asked for
    assert json.loads((out / "compare.json").read_text())["identity"]["curve"] == []
    with pytest.raises(ChainruleError, match="learning curves are of language models"):
        compare(text, tmp_path / "no", task="tagging", curve=True)


def test_the_table_of_curves() -> None:
    from chainrule.comparison.tables import comparison_parts, curve_table

    parts = {name: {"tokens": 10, "bytes": 40} for name in ("train", "test")}
    found = Comparison(FORMAT, "word", 10, "line", parts, [measured("a", 2.0)], {})
    without = comparison_parts(found)
    bits = {1 / 16: math.inf, 1 / 2: 2.5, 1.0: 2.25}
    found.curve.extend(replace(point_of("a", share), bits_per_byte=value) for share, value in bits.items())
    found.curve.append(replace(point_of("b", 1.0), bits_per_byte=3.0))
    table = curve_table(found)
    assert table.headings == ["model", "1/16", "1/2", "all", "twice the text"]
    assert table.rows == [["a", "∞", "2.500", "2.250", "-0.250"], ["b", "", "", "3.000", ""]]
    assert comparison_parts(found) == [*without, "", table]


def test_the_command_asks_for_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.cli.main import main

    asked = []

    def noted(*_: object, curve: bool, **__: object) -> Comparison:
        asked.append(curve)
        raise ChainruleError("enough")

    monkeypatch.setattr("chainrule.compare", noted)
    text = written(tmp_path / "text.txt", ["a", "b"])
    for words in ([], ["--curve"]):
        with pytest.raises(SystemExit):
            main(["compare", str(text), "--out", str(tmp_path / "out"), *words])
    assert asked == [False, True]
