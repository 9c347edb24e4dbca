"""A batch as tokens: what training reads, and what it predicts."""

from __future__ import annotations

from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import ModelError
from chainrule.training.objectives import Batch, Gatherer
from chainrule.training.shown_batch import shown_batch

TEXT = "".join(f"line {i} has {'some ' * (i % 5)}words\n" for i in range(60))


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("elman", {"hidden": 4}),
        ("elman", {"hidden": 4, "examples": 1}),
        ("feedforward", {"order": 4, "hidden": 4}),
    ],
)
def test_it_is_the_first_batch_of_the_training(
    monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, Any], context: Any
) -> None:
    seen: list[Batch] = []
    gather = Gatherer.batch

    def watched(self: Gatherer, rows: Any) -> Batch:
        seen.append(gather(self, rows))
        return seen[-1]

    with monkeypatch.context() as patched:
        patched.setattr(Gatherer, "batch", watched)
        how: Any = {"tokenizer": "word", "context": context, "seed": 3, "engine": "tape"}
        lm = cr.train(kind, TEXT, valid=TEXT, steps=2, batch=64, **how, **settings)
    shown = shown_batch(lm, TEXT, seed=3)
    trained = [batch for batch in seen if [*map(len, batch.inputs)] == [*map(len, shown.inputs)]]
    as_tokens = [
        [[None if i < 0 else lm.tokenizer.token(i) for i in row] for row in array.tolist()]
        for array in (trained[0].inputs, trained[0].targets_BT)
    ]
    assert [shown.inputs, shown.targets] == as_tokens
    assert shown.steps > 1


def test_targets_are_the_inputs_shifted_by_one(model_of_lines: cr.LanguageModel) -> None:
    shown = shown_batch(model_of_lines, "a b c\nd\n")
    for inputs, targets in zip(shown.inputs, shown.targets, strict=True):
        read, predicted = ([token for token in row if token is not None] for row in (inputs, targets))
        assert read[1:] == predicted[:-1]
        assert (read[0], predicted[-1]) == ("<s>", "</s>")
    assert shown.padding == 2 / 8


@pytest.fixture(scope="module")
def model_of_lines() -> cr.LanguageModel:
    text = "a b c\nd\n"
    how: Any = {"tokenizer": "word", "engine": "tape", "hidden": 4, "steps": 1}
    return cr.train("elman", text, valid=text, **how)


def test_a_model_that_counts_has_no_batches() -> None:
    lm = cr.train("ngram", "a b c\n", order=2, tokenizer="word")
    with pytest.raises(ModelError, match="kind ngram is not trained on batches"):
        shown_batch(lm, "a b")
