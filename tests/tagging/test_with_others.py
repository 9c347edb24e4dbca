"""Taggers and other models: training that starts from a masked model, and a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.kinds import HeldOut, LadderEntry, find_kind
from chainrule.tagging.evaluate import measure
from chainrule.tagging.training import KIND
from chainrule.text.tagged import Tagged

from .toys import TINY, sentences


@pytest.mark.parametrize("frozen", [False, True])
def test_a_masked_model_gives_a_tagger_its_features(frozen: bool, tmp_path: Path) -> None:
    text = [" ".join(word for word, _ in one) for one in sentences()]
    sizes: Any = {"layers": 1, "width": 16, "heads": 2, "window": 32, "steps": 2, "batch": 64}
    cr.train("masked", text, tokenizer="bpe", **sizes).save(tmp_path / "masked")
    settings: Any = {**TINY, "steps": 2, "pretrained": str(tmp_path / "masked"), "frozen": frozen}
    tagger: Any = cr.train("tagger", sentences(), **settings)
    tagger.save(tmp_path / "tagger")
    words = [[word for word, _ in one] for one in sentences()[:3]]
    loaded: Any = cr.load(tmp_path / "tagger")
    for one, other in zip(tagger.log_probs(words), loaded.log_probs(words), strict=True):
        np.testing.assert_array_equal(one, other)
    before = cr.load(tmp_path / "masked").tensors()["encoder.embedding"]
    learned = [array for name, array in tagger.tensors().items() if name.endswith("encoder.embedding")]
    if learned:  # a frozen encoder may be read from its own folder
        assert (learned[0] == before).all() == frozen


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
