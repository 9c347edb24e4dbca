"""What a run shows of itself."""

from __future__ import annotations

import io
import json
import sys
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from trainables import Bigram, data, seeded, train

from chainrule.errors import MissingExtraError, SettingsError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.system.devices import peak_flops
from chainrule.system.progress import SILENT
from chainrule.system.progress.bars import VisibleProgress
from chainrule.training import loop, tracking
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.tracking import MetricsLog, Run
from listening import Listening


def settings(**values: Any) -> TrainingSettings:
    return parse(TrainingSettings, {"batch": 64, "steps": 12, "precision": "float32", **values})


def engine() -> TorchEngine:
    return TorchEngine(seeded(Bigram), settings(), "cpu")


@pytest.fixture
def without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are read where there is a reason to, not also because a second has gone by."""
    monkeypatch.setattr(loop, "READ_SECONDS", float("inf"))


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("without_a_clock")
def test_a_run_leaves_its_measurements(tmp_path: Path) -> None:
    chosen = settings(validate_every=4, sample_every=2)
    trained = train(
        seeded(Bigram),
        chosen,
        data(run=tmp_path),
        sample=lambda: "some text",
    )
    found = records(tmp_path)
    by_kind = {what: [record for record in found if record["what"] == what] for what in (r["what"] for r in found)}
    decided = {"step": 0, **asdict(trained.state.decisions), "settings": asdict(chosen)}
    assert by_kind["decisions"] == [{"what": "decisions", **decided}]
    assert [{**record, "what": None} for record in by_kind["validation"]] == [
        {**record, "what": None} for record in trained.state.history
    ]
    assert [record["step"] for record in by_kind["steps"]] == [4, 8, 12]
    for record in by_kind["steps"]:
        names = {"what", "step", "tokens", "seconds", "loss", "learning_rate", "grad_norm", "tokens_per_second"}
        assert record.keys() == names | {"mfu", "memory_bytes"}
        assert record["mfu"] is None
        assert record["memory_bytes"] > 1e6
    assert by_kind["sample"] == [{"what": "sample", "step": 8, "text": "some text"}]


@pytest.mark.usefixtures("without_a_clock")
def test_losses_are_read_now_and_then_only(tmp_path: Path) -> None:
    """Reading waits for the device: without a validation, once for twelve fast steps."""
    train(seeded(Bigram), settings(validate_every=12), data(run=tmp_path))
    assert [record["step"] for record in records(tmp_path) if record["what"] == "steps"] == [12]


@pytest.mark.usefixtures("without_a_clock")
def test_figures_stand_beside_the_bar() -> None:
    listening = Listening()
    train(seeded(Bigram), settings(validate_every=6), data(progress=listening))
    assert listening.done == 12 and listening.tasks == [("training", 12, "steps")]
    assert listening.shown[0].startswith("loss 2.")
    assert "validation" not in listening.shown[0]
    assert "validation 2." in listening.shown[1]
    assert "tokens/s" in listening.shown[1]
    assert "GB" in listening.shown[1]


def test_what_was_measured_after_the_checkpoint_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"what": "steps", "step": 5}\n{"what": "steps", "step": 9}\nnonsense\n{"what": "st', encoding="utf-8"
    )
    log = MetricsLog(engine(), SILENT)
    log.open(Run(tmp_path, {}, 7), 0)
    log.record("steps", {"step": 8})
    log.close()
    assert [record["step"] for record in records(tmp_path)] == [5, 8]


def test_measurements_that_cannot_be_written_do_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(values: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tracking, "to_json", full)
    listening = Listening()
    log = MetricsLog(engine(), listening)
    log.open(Run(tmp_path, {}, 0), 0)
    log.record("sample", {"step": 1, "text": ""})
    log.record("sample", {"step": 2, "text": ""})
    log.close()
    assert listening.notes == ["measurements are no longer written: [Errno 28] No space left on device"]


def test_tensorboard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"needs tensorboard.*chainrule\[tensorboard\]"):
        train(seeded(Bigram), settings(tensorboard=True), data(run=tmp_path))
    with pytest.raises(SettingsError, match="takes a run folder"):
        train(seeded(Bigram), settings(tensorboard=True), data())


def test_tensorboard_gets_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            assert folder == str(tmp_path / "tensorboard")
            points.append(("hidden from", purge_step or 0))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            points.append((name, step))

        def close(self) -> None:
            points.append(("closed", 0))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    train(seeded(Bigram), settings(validate_every=12, tensorboard=True), data(run=tmp_path))
    assert ("steps/loss", 12) in points
    assert ("validation/validation_loss", 12) in points
    assert (points[0], points[-1]) == (("hidden from", 0), ("closed", 0))
    log = MetricsLog(engine(), SILENT)
    log.open(Run(tmp_path, {}, 5), 0, ["tensorboard"])
    log.close()
    assert points[-2] == ("hidden from", 6)  # what was measured after the checkpoint


def test_operations_of_a_token() -> None:
    """6 for each weight but those of the embedding: 6·6 + 6 hidden ones, 6·11 + 11 of the head.

    A network may know better than its size tells.
    """
    one = engine()
    assert one.flops_per_token() == 6 * (6 * 6 + 6 + 6 * 11 + 11)
    one.network.flops_per_token = lambda: 7.0  # type: ignore[method-assign]
    assert one.flops_per_token() == 7


@pytest.mark.parametrize(
    ("name", "expected"),
    [("NVIDIA H200", 989e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA A10", None), ("NVIDIA T4", None)],
)
def test_peaks_of_devices(name: str, expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda")) == expected
    assert peak_flops(torch.device("cpu")) is None
    monkeypatch.setattr(one := engine(), "torch_device", torch.device("cuda"))
    assert one.peak_flops() == expected


def test_model_flops_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 tokens in a second at 714 operations each are a tenth of 7.14e6 a second."""
    monkeypatch.setattr(TorchEngine, "peak_flops", lambda self: 7.14e6)
    moments = iter([0.0, 1.0])
    monkeypatch.setattr("chainrule.training.tracking.time.perf_counter", lambda: next(moments))
    listening = Listening()
    log = MetricsLog(engine(), listening)
    log.steps(listening, {"step": 1, "tokens": 1000, "loss": 1.0})
    assert "1,000 tokens/s  MFU 10%" in listening.shown[0]


def test_a_terminal_shows_the_figures() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100)
    progress = VisibleProgress(terminal)
    with progress.task("training", 10, "steps") as task:
        task.show("loss 1.234")
        shown = Console(file=io.StringIO(), width=100)
        shown.print(progress.bars.get_renderable())
    assert isinstance(shown.file, io.StringIO)
    bar, figures = shown.file.getvalue().splitlines()
    assert bar.startswith("training ")
    assert figures == "loss 1.234"
