"""`chainrule train classifier` and `bayes`, `classify`, `evaluate` and `compare` of classifiers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .running import TRAIN_NGRAM, Fails, Run, sets

ROWS = [("the cat sees a dog", "en"), ("die Katze sieht den Hund", "de"), ("a dog", "en"), ("der Hund", "de")] * 8
SET = sets("steps=3", "width=8", "layers=1", "embedding=4", "batch=64")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"body": text, "lang": label}) + "\n" for text, label in ROWS))
    return path


@pytest.fixture
def bayes(records: Path, tmp_path: Path, run: Run) -> Path:
    out = tmp_path / "bayes"
    done = run("train", "bayes", records, "--field", "body", "--label-field", "lang", "--out", out)
    assert done.code == 0, done.err
    assert "trained on 32 texts" in done.out
    return out


def test_texts_are_classified(bayes: Path, records: Path, tmp_path: Path, run: Run) -> None:
    label, probability, text = run("classify", bayes, "the dog sees").out.strip().split("\t")
    assert (label, text) == ("en", "the dog sees") and 0.5 < float(probability) <= 1
    (tmp_path / "text").write_text("a cat\n\nder Hund\n")
    assert run("classify", bayes, tmp_path / "text", "--format", "label").out.split() == ["en", "de"]
    lines = run("classify", bayes, records, "--field", "body", "--format", "json").out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["label"] for one in found] == [label for _, label in ROWS]
    assert set(found[0]["log_probs"]) == {"de", "en"} and max(found[0]["log_probs"].values()) <= 0


def test_a_classifier_is_evaluated(bayes: Path, records: Path, tmp_path: Path, run: Run) -> None:
    plain = tmp_path / "test.txt"
    plain.write_text("".join(f"{label}\t{text}\n" for text, label in ROWS))
    of_records = run("evaluate", bayes, records, "--field", "body", "--label-field", "lang", "--json").json
    assert of_records == run("evaluate", bayes, plain, "--json").json
    assert (of_records["accuracy"], of_records["texts"], of_records["baseline"]) == (1.0, 32, 0.5)
    assert set(of_records["intervals"]) == {"accuracy", "macro_f1"}
    plain.write_text("en\tder Hund\nde\tder Hund\n")
    out = run("evaluate", bayes, plain).out
    assert "macro F1" in out and "calibration error" in out and "right \\ given" in out and "en as de 1" in out


def test_a_network_is_trained_and_compared(records: Path, tmp_path: Path, run: Run) -> None:
    fields = ("--field", "body", "--label-field", "lang")
    done = run("train", "classifier", records, *fields, "--out", tmp_path / "net", *SET)
    assert done.code == 0 and "perplexity of labels" in done.out
    found = run(
        "compare", "--task", "classification", records, *fields, "--kind", "bayes", "--out", tmp_path / "ladder"
    )
    assert found.code == 0 and "majority" in found.out and "ECE" in found.out and "chainrule classify" in found.out


def test_wrong_input_is_one_clear_line(bayes: Path, records: Path, tmp_path: Path, run: Run, fails: Fails) -> None:
    new = ("--out", tmp_path / "new")
    told = fails("train", "bayes", records, "--field", "body", *new)
    assert 'there is no field "label"; there are: body, lang' in told and "--label-field" in told
    (tmp_path / "plain.txt").write_text("no label\n")
    assert "line 1: expected a label, a tab and a text" in fails("train", "bayes", tmp_path / "plain.txt", *new)
    (tmp_path / "plain.txt").write_text("en\tone\nen\ttwo\n")
    told = fails("train", "bayes", tmp_path / "plain.txt", *new)
    assert "every text has the label 'en': a classifier needs two labels" in told
    (tmp_path / "plain.txt").write_text("en\tone\nde\t\n")
    assert "line 2: the text is empty" in fails("train", "bayes", tmp_path / "plain.txt", *new)
    told = fails("train", "ngram", records, "--field", "body", "--label-field", "lang", *new)
    assert "--label-field is for models that classify texts" in told
    assert "kind bayes classifies texts: use chainrule classify" in fails("generate", bayes)
    run(*TRAIN_NGRAM, records, "--field", "body", "--out", tmp_path / "lm")
    assert "kind ngram predicts text: use chainrule generate" in fails("classify", tmp_path / "lm", "a text")
