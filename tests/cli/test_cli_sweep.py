"""`chainrule sweep`: every combination of settings, trained on one text and measured on another."""

from __future__ import annotations

from pathlib import Path

import pytest

import chainrule as cr

from .running import Fails, Run


def test_a_row_for_each_combination(run: Run, corpus: Path, held_out: Path) -> None:
    settings = ["--set", "smoothing=add-k", "--set", "k=0.1", "--vary", "order=1,3", "--vary", "vocab_size=5,100"]
    words = ["sweep", "ngram", corpus, *settings, "--held-out", held_out]
    rows = run(*words, "--json").json
    assert len(rows) == 4 and {row["vocabulary"] for row in rows} == {8, 14}
    (row,) = (row for row in rows if row["settings"] == {"order": "3", "vocab_size": "100"})
    alone = cr.train("ngram", corpus, order=3, smoothing="add-k", k=0.1, tokenizer="word")
    assert row["perplexity"] == pytest.approx(alone.perplexity(held_out))
    shown = run(*words).out
    assert shown.split()[:4] == ["order", "vocab_size", "vocabulary", "perplexity"]
    assert "compare only within a vocabulary" in shown


def test_models_are_trained_on_the_device(run: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.comparison.sweep.choose_device", lambda name: f"{name} was chosen")
    words = ["sweep", "lstm", corpus, "--set", "steps=1", "--vary", "hidden=4"]
    assert "'auto was chosen'" in run(*words).err
    assert "'cuda was chosen'" in run(*words, "--device", "cuda").err


def test_without_held_out_text_a_tenth_is_held_out(run: Run, corpus: Path) -> None:
    (row,) = run("sweep", "ngram", corpus, "--vary", "order=2", "--json").json
    assert 0 < row["tokens"] < 30  # of 153
    assert "compare only" not in run("sweep", "ngram", corpus, "--vary", "order=2,3").out


def test_what_is_wrong_is_found_before_any_training(fails: Fails, corpus: Path) -> None:
    assert "did you mean 'order'" in fails("sweep", "ngram", corpus, "--vary", "order=2", "--vary", "orde=1")
    assert "is varied, and set too" in fails("sweep", "ngram", corpus, "--vary", "k=1,2", "--set", "k=1")
    assert "order should be a whole number" in fails("sweep", "ngram", corpus, "--vary", "order=2,many")
    assert "min_count should be a whole number" in fails("sweep", "ngram", corpus, "--vary", "min_count=few")
    assert "--vary takes KEY=VALUE" in fails("sweep", "ngram", corpus, "--vary", "order")
    assert "take a kind that predicts text" in fails("sweep", "tagger", corpus, "--vary", "order=1")


def test_a_name_may_be_written_as_the_option_is(run: Run, corpus: Path) -> None:
    (row,) = run("sweep", "ngram", corpus, "--vary", "vocab-size=5", "--json").json
    assert row["settings"] == {"vocab_size": "5"} and row["vocabulary"] == 8
