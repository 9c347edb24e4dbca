"""The curves of a training, from its run folder, its model and its model folder."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import FolderError

TEXT = "i love cats\ni love dogs\ncats chase mice\n" * 9
SMALL: dict[str, Any] = {
    "engine": "tape",
    "steps": 6,
    "validate_every": 2,
    "hidden": 4,
    "embedding": 4,
    "batch": 32,
}


def test_a_model_remembers_each_validation(tmp_path: Path) -> None:
    lm = cr.train("elman", TEXT, valid="cats love mice\n", **SMALL, tokenizer="word")
    columns = lm.history.columns()
    assert columns["step"] == [2, 4, 6]
    assert columns["validation_loss"][-1] < columns["validation_loss"][0]
    assert min(columns["validation_loss"]) == lm.metrics["validation_nats"]
    lm.save(tmp_path / "model")
    assert cr.load(tmp_path / "model").history == lm.history
    assert cr.training.curves(tmp_path / "model") == lm.history
    assert "3 records (metrics.json has them)" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_run_folder_has_every_measurement(tmp_path: Path) -> None:
    cr.train("elman", TEXT, valid="cats love mice\n", run=tmp_path / "run", **SMALL, tokenizer="word")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"what": "steps", "st')  # cut short by a crash
    curves = cr.training.curves(tmp_path / "run")
    kinds = [record["what"] for record in curves.records]
    assert kinds.count("validation") == 3 and kinds.count("steps") >= 3
    assert set(kinds) == {"steps", "validation"}
    assert all(record["grad_norm"] > 0 for record in curves.records if record["what"] == "steps")
    assert repr(curves).startswith(f"<Curves of {len(curves)} measurements: what, step,")


def test_a_csv_file_needs_no_pandas(tmp_path: Path) -> None:
    curves = cr.train("elman", TEXT, valid="cats love mice\n", **SMALL, tokenizer="word").history
    curves.to_csv(tmp_path / "curves.csv")
    with (tmp_path / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [2, 4, 6]
    assert [float(row["loss"]) for row in rows] == curves.columns()["loss"]


def test_a_frame_has_the_same_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    cr.train("elman", TEXT, valid="cats love mice\n", run=tmp_path / "run", **SMALL, tokenizer="word")
    curves = cr.training.curves(tmp_path / "run")
    frame = curves.to_frame()
    assert len(frame) == len(curves)
    validations = frame[frame["what"] == "validation"]
    assert validations["step"].tolist() == [2, 4, 6]
    assert pandas.api.types.is_float_dtype(frame["validation_loss"])  # NaN where there is none


def test_what_has_no_curves_says_so(tmp_path: Path) -> None:
    lm = cr.train("ngram", TEXT, order=2, tokenizer="word")
    assert len(lm.history) == 0
    lm.save(tmp_path / "model")
    with pytest.raises(FolderError, match="this model has no training curves"):
        cr.training.curves(tmp_path / "model")
    with pytest.raises(FolderError, match=r"neither a run folder .* nor a model folder"):
        cr.training.curves(tmp_path)
