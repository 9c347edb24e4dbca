"""Span corruption and infilling: what is damaged can be repaired; and pretrained weights to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.errors import SettingsError
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.denoising import DamagedExamples, Denoising, Infilling, Spans
from chainrule.tokens.base import line_bounds
from chainrule.training.layouts import Lines, Rows, Size
from chainrule.training.objectives import Gatherer

VOCAB = 50
SPANS, INFILLING = Spans(1, 2, VOCAB, 3), Infilling(1, 2, VOCAB, 3)
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 1, "batch": 128, "window": 24, "dropout": 0.0}
LINES = [f"{' '.join('abcdefgh'[(i + k) % 8] for k in range(2 + i % 9))}" for i in range(60)]


def restored(source: np.ndarray, target: np.ndarray, vocab_size: int) -> np.ndarray:
    """The text from which `Spans` made a source and a target, both without </s>."""
    spans: dict[int, list[int]] = {}
    for token in target.tolist():
        if token >= vocab_size:
            spans[token] = current = []
        else:
            current.append(token)
    text = [t for token in source.tolist() for t in (spans[token] if token >= vocab_size else [token])]
    return np.asarray(text, dtype=np.int64)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 20, 100, 500])
def test_spans_can_be_put_back(length: int) -> None:
    text = np.random.default_rng(length).integers(3, VOCAB, length)
    for seed in range(20):
        source, target = SPANS.damaged(text, np.random.default_rng(seed))
        assert (restored(source, target, VOCAB) == text).all()
        assert len(target) + 1 == SPANS.targets_of(length)
        sentinels = source[source >= VOCAB]
        assert (sentinels == VOCAB + np.arange(len(sentinels))).all()  # in order, each once
        assert (target[target >= VOCAB] == sentinels).all()
        if length >= 7:
            removed = length - (len(source) - len(sentinels))
            assert removed == round(0.15 * length)
            assert len(sentinels) == max(1, round(removed / 3))  # spans of 3 on average


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 20, 100, 500])
def test_infilling_leaves_the_rest_of_the_text(length: int) -> None:
    text = np.random.default_rng(length).integers(3, VOCAB, length)
    masks = []
    for seed in range(20):
        source, target = INFILLING.damaged(text, np.random.default_rng(seed))
        assert (target == text).all() and len(source) <= max(length, 1)
        kept = source[source != VOCAB]
        assert len(kept) == length - (max(1, round(0.3 * length)) if length else 0)
        at = iter(text.tolist())
        assert all(token in at for token in kept.tolist())  # in the order of the text
        masks.append(len(source) - len(kept))
    if length == 500:
        assert 40 < np.mean(masks) < 60  # 150 tokens in spans of Poisson(3)


def test_the_lengths_of_spans_are_those_of_poisson() -> None:
    text = np.full(1000, 7)
    counts = [int((INFILLING.damaged(text, np.random.default_rng(s))[0] == VOCAB).sum()) for s in range(30)]
    assert abs(np.mean(counts) - 100) < 4  # 300 / 3; with those of length 0, which are 5 %


@pytest.mark.parametrize("objective", [SPANS, INFILLING])
def test_batches_are_shifted_and_the_same_again(objective: Denoising) -> None:
    ids = np.asarray([5, 6, 7, 8, 9, 2, 5, 2, 2, 9, 8, 7, 2])
    rows = Rows(np.asarray([0, 6, 8, 9]), np.asarray([6, 2, 1, 4]), np.zeros(4, np.int64), 6, 0)
    gatherer = Gatherer(ids, objective)
    (sources, inputs), targets = gatherer.batch(rows)
    follows = targets[:, 1:] != PAD
    assert (inputs[:, 0] == 1).all() and (inputs[:, 1:][follows] == targets[:, :-1][follows]).all()
    assert all(row[row != PAD][-1] == 2 for row in (*sources, *targets))
    again = gatherer.batch(rows)
    assert (again.inputs[0] == sources).all() and (again.targets_BT == targets).all()
    lengths = [objective.targets_of(n) for n in (5, 1, 0, 3)]
    assert ((targets != PAD).sum(axis=1) == lengths).all()


def test_layouts_know_how_many_targets_there_are() -> None:
    ids = np.asarray([5, 6, 7, 8, 9, 2, 5, 2, 2, *range(3, 40), 2])
    examples = DamagedExamples(ids, 2, "line", SPANS)
    layout = Lines(*line_bounds(ids, 2), 0, Size(10, 30, 30), 0)
    epoch = layout.epoch(0)
    for number in range(len(epoch)):
        for part in epoch[number].parts:
            found = Gatherer(ids, SPANS).batch(part).targets_BT
            assert (found != PAD).sum() == examples._targets(part)


@pytest.mark.parametrize("cell", ["transformer", "gru"])
@pytest.mark.parametrize("pretrain", ["spans", "infilling"])
def test_pretraining_then_a_task(cell: str, pretrain: str, tmp_path: Path) -> None:
    first = cr.train("seq2seq", LINES, tokenizer="word", pretrain=pretrain, cell=cell, steps=3, **SMALL)
    size = first.tokenizer.vocab_size
    # extra ids are no part of what is given out
    log_probs = cr.to_numpy(first.next_log_probs(first.start(1)))
    assert log_probs.shape == (1, size) and np.exp(log_probs).sum() == pytest.approx(1, abs=1e-5)
    first.save(tmp_path / "first")
    loaded = cr.load(tmp_path / "first")
    assert (cr.to_numpy(loaded.next_log_probs(loaded.start(1))) == log_probs).all()

    pairs = [(line, line[::-1]) for line in LINES]
    slow: dict[str, Any] = {"steps": 1, "learning_rate": 1e-9, "optimiser": "adamw"}
    tuned = cr.train("seq2seq", pairs, pretrained=str(tmp_path / "first"), **slow)
    assert isinstance(tuned, ConditionalModel)
    assert (tuned.settings.width, tuned.settings.cell) == (16, cell)
    assert tuned.tokenizer.words == first.tokenizer.words
    before, after = first.tensors(), tuned.tensors()
    for name, array in after.items():
        same = min(len(array), len(before[name]), size if "embedding" in name or "head" in name else len(array))
        np.testing.assert_allclose(array[:same], before[name][:same], atol=1e-5)


def test_a_pretraining_that_is_resumed_is_the_same(tmp_path: Path) -> None:
    def train(run: Path, steps: int, resume: bool = False) -> dict[str, np.ndarray]:
        settings = {**SMALL, "steps": steps, "schedule": "constant", "validate_every": 100}
        model = cr.train("seq2seq", LINES, tokenizer="word", pretrain="spans", run=run, resume=resume, **settings)
        return dict(model.tensors())

    whole = train(tmp_path / "whole", 8)
    train(tmp_path / "parts", 3)
    resumed = train(tmp_path / "parts", 8, resume=True)
    assert all((whole[name] == resumed[name]).all() for name in whole)


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="leave out --context stream"):
        cr.train("seq2seq", LINES, tokenizer="word", pretrain="spans", context="stream", steps=1)
    cr.train("ngram", LINES, order=2, tokenizer="word").save(tmp_path / "ngram")
    with pytest.raises(SettingsError, match="should be a model of the kind seq2seq, not ngram"):
        cr.train("seq2seq", [("a", "b")] * 30, pretrained=str(tmp_path / "ngram"), steps=1)
