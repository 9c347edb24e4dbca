"""Tests of progress: bars on a terminal and in a notebook if requested, otherwise nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import chainrule as cr
from chainrule.system.progress import SILENT, as_progress, bars
from chainrule.system.progress.bars import VisibleProgress
from listening import Listening

TEXT = "i love cats\ni love dogs\ncats chase mice\n" * 5


def test_progress_is_true_false_or_an_object() -> None:
    own = Listening()
    assert as_progress(False) is SILENT
    assert as_progress(own) is own
    assert isinstance(as_progress(True), VisibleProgress)


CALLS: dict[str, Callable[[cr.LanguageModel, Any], Any]] = {
    "train": lambda lm, progress: cr.train("ngram", TEXT, order=2, progress=progress, tokenizer="word"),
    "evaluate": lambda lm, progress: cr.evaluate(lm, TEXT, progress=progress),
    "score": lambda lm, progress: cr.score(lm, TEXT, progress=progress),
    "interpolate": lambda lm, progress: cr.ngram.interpolate(lm, lm, TEXT, progress=progress),
    "mix": lambda lm, progress: cr.mix([lm, lm], TEXT, progress=progress),
    "train_tokenizer": lambda lm, progress: cr.train_tokenizer("bpe", TEXT, progress=progress),
}


@pytest.mark.parametrize("call", CALLS)
def test_bars_are_drawn_when_asked_for(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = cr.train("ngram", TEXT, order=2, tokenizer="word")
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(bars, "Console", lambda **_: terminal)
    CALLS[call](lm, False)
    assert screen.getvalue() == ""
    CALLS[call](lm, True)
    assert "━" in screen.getvalue()


def test_a_comparison_shows_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(bars, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    texts = [f"{who} love {what}" for who in ("i", "you", "we", "they") for what in ("cats", "dogs", "mice")]
    cr.compare(texts, tmp_path / "out", kinds=["anygram"], progress=True)
    assert "models" in screen.getvalue()


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_has_bars_if_it_has_widgets(widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "find_spec", lambda name: object() if widgets and name == "ipywidgets" else None)
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    assert VisibleProgress(notebook).has_bars == widgets
    assert not VisibleProgress(Console(file=io.StringIO())).has_bars


def test_silence_does_not_import_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chainrule.system.progress.bars", None)
    cr.evaluate(cr.train("ngram", TEXT, order=2, tokenizer="word"), TEXT)
    with pytest.raises(ImportError):
        as_progress(True)
