"""The surprisal of records: in bulk the same as one by one, and the most surprising found in one pass."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract import lm as contract
from chainrule.evaluation.records import most_surprising, score_records
from chainrule.text.corpus import Corpus
from listening import Listening

TEXTS = ["i love cats\ni love dogs", "cats chase mice", "zebras love zebras\n\ni love", "mice"]


@pytest.fixture(params=["line", "stream"])
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    toy = Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    return cr.train("ngram", toy, order=3, smoothing="laplace", context=request.param, tokenizer="word")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": f"r{n}"}) + "\n" for n, text in enumerate(TEXTS)))
    return path


@pytest.fixture(params=[1, 1 << 20])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one record, and of all."""
    monkeypatch.setattr(contract, "_MOST_AT_ONCE", request.param)


@pytest.mark.usefixtures("size")
def test_a_record_scores_as_its_text_does_alone(lm: cr.LanguageModel, records: Path) -> None:
    """With either context: nothing of a record is context of the next."""
    scored = list(score_records(lm, records))
    assert [(record.id, record.text) for record in scored] == list(enumerate(TEXTS, start=1))
    for record in scored:
        np.testing.assert_allclose(record.log_probs, -lm.surprisals(record.text), rtol=1e-12)
        assert math.isclose(record.bits, -lm.log_prob(record.text) / math.log(2))
        assert math.isclose(record.bits_per_token, record.bits / len(record.ids))
        assert math.isclose(record.perplexity, 2**record.bits_per_token)


@pytest.mark.usefixtures("size")
def test_the_lines_of_a_record_sum_to_it(lm: cr.LanguageModel, records: Path) -> None:
    """A stream flows across the lines of a record, but not into the next record."""
    whole = {record.id: record.log_prob for record in score_records(lm, records)}
    sums = dict.fromkeys(whole, 0.0)
    for line in score_records(lm, records, per_line=True):
        sums[int(str(line.id).partition(":")[0])] += line.log_prob
    assert sums == pytest.approx(whole)


def test_ids_have_the_file_before_them_where_there_are_several(lm: cr.LanguageModel, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("i love cats\nmice\n", encoding="utf-8")
    found = [record.id for record in score_records(lm, tmp_path)]
    assert found == [f"{tmp_path / name}:{line}" for name in ("a.txt", "b.txt") for line in (1, 2)]
    first, second = (record.log_prob for record in score_records(lm, tmp_path) if str(record.id).endswith(":1"))
    assert first == second  # a file begins anew


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("by", ["mean", "total"])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_the_most_surprising_are_those_that_sorting_gives(
    lm: cr.LanguageModel, tmp_path: Path, by: str, count: int
) -> None:
    lines = ["i love cats", "mice love", "zebras", "", "dogs dogs dogs", "i love cats", "zebras"] * 3
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    every = list(score_records(lm, path))
    # sorting is stable: of equal ones the first comes first
    best = sorted(every, key=lambda r: -round(r.bits_per_token if by == "mean" else r.bits, 9))[:count]
    progress = Listening()
    found = most_surprising(lm, path, count, by=by, progress=progress)  # type: ignore[arg-type]
    assert [record.id for record in found] == [record.id for record in best]
    assert progress.done == path.stat().st_size


def test_what_is_impossible_comes_first(tmp_path: Path) -> None:
    lm = cr.train("ngram", Corpus.from_text("i love cats\n"), order=2, smoothing="mle", tokenizer="word")
    path = tmp_path / "a.txt"
    path.write_text("i love cats\ncats love\ni love i\n", encoding="utf-8")
    assert [(r.id, r.bits) for r in most_surprising(lm, path, 2)] == [(2, math.inf), (3, math.inf)]
