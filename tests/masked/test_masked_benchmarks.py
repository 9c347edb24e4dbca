"""The benchmarks of masked models and of pretraining run, however small."""

from __future__ import annotations

import shlex

import pytest
from benchmarks import masked, pretraining


def test_the_race_runs(capsys: pytest.CaptureFixture[str]) -> None:
    small = shlex.split("--width 16 --layers 1 --heads 1 --window 16 --vocab-size 50 --batch 64")
    masked.main(["--device", "cpu", "--steps", "2", "--rounds", "1", *small])
    assert "chainrule, fast" in capsys.readouterr().out


def test_pretraining_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    few = shlex.split("--pairs 20 --text 30 --steps 2 --pretraining-steps 2 --width 8 --test 3")
    pretraining.main(few)
    assert "infilling" in capsys.readouterr().out


def test_the_toy_sentences_are_all_different() -> None:
    pairs = pretraining.sentences(500, seed=1)
    assert len(dict(pairs)) == 500
    assert dict(pretraining.sentences(3000, seed=0))["old dog sleep river"] == "the old dog sleeps near the river"
