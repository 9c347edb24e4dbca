"""Notes on runs that are allowed but not what was wanted."""

from __future__ import annotations

import math
from typing import Any

import pytest

import chainrule as cr
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.planning import few_steps, long_rows, worse_than_guessing
from listening import Listening


def test_few_steps_are_said() -> None:
    def said(total: int, **values: Any) -> str | None:
        return few_steps(parse(TrainingSettings, values), total)

    assert said(1, minutes=0.1, batch=64) == (
        "only 1 step fitted into 0.1 minutes, in which little is learned: "
        "give it more, or set a smaller batch than 64 tokens"
    )
    assert "19 steps fitted" in str(said(19, minutes=0.1))
    assert said(20, minutes=0.1) is said(5, steps=5) is said(5, minutes=0.1, steps=5) is None


def test_rows_longer_than_a_batch_are_said() -> None:
    settings = parse(TrainingSettings, {"batch": 64})
    assert long_rows(settings, 100, "stream") == (
        "a step is one row of 100 tokens, more than the batch of 64: set length=64 for steps as small as that"
    )
    assert long_rows(settings, 64, "stream") is long_rows(settings, 100, "line") is None


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_both_engines_say_so(engine: str) -> None:
    text, progress = cr.Corpus.from_text("the cat sat on the mat\n" * 40), Listening()
    cr.train("elman", text, context="stream", progress=progress, engine=engine, batch=16, minutes=1e-4, hidden=8)
    assert [note.split()[0] for note in progress.notes] == ["elman:", "there", "a", "only"]


def test_a_loss_above_that_of_guessing_is_said() -> None:
    assert worse_than_guessing(5.5, 100, 0.3) == (
        "it learned nothing: 5.5 nats a token, where guessing among 100 tokens gives 4.605; "
        "train longer, or with a lower learning_rate than 0.3"
    )
    assert worse_than_guessing(math.log(100), 100, 0.3) is worse_than_guessing(None, 100, 0.3) is None


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_guessing_among_few_tokens_is_no_worse_than_guessing(engine: str) -> None:
    """Tables have eight rows where there are five tokens; those beyond count for nothing."""
    text, progress = cr.Corpus.from_text("hello world\nworld hello\n"), Listening()
    lm = cr.train("feedforward", text, valid=text, progress=progress, engine=engine, steps=3, hidden=8, dropout=0)
    assert [note.split()[0] for note in progress.notes] == ["feedforward:"]
    assert lm.tokenizer.vocab_size == 5
    assert lm.metrics["validation_nats"] < math.log(5)


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_a_run_that_goes_astray_says_so(engine: str) -> None:
    text, progress = cr.Corpus.from_text("the cat sat on the mat\n" * 40), Listening()
    astray = {"optimiser": "sgd", "learning_rate": 1000, "clip": 0, "steps": 3}
    cr.train("elman", text, valid=text, progress=progress, engine=engine, **astray)
    assert progress.notes[-1].startswith("it learned nothing")
