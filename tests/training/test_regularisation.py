"""Regularisation as it is needed: its strength follows the overfitting that a run measures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.contract.kinds import find_kind
from chainrule.networks.config import regularisers, weakened
from chainrule.networks.recurrent.settings import LstmSettings
from chainrule.networks.regularise import regularise
from chainrule.networks.settings import FeedforwardSettings
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.regularisation import MUCH, Overfitting
from stopping import interrupted

ENGINES = [pytest.param("torch", id="torch"), "tape"]
SMALL = {"hidden": 32, "embedding": 16, "layers": 1, "batch": 128, "learning_rate": 0.02, "input_dropout": 0.3}


def random_lines(count: int, seed: int = 0) -> list[str]:
    """Lines without any rule, which can only be learned by heart."""
    draw = random.Random(seed)
    return ["".join(draw.choice("abcdefgh") for _ in range(12)) for _ in range(count)]


def ruled_lines(count: int) -> list[str]:
    """Lines of which all letters follow from the first."""
    return ["".join(chr(ord("a") + (start + i) % 8) for i in range(12)) for start in range(count)]


def strengths(lines: list[str], held_out: list[str], folder: Path, engine: str, **settings: Any) -> list[float]:
    """Train a small LSTM, and return the strengths of its regularisation, one for each measurement."""
    chosen = {**SMALL, "engine": engine, "regularise": "as-needed", "epochs": 12, **settings}
    cr.train("lstm", lines, valid=held_out, tokenizer="char", run=folder, **chosen)
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [record["strength"] for record in records if record["what"] == "regularisation"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_learns_by_heart_is_regularised(engine: str, tmp_path: Path) -> None:
    found = strengths(random_lines(40), random_lines(200, seed=1), tmp_path / "run", engine, epochs=40)
    assert found[0] == 0 and found[-1] == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_learns_a_rule_is_not_regularised(engine: str, tmp_path: Path) -> None:
    found = strengths(ruled_lines(96), ruled_lines(48), tmp_path / "run", engine)
    assert len(found) >= 3 and found[-1] == 0 and max(found) < 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_is_resumed_goes_on_with_its_strength(engine: str, tmp_path: Path) -> None:
    """An interrupted run ends with the same weights to the last bit, although the strength changed before."""

    def trained(folder: str, **more: Any) -> dict[str, np.ndarray]:
        settings = {**SMALL, "engine": engine, "regularise": "as-needed", "epochs": 40}
        lines, held_out = random_lines(40), random_lines(200, seed=1)
        lm = cr.train("lstm", lines, valid=held_out, tokenizer="char", run=tmp_path / folder, **settings, **more)
        return lm.tensors()

    whole = trained("whole")
    steps = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    changed = next(record["step"] for record in steps if record.get("strength", 0) == 1)
    with interrupted(changed + 3):
        trained("parts")
    for name, weight in trained("parts", resume=True).items():
        np.testing.assert_array_equal(weight, whole[name])


def test_the_engine_gets_each_change_of_the_strength(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing where it stays: steps that were captured go on."""
    given: list[float] = []
    monkeypatch.setattr(TorchEngine, "regularise", lambda self, strength: given.append(strength))
    measured = iter([0.0, 0.5, 0.5, 1.0])

    def next_one(self: Overfitting, gap: float, epoch: int) -> float:
        self.next_epoch, self.strength = epoch + 1, next(measured, 1.0)
        return self.strength

    monkeypatch.setattr(Overfitting, "measured", next_one)
    assert strengths(ruled_lines(32), ruled_lines(8), tmp_path / "run", "torch", epochs=5)[:4] == [0, 0.5, 0.5, 1]
    assert given == [0, 0.5, 1, 1]  # the last: what the network is left with


def test_dropout_that_the_user_sets_is_there_from_the_beginning() -> None:
    assert LstmSettings().leaves_regularisation_open
    assert TransformerSettings().leaves_regularisation_open
    assert not TransformerSettings(dropout=0.2).leaves_regularisation_open
    assert not FeedforwardSettings(dropout=0.0).leaves_regularisation_open


def test_a_network_is_trained_with_shares_that_are_weaker_and_ends_with_its_own() -> None:
    torch_network = cr.train("lstm", ruled_lines(20), tokenizer="char", engine="torch", steps=2, **SMALL).network
    tape_network = cr.train("lstm", ruled_lines(20), tokenizer="char", engine="tape", steps=2, **SMALL).network
    assert torch_network.input_dropout.share == tape_network.config.input_dropout == 0.3


KINDS = ("feedforward", "bagofwords", "elman", "lstm", "gru", "qrnn", "transformer")


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in regularisers(find_kind(kind).settings())]
)
def test_at_strength_0_nothing_of_a_network_is_regularised(kind: str, name: str) -> None:
    """Each dropout and each penalty changes the loss of training, and changes nothing at strength 0."""
    others = dict.fromkeys(regularisers(find_kind(kind).settings()), 0.0)
    sizes = {"width": 16, "heads": 2} if kind == "transformer" else {"embedding": 8, "hidden": 16}
    settings = {**others, name: 0.5, "layers": 2, "batch": 64, **sizes}
    network = cr.train(kind, ruled_lines(8), tokenizer="char", engine="torch", steps=1, **settings).network
    inputs_BT = torch.randint(1, 8, (4, 12))

    def loss(strength: float) -> float:
        regularise(network, strength)
        with torch.no_grad():
            found = network.train().loss(inputs_BT, inputs_BT)
        return float(found.nats + (found.penalty or 0.0))

    assert loss(0.0) == loss(0.0)
    assert len({loss(0.0), loss(1.0), loss(1.0), loss(1.0)}) > 1


PAIRS = [(f"a b {i % 7}", f"{i % 7} b a") for i in range(40)]
LABELLED = [(f"a b {i}", "even" if i % 2 == 0 else "odd") for i in range(40)]
TAGGED = ["the/DET cat/NOUN sat/VERB", "a/DET dog/NOUN ran/VERB"] * 20


@pytest.mark.parametrize(
    ("kind", "examples", "settings"),
    [
        ("seq2seq", PAIRS, {"cell": "transformer", "width": 16, "heads": 2, "label_smoothing": 0.2}),
        ("seq2seq", PAIRS, {"cell": "gru", "width": 16, "label_smoothing": 0.2}),
        ("classifier", LABELLED, {"encoder": "lstm", "width": 16, "embedding": 8}),
        ("classifier", LABELLED, {"encoder": "bagofwords", "width": 16, "embedding": 8}),
        ("classifier", LABELLED, {"encoder": "transformer", "width": 16, "heads": 2}),
        ("tagger", TAGGED, {"cell": "lstm", "width": 16, "embedding": 8, "spelling": 8}),
        ("tagger", TAGGED, {"cell": "transformer", "width": 16, "heads": 2, "embedding": 8, "spelling": 8}),
        ("masked", ruled_lines(400), {"width": 16, "heads": 2}),
    ],
)
def test_a_run_that_does_not_overfit_is_not_regularised(kind: str, examples: Any, settings: dict[str, Any]) -> None:
    """Until the first measurement, a run with dropout as needed is the run without dropout, to the last bit."""
    shares = dict.fromkeys(regularisers(find_kind(kind).settings()), 0.3)
    for name in ("word_dropout", "split_dropout"):  # these change the text that is read
        shares.pop(name, None)
    usual = {"layers": 2, "batch": 64, "steps": 2, "learning_rate": 0.01, "weight_decay": 0.1, "average": "none"}

    def trained(**changes: Any) -> dict[str, np.ndarray]:
        values = {**usual, **settings, **changes}
        return cr.train(kind, examples, **values).tensors()

    needed = trained(**shares, regularise="as-needed")
    never = trained(**dict.fromkeys(shares, 0.0))
    always = trained(**shares, regularise="always")
    assert all(np.array_equal(needed[name], never[name]) for name in never)
    assert not all(np.array_equal(always[name], never[name]) for name in never)


def test_weaker_settings_have_weaker_dropout_and_penalties_only() -> None:
    full = LstmSettings(input_dropout=0.4, alpha=2.0, hidden=8, warmup=0.2)
    half = weakened(full, 0.5)
    assert (half.input_dropout, half.alpha, half.hidden, half.warmup) == (0.2, 1.0, 8, 0.2)
    assert weakened(full, 1.0) == full
    assert "weight_dropout" in regularisers(full) and "weight_decay" not in regularisers(full)


def test_the_strength_rises_at_once_and_falls_slowly() -> None:
    run = Overfitting(strength=0.0)
    assert [run.measured(gap, epoch) for epoch, gap in enumerate([0.0, 2 * MUCH, 0.0, 0.0])] == [0, 1, 0.75, 0.5]
