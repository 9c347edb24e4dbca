"""`chainrule train --resume` and `chainrule.train(run=..., resume=True)`: the run folder, from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import chainrule as cr
from chainrule.cli.main import main
from chainrule.contract import kinds
from chainrule.errors import SettingsError
from chainrule.runs import train as pipeline
from chainrule.runs.train import train_kind
from plugin import PLUGIN
from stopping import interrupted, stopping

sys.path.insert(0, str(PLUGIN))  # whose bigram model the kind below makes of its network

SET = ["--set", "steps=12", "--set", "batch=64", "--set", "sample_every=2", "--set", "precision=float32"]


@pytest.fixture(autouse=True)
def tiny_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds._BUILT_IN, "tiny", "tiny_kind:KIND")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"line {i % 7} of a text with {i % 3} cats\n" for i in range(60)), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[Any, str]:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    signal.signal(signal.SIGTERM, before)
    return ended.value.code, capsys.readouterr().err


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_was_stopped_goes_on(
    number: int, code: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out, whole = tmp_path / "model", tmp_path / "whole"
    assert run(capsys, "train", "tiny", corpus, "--out", whole, *SET)[0] == 0
    with monkeypatch.context() as patched:
        stopping(patched, 5, number=number)
        found, said = run(capsys, "train", "tiny", corpus, "--out", out, *SET)
    assert found == code
    assert f"stopped after step 5 of 12; go on with: chainrule resume {out}.run (in Python, resume(" in said
    assert not out.exists()
    refused = run(capsys, "train", "tiny", corpus, "--out", out, *SET)
    assert refused[0] == 2
    assert "can be resumed" in refused[1]
    assert run(capsys, "train", "tiny", corpus, "--out", out, *SET, "--resume")[0] == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert sorted(path.name for path in Path(f"{out}.run").iterdir()) == ["metrics.jsonl", "run.json"]


def test_overwriting_begins_anew(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out, own = tmp_path / "model", tmp_path / "own"
    with monkeypatch.context() as patched:
        stopping(patched, 5)
        run(capsys, "train", "tiny", corpus, "--out", out, *SET, "--run", own)
    assert (own / "checkpoints").exists()
    assert run(capsys, "train", "tiny", corpus, "--out", out, *SET, "--run", own, "--overwrite")[0] == 0
    assert records(own / "metrics.jsonl")[0]["step"] == 0
    assert not (own / "checkpoints").exists()


@pytest.mark.parametrize("wrong", [["--set", "stepz=3"], ["--held-out", "nowhere.txt"]], ids=str)
def test_a_mistake_costs_no_training(
    wrong: list[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "model"
    with monkeypatch.context() as patched:
        stopping(patched, 5)
        run(capsys, "train", "tiny", corpus, "--out", out, *SET)
    assert run(capsys, "train", "tiny", corpus, "--out", out, *SET, "--overwrite", *wrong)[0] != 0
    assert (tmp_path / "model.run" / "checkpoints" / "step-000005").is_dir()


def test_a_kind_that_keeps_no_run_makes_no_folder(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "model"
    assert run(capsys, "train", "ngram", "--tokenizer", "word", corpus, "--out", out)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "model"]
    for option, expected in (("--resume", "cannot be resumed"), ("--keep", "no checkpoints to --keep")):
        code, said = run(
            capsys, "train", "ngram", "--tokenizer", "word", corpus, "--out", tmp_path / "other", option
        )
        assert code == 2
        assert expected in said


def test_what_is_kept_can_be_made_longer(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    out, whole = tmp_path / "model", tmp_path / "whole"
    constant = [*SET, "--set", "schedule=constant", "--set", "warmup=0", "--set", "validate_every=4"]
    longer = [*constant, "--set", "steps=20"]
    assert run(capsys, "train", "tiny", corpus, "--out", whole, *longer)[0] == 0
    code, said = run(capsys, "train", "tiny", corpus, "--out", whole, *longer, "--resume")
    assert code == 2
    assert "nothing is left to resume (a training with --keep" in said
    assert run(capsys, "train", "tiny", corpus, "--out", out, *constant, "--keep")[0] == 0
    assert (
        "and then replace it, add --overwrite"
        in run(capsys, "train", "tiny", corpus, "--out", out, *longer, "--resume")[1]
    )
    assert run(capsys, "train", "tiny", corpus, "--out", out, *longer, "--resume", "--overwrite")[0] == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert sorted(path.name for path in Path(f"{out}.run").iterdir()) == ["metrics.jsonl", "run.json"]


def test_the_same_in_python(corpus: Path, tmp_path: Path) -> None:
    with interrupted(5):
        cr.train("tiny", corpus, run=tmp_path / "run", steps=12)
    with pytest.raises(SettingsError, match="can be resumed"):
        cr.train("tiny", corpus, run=tmp_path / "run", steps=12)
    lm = cr.train("tiny", corpus, run=tmp_path / "run", resume=True, steps=12)
    assert lm.metrics["steps"] == 12
    with pytest.raises(SettingsError, match="needs the run folder"):
        cr.train("tiny", corpus, resume=True)


def test_the_time_before_counts(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted(5):
        cr.train("gru", corpus, run=tmp_path / "run", steps=12, hidden=8, embedding=4, tokenizer="word")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    earlier = json.loads((checkpoint / "state.json").read_text())["state"]["seconds"]
    lm = cr.train(
        "gru", corpus, run=tmp_path / "run", resume=True, steps=12, hidden=8, embedding=4, tokenizer="word"
    )
    assert lm.metrics["earlier_seconds"] == pytest.approx(earlier, abs=1e-3)
    assert (
        "earlier_seconds" not in cr.train("gru", corpus, steps=1, hidden=8, embedding=4, tokenizer="word").metrics
    )

    def after_an_hour(settings: Any, data: kinds.TrainingData) -> cr.LanguageModel:
        lm.metrics = {"earlier_seconds": 3600.0}
        return lm

    kind, moments = replace(kinds.find_kind("gru"), train=after_an_hour), iter([9.0, 10.0, 12.5])
    monkeypatch.setattr(pipeline, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    found = train_kind(kind, kind.settings(), cr.Corpus.open(corpus)).metrics
    assert (found["training_seconds"], found["seconds"]) == (3602.5, 3603.5)


def test_a_file_is_no_run_folder(corpus: Path) -> None:
    with pytest.raises(SettingsError, match=r"corpus\.txt is a file: checkpoints .* are kept in a folder"):
        cr.train("tiny", corpus, run=corpus)


def test_training_room_needs_no_torch_to_be_found() -> None:
    """`chainrule train` of an n-gram model never waits for torch."""
    rooms = "chainrule.runs.train, chainrule.networks.training_settings, chainrule.cli.verbs.train"
    script = f"import sys, {rooms}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
