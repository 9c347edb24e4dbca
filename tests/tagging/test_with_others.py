"""Taggers and other models: a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.contract.kinds import HeldOut, LadderEntry, find_kind
from chainrule.tagging.evaluate import measure
from chainrule.tagging.training import KIND
from chainrule.text.tagged import Tagged

from .toys import TINY, sentences


def test_taggers_are_compared_by_their_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny: dict[str, Any] = {**TINY, "steps": 3}
    entries = (LadderEntry("one direction", {**tiny, "bidirectional": False}), LadderEntry("two directions", tiny))
    monkeypatch.setitem(KIND.__dict__, "ladder", entries)
    assert find_kind("tagger").ladder == entries
    found = cr.compare(sentences() * 3, tmp_path / "ladder", task="tagging")
    assert [result.name for result in found.results] == ["one direction", "two directions"]
    assert all(0 <= result.test.values["accuracy"] <= 100 for result in found.results)  # type: ignore[union-attr]
    assert found.best is not None and (tmp_path / "ladder" / found.best.folder / "manifest.json").is_file()


def test_the_figures_of_a_comparison_are_those_of_evaluate() -> None:
    tagger: Any = cr.train("tagger", sentences(), **{**TINY, "steps": 2})
    figures = measure(tagger, HeldOut(Tagged.of(sentences()), None))  # type: ignore[arg-type]
    measured = cr.tagging.evaluate_tagger(tagger, sentences())
    assert figures.values["accuracy"] == pytest.approx(100 * measured.accuracy)
    assert figures.loss == pytest.approx(1 - measured.accuracy)
    assert "/" in figures.sample
