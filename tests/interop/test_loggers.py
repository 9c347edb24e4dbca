"""Loggers get the figures of metrics.jsonl; a missing package is an error before the text is read."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import MissingExtraError, SettingsError
from chainrule.system.progress import SILENT
from chainrule.training.tracking import MetricsLog, Run
from listening import Listening

TEXT = ["the cat sat on the mat", "the dog sat on the log", "a cat saw the dog"] * 20
SMALL = {"hidden": 8, "embedding": 8, "steps": 6, "validate_every": 3, "batch": 64, "engine": "tape"}


def trained(run: Path | None, **settings: Any) -> cr.LanguageModel:
    return cr.train("elman", TEXT, run=run, **{**SMALL, **settings}, tokenizer="word")


def validations(run: Path) -> dict[int, float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {one["step"]: one["validation_loss"] for one in records if one["what"] == "validation"}


class Shaped(types.ModuleType):
    """A module in the shape of wandb."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.begun: list[dict[str, Any]] = []
        self.points: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **given: Any) -> None:
        self.begun.append(given)

    def log(self, figures: dict[str, float], step: int) -> None:
        self.points.append((step, figures))

    def finish(self) -> None:
        self.finished += 1


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_module_in_the_shape_of_wandb(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Shaped(name)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv(f"{name.upper()}_PROJECT", raising=False)
    trained(tmp_path / "model.run", logger=name)
    (begun,) = module.begun
    assert (begun["project"], begun["name"], begun["config"]["hidden"]) == ("chainrule", "model", 8)
    found = {
        step: one["validation/validation_loss"]
        for step, one in module.points
        if "validation/validation_loss" in one
    }
    assert found == validations(tmp_path / "model.run") and list(found) == [3, 6]
    assert any("steps/loss" in one and "steps/tokens" in one for _, one in module.points)
    assert [step for step, _ in module.points] == sorted(step for step, _ in module.points)
    assert module.finished == 1
    monkeypatch.setenv(f"{name.upper()}_PROJECT", "mine")
    trained(None, logger=name)
    assert (module.begun[-1]["project"], module.begun[-1]["name"], module.finished) == ("mine", "chainrule", 2)


def test_a_logger_that_fails_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Shaped):
        def log(self, figures: dict[str, float], step: int) -> None:
            raise RuntimeError("the connection\nwas lost")

    module, progress = Lost("wandb"), Listening()
    monkeypatch.setitem(sys.modules, "wandb", module)
    lm = cr.train("elman", TEXT, run=tmp_path / "run", progress=progress, logger="wandb", **SMALL, tokenizer="word")
    assert lm.metrics["steps"] == 6 and list(validations(tmp_path / "run")) == [3, 6]
    assert progress.notes.count("the logger gets no more figures: the connection was lost") == 1


def test_a_logger_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(Shaped):
        def init(self, **given: Any) -> None:
            raise RuntimeError("no account:\nlog in first")

    monkeypatch.setitem(sys.modules, "wandb", Closed("wandb"))
    with pytest.raises(SettingsError, match=r"^logger=wandb could not begin: no account: log in first$"):
        trained(None, logger="wandb")


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_loggers_are_extras(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before the text is read: there is no such file."""
    monkeypatch.setitem(sys.modules, name, None)
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff")
    with pytest.raises(MissingExtraError, match=rf"logger={name} needs {name}.*chainrule\[loggers\]"):
        cr.train("elman", text, logger=name, **SMALL, tokenizer="word")


def test_values_of_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"logger should be none\|tensorboard\|wandb\|trackio\|mlflow"):
        trained(None, logger="excel")
    with pytest.raises(SettingsError, match="logger=tensorboard is not for engine=tape"):
        trained(None, logger="tensorboard")
    engine: Any = types.SimpleNamespace(flops_per_token=lambda: 1.0, peak_flops=lambda: None)
    with pytest.raises(SettingsError, match="takes a run folder"):
        MetricsLog(engine, SILENT).open(Run(None, {}), 0, ["tensorboard"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    trained(tmp_path / "model.run", logger="mlflow")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("chainrule").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["hidden"]) == ("model", "FINISHED", "8")
    history = client.get_metric_history(run.info.run_id, "validation/validation_loss")
    assert {one.step: one.value for one in history} == pytest.approx(validations(tmp_path / "model.run"))
    with mlflow.start_run() as outer:
        trained(None, logger="mlflow")
        assert mlflow.active_run().info.run_id == outer.info.run_id
    mlflow.set_tracking_uri(None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    trained(tmp_path / "model.run", logger="wandb")
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"validation/validation_loss" in kept.read_bytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    trained(tmp_path / "model.run", logger="trackio")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "trackio").rglob("*") if path.is_file())
    assert b"validation/validation_loss" in kept
