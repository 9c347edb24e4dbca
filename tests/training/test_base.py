"""Networks on a base: which n-grams predict each token, what training begins with, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import CorpusError, SettingsError
from chainrule.networks.settings import FeedforwardSettings
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.runs.prepare import encode_parts
from chainrule.testing import check_laws
from chainrule.training.base import FOLDS, Base, BaseExamples, NextTokenOnBase, base_for, base_texts
from chainrule.training.layouts import Rows
from chainrule.training.objectives import Gatherer

NAMES = "anna bert cora dave emma finn gina hugo"
LINES = [f"{name} says that {name} is the one who is called {name}" for name in NAMES.split()] * 2
TEXT = "\n".join(sorted(LINES))  # each name stands in one fold only
HELD_OUT = ["bert says that bert is the one who is called bert", "emma says that emma is called emma"]
SMALL: dict[str, Any] = {"embedding": 8, "hidden": 16}
NETWORKS: list[tuple[str, str, dict[str, Any]]] = [
    ("lstm", "torch", SMALL),
    ("elman", "tape", SMALL),
    ("feedforward", "torch", SMALL),
    ("feedforward", "tape", SMALL | {"tied": True}),  # with a projection
    ("transformer", "torch", {"layers": 1, "width": 16, "heads": 2, "window": 16, "tied": False}),
]


def data_of(place: Path, context: Context = "line") -> TrainingData:
    parts = {"train": cr.Corpus.from_text(TEXT), "valid": cr.Corpus.from_text("\n".join(HELD_OUT))}
    tokenizer, encoded, _ = encode_parts(parts, cr.TokenizerChoice("word"), place)
    return TrainingData(tokenizer, encoded["train"], encoded["valid"], context)


def base_of(data: TrainingData) -> Base:
    found = base_for(FeedforwardSettings(base="auto"), data)
    assert found is not None
    return found


def test_no_base_has_counted_the_text_that_it_predicts(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    base = base_of(data)
    for number, lm in enumerate(base.of_folds):
        assert len(base.of_folds) == FOLDS
        own = {data.tokenizer.token(one) for one in np.unique(data.train.ids[base.folds == number])}
        name = (own & set(NAMES.split())).pop()
        counted, apart = (float(one.score(data.tokenizer.encode(name)[None])[0, 0]) for one in (base.lm, lm))
        assert apart < counted - 1


@pytest.mark.parametrize("context", ["line", "stream"])
def test_each_token_has_the_probabilities_of_its_fold(context: Context, tmp_path: Path) -> None:
    data = data_of(tmp_path, context)
    base = base_of(data)
    examples = base_texts(replace(data, base=base)).train
    assert isinstance(examples, BaseExamples)
    ids = np.asarray(examples.ids, np.int64)
    objective = NextTokenOnBase(examples.objective, ids, base.of_folds, base.folds)  # type: ignore[arg-type]
    starts, lengths, skips = (np.array(one) for one in ([0, 2, 13, 24, 9], [5, 5, 4, 5, 3], [0, 1, 0, 0, 0]))
    inputs, targets_BT = Gatherer(ids, objective).batch(Rows(starts, lengths, skips, 5, 0, 21))
    assert inputs[0].shape == targets_BT.shape == (5, 5)
    tokens = 0
    for row, start in enumerate(starts):
        for column in range(lengths[row]):
            if targets_BT[row, column] < 0:
                continue
            place = start + column
            first = 0
            if context == "line":
                first = int(np.flatnonzero(np.append(data.tokenizer.eos, ids[:place]) == data.tokenizer.eos)[-1])
            lm = base.of_folds[base.folds[place]]
            expected = lm.next_log_probs(lm.extend(lm.start(1), ids[None, first:place]))[0]
            np.testing.assert_allclose(inputs[1][row, column], np.maximum(expected, -1e4), atol=1e-5)
            tokens += 1
    assert tokens == 21


def test_a_sample_of_the_text_keeps_the_folds(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    examples = base_texts(replace(data, base=base_of(data))).train
    sample = examples.sampled(60)
    assert isinstance(examples, BaseExamples) and isinstance(sample, BaseExamples)
    of_token = dict(zip(examples.ids.tolist(), examples.folds.tolist(), strict=True))
    names = {data.tokenizer.encode(name)[0] for name in NAMES.split()}
    assert 0 < len(sample.ids) < len(examples.ids)
    for token, fold in zip(sample.ids.tolist(), sample.folds.tolist(), strict=True):
        assert token not in names or of_token[token] == fold


@pytest.fixture(scope="module")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("base") / "unigram"
    cr.train("ngram", LINES, tokenizer="word", order=1).save(folder)
    return str(folder)


@pytest.mark.parametrize(("kind", "engine", "settings"), NETWORKS)
def test_training_begins_with_the_base_and_goes_below_it(
    kind: str, engine: str, settings: dict[str, Any], unigram: str
) -> None:
    def trained(**others: Any) -> Any:
        given = {"valid": HELD_OUT, "engine": engine, "base": unigram, "batch": 64, **settings, **others}
        return cr.train(kind, "\n".join(LINES), **given)

    begun, lm = trained(steps=1, learning_rate=1e-9), trained(steps=20, learning_rate=0.02)
    begins, base, ends = (cr.evaluate(one, HELD_OUT).nats for one in (begun, begun.models[1], lm))
    assert begins == pytest.approx(base, abs=1e-5)
    assert ends < base - 0.3
    # what the loop measured is what the finished model says
    assert lm.metrics["validation_nats"] == pytest.approx(ends, abs=1e-5)


def test_a_network_on_a_base_is_a_model_as_others_are(tmp_path: Path) -> None:
    run = tmp_path / "run"
    lm = cr.train("gru", TEXT, valid=HELD_OUT, tokenizer="word", base="auto", steps=3, batch=64, run=run, **SMALL)
    check_laws(lm)
    assert lm.metrics["weights"] == [1.0, 1.0]
    lm.save(tmp_path / "model")
    again, last = cr.load(tmp_path / "model"), cr.load(run / "last")
    assert cr.evaluate(again, HELD_OUT).perplexity == cr.evaluate(lm, HELD_OUT).perplexity
    assert [one.kind for one in last.models] == ["gru", "ngram"]


def test_a_base_that_knows_the_text_is_counted_again(tmp_path: Path) -> None:
    cr.train("ngram", [TEXT, *HELD_OUT], tokenizer="word", order=2).save(tmp_path / "same")
    other = ["the one who is called anna says that nobody else is called bert or cora" for _ in range(9)]
    tokenizer = cr.load(tmp_path / "same").tokenizer
    cr.train("ngram", other, tokenizer=tokenizer, order=3).save(tmp_path / "other")
    for name, order in (("same", 2), ("other", 3)):
        folder = tmp_path / name
        lm: Any = cr.train("elman", TEXT, valid=HELD_OUT, base=str(folder), steps=1, batch=64, **SMALL)
        base, given = lm.models[1], cr.load(folder)
        assert base.settings.order == order
        assert base.tokenizer.to_json() == tokenizer.to_json()
        is_given = np.array_equal(base.tensors()["log_prob"], given.tensors()["log_prob"])
        assert is_given == (name == "other")


def test_what_cannot_be_a_base_is_refused(tmp_path: Path) -> None:
    cr.train("elman", TEXT, tokenizer="word", steps=1, engine="tape", **SMALL).save(tmp_path / "elman")
    cr.train("ngram", TEXT, tokenizer="word", smoothing="stupid-backoff").save(tmp_path / "scores")
    small: dict[str, Any] = {**SMALL, "steps": 1, "engine": "tape"}
    with pytest.raises(SettingsError, match="should be a model of the kind ngram, not elman"):
        cr.train("elman", TEXT, base=str(tmp_path / "elman"), **small)
    with pytest.raises(SettingsError, match="stupid-backoff"):
        cr.train("elman", TEXT, base=str(tmp_path / "scores"), **small)
    with pytest.raises(SettingsError, match="tokenizer of its own, word"):
        cr.train("elman", TEXT, base=str(tmp_path / "scores"), tokenizer="char", **small)
    with pytest.raises(CorpusError, match="too few lines"):
        cr.train("elman", "one line\nand another", base="auto", tokenizer="char", **small)
    with pytest.raises(SettingsError, match="leave out base or pretrained"):
        TransformerSettings(base="auto", pretrained="somewhere")
