"""Decisions before the first step: the length of a run, samples for validations, notes to the user."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.examples import sample_of
from chainrule.training.planning import Pace, after_training, before_training
from listening import Listening

# -- how far a run has come, by its steps and by the clock ----------------------------------------------


def test_without_a_clock_steps_count() -> None:
    assert Pace.of(50, None).place(7, 1e9) == (7, 50)
    assert Pace.of(50, None).expected_steps(7, 1e9) == 50


def test_with_a_clock_time_counts() -> None:
    assert Pace.of(None, 0.5).place(7, 12.0) == (12_000, 30_000)
    assert Pace.of(None, 0.5).place(7, 31.0) == (30_000, 30_000)
    assert Pace.of(None, 0.5).expected_steps(10, 3.0) == 100


@given(st.integers(1, 1000), st.floats(0.01, 10), st.integers(0, 1000), st.floats(0, 600))
def test_with_both_the_nearer_limit_counts(steps: int, minutes: float, step: int, seconds: float) -> None:
    step = min(step, steps)
    done, whole = Pace.of(steps, minutes).place(step, seconds)
    nearer = min(1.0, max(step / steps, seconds / 60 / minutes))
    assert done / whole == pytest.approx(nearer, abs=0.002)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 300))
def test_a_sample_of_lines_has_whole_lines(lengths: list[int], tokens: int) -> None:
    lines = [np.append(np.arange(1, length + 1), 0) for length in lengths]
    ids = np.concatenate(lines)
    sample = ids[sample_of(ids, 0, "line", tokens)]
    cut = np.split(sample, np.flatnonzero(sample == 0) + 1)[:-1]
    assert sample[-1] == 0 and {tuple(line) for line in cut} <= {tuple(line) for line in lines}
    if tokens >= len(ids):
        assert np.array_equal(sample, ids)


def test_a_sample_of_a_stream_is_spread_over_it() -> None:
    ids = np.arange(100_000)
    sample = ids[sample_of(ids, 0, "stream", 1600)]
    assert len(sample) == 1600 and (sample[0], sample[-1]) == (0, 99_999)
    assert np.count_nonzero(np.diff(sample) > 1) == 15


# -- notes on runs that are allowed but not what was wanted ---------------------------------------------


def test_few_steps_are_said() -> None:
    def said(total: int, **values: Any) -> list[str]:
        return list(after_training(parse(TrainingSettings, values), total, None, 100))

    assert said(1, minutes=0.1, batch=64) == [
        "only 1 step fitted into 0.1 minutes, in which little is learned: "
        "give it more, or set a smaller batch than 64 tokens"
    ]
    assert "19 steps fitted" in str(said(19, minutes=0.1))
    assert said(20, minutes=0.1) == said(5, steps=5) == said(5, minutes=0.1, steps=5) == []


def test_rows_longer_than_a_batch_are_said() -> None:
    settings = parse(TrainingSettings, {"batch": 64})
    assert list(before_training(settings, 100, "stream", None)) == [
        "a step is one row of 100 tokens, more than the batch of 64: set length=64 for steps as small as that"
    ]
    assert not [*before_training(settings, 64, "stream", None), *before_training(settings, 100, "line", None)]


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_both_engines_say_so(engine: str) -> None:
    text, progress = cr.Corpus.from_text("the cat sat on the mat\n" * 40), Listening()
    cr.train(
        "elman",
        text,
        context="stream",
        progress=progress,
        engine=engine,
        batch=8,
        minutes=1e-4,
        hidden=8,
        tokenizer="word",
    )
    assert [note.split()[0] for note in progress.notes] == ["elman:", "there", "a", "only"]


def test_a_loss_above_that_of_guessing_is_said() -> None:
    settings = parse(TrainingSettings, {"learning_rate": 0.3})
    assert list(after_training(settings, 100, 5.5, 100)) == [
        "it learned nothing: 5.5 nats a token, where guessing among 100 tokens gives 4.605; "
        "train longer, or with a lower learning_rate than 0.3"
    ]
    assert not [*after_training(settings, 100, math.log(100), 100), *after_training(settings, 100, None, 100)]


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_guessing_among_few_tokens_is_no_worse_than_guessing(engine: str) -> None:
    """Tables have eight rows where there are five tokens; those beyond count for nothing."""
    text, progress = cr.Corpus.from_text("hello world\nworld hello\n"), Listening()
    lm = cr.train(
        "feedforward",
        text,
        valid=text,
        progress=progress,
        engine=engine,
        steps=3,
        hidden=8,
        dropout=0,
        tokenizer="word",
    )
    assert [note.split()[0] for note in progress.notes] == ["feedforward:"]
    assert lm.tokenizer.vocab_size == 5
    assert lm.metrics["validation_nats"] < math.log(5)


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_a_run_that_diverges_is_noted(engine: str) -> None:
    text, progress = cr.Corpus.from_text("the cat sat on the mat\n" * 40), Listening()
    astray = {"optimiser": "sgd", "learning_rate": 1000, "clip": 0, "steps": 3}
    cr.train("elman", text, valid=text, progress=progress, engine=engine, **astray, tokenizer="word")
    assert progress.notes[-1].startswith("it learned nothing")
