"""Training on many processes is the training of one: real ones, which torchrun starts, on the CPU."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes_child import LSTM, MUON, TRANSFORMER

import chainrule as cr
from chainrule.errors import SettingsError
from chainrule.training.checkpoints.run_folder import checkpoint_folders
from chainrule.training.layouts import Rows, Step, Windows
from chainrule.training.layouts import Size as BatchSize

HERE = Path(__file__).parent


def torchrun(processes: int, folder: Path, scenario: str, restarts: int = 0) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    child = [f"--max-restarts={restarts}", str(HERE / "processes_child.py"), str(folder), scenario]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *child], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def assert_alike(name: str, one: cr.LanguageModel, folder: Path, rtol: float = 1e-5) -> cr.LanguageModel:
    """Hold the saved model of many processes equal to that of one, in its losses and its weights."""
    many = cr.load(folder / name)
    records = [[(r["step"], r["tokens"]) for r in lm.history.records] for lm in (one, many)]
    assert records[0] == records[1]
    for key in ("loss", "validation_loss"):
        expected = [record[key] for record in one.history.records]
        np.testing.assert_allclose([r[key] for r in many.history.records], expected, rtol=rtol, err_msg=name)
    weights = many.tensors()
    for which, array in one.tensors().items():
        np.testing.assert_allclose(weights[which], array, atol=2e-5, err_msg=f"{name} {which}")
    return many


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and trainings that one process started and two processes continued."""
    folder = tmp_path_factory.mktemp("processes")
    randomness = np.random.default_rng(5)
    words = [
        "the",
        "a",
        "cat",
        "dog",
        "mat",
        "log",
        "sat",
        "ran",
        "on",
        "under",
        "big",
        "red",
        "and",
        "then",
        "it",
        "was",
    ]
    lines = (" ".join(randomness.choice(words, randomness.integers(3, 12))) for _ in range(300))
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    cr.train(
        "transformer", folder / "corpus.txt", run=folder / "run", **{**TRANSFORMER, "steps": 4}, tokenizer="word"
    )
    cr.train(
        "lstm",
        folder / "corpus.txt",
        run=folder / "lstm-run",
        context="stream",
        **{**LSTM, "steps": 4},
        tokenizer="word",
    )
    torchrun(2, folder, "two")
    return folder


@pytest.mark.slow
def test_a_killed_process_costs_nothing_but_time(folder: Path) -> None:
    torchrun(2, folder, "killed", restarts=1)
    one = cr.train("transformer", folder / "corpus.txt", **TRANSFORMER, tokenizer="word")
    many = assert_alike("killed", one, folder)
    assert many.metrics["earlier_seconds"] > 0  # it went on, and did not begin anew
    steps = [
        record["step"] for record in cr.training.curves(folder / "killed.run").records if record["what"] == "steps"
    ]
    assert steps[-1] == 12
    assert len(list(checkpoint_folders(folder / "killed.run"))) == 2


def test_sharded_training_is_that_of_one_process(folder: Path) -> None:
    assert_alike("muon", cr.train("transformer", folder / "corpus.txt", **MUON, tokenizer="word"), folder)


def test_a_memory_is_carried_on_by_the_process_of_its_row(folder: Path) -> None:
    assert_alike(
        "lstm", cr.train("lstm", folder / "corpus.txt", context="stream", **LSTM, tokenizer="word"), folder
    )


@pytest.mark.parametrize("what", ["data", "settings"])
def test_processes_with_different_settings_are_refused_once(what: str, folder: Path) -> None:
    (first, is_reported), (second, is_reported_too) = (
        json.loads((folder / f"refused-{number}.json").read_text())[what] for number in (0, 1)
    )
    assert (is_reported, is_reported_too) == (False, True)
    expected = {
        "data": "process 1 has another text than process 0 (corpus, held-out text, tokenizer)",
        "settings": "process 1 has other settings than process 0: clip=2.0, not 1.0",
    }
    assert first == second == f"{expected[what]}: the same command and the same text are wanted everywhere"


def test_what_two_processes_have_sharded_goes_on_in_one(folder: Path) -> None:
    """A training that one process began, and two went on with."""
    sharded = checkpoint_folders(folder / "run")[0]
    assert {path.name for path in (sharded / "shards").iterdir()} == {".metadata", "__0_0.distcp", "__1_0.distcp"}
    shutil.copytree(folder / "run", folder / "run-alone")
    cr.resume(folder / "run-alone", steps=12, parallel="ddp").save(folder / "alone")
    assert_alike("alone", in_three(folder, "transformer", TRANSFORMER), folder)


@pytest.mark.slow
def test_a_training_goes_on_with_another_number_of_processes(folder: Path) -> None:
    """By one, by two with sharded weights, by three with whole ones."""
    torchrun(3, folder, "three")
    assert_alike("run-of-three", in_three(folder, "transformer", TRANSFORMER), folder)
    assert_alike("lstm-run-of-three", in_three(folder, "lstm", LSTM, context="stream"), folder)


def in_three(folder: Path, kind: str, settings: dict[str, Any], **more: Any) -> cr.LanguageModel:
    """The model of one process that was stopped and made longer twice."""
    run = folder / f"{kind}-of-one"
    shutil.rmtree(run, ignore_errors=True)
    cr.train(kind, folder / "corpus.txt", run=run, **{**settings, "steps": 4}, **more, tokenizer="word")
    cr.resume(run, steps=8)
    return cr.resume(run, steps=12)


def test_settings_that_many_processes_do_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    text = "a b\nb a\n" * 5
    with pytest.raises(SettingsError, match="the kind 'ngram' is trained by one process: leave out torchrun"):
        cr.train("ngram", text, tokenizer="word")
    with pytest.raises(SettingsError, match="engine=tape trains in one process: set engine=torch"):
        cr.train("lstm", text, engine="tape", tokenizer="word")
    with pytest.raises(SettingsError, match="compile=yes is not for parallel=fsdp"):
        cr.train("transformer", text, parallel="fsdp", compile="yes", tokenizer="word")
    with pytest.raises(SettingsError, match="sample_every is not for parallel=fsdp"):
        cr.train("transformer", text, parallel="fsdp", sample_every=1, tokenizer="word")


@pytest.mark.parametrize("processes", [2, 3, 64])
def test_the_shares_of_all_processes_are_the_batch(processes: int) -> None:
    step = Windows(1000, BatchSize(10, 200, 80), seed=1).epoch(0)[0]
    rows = [part.every(number, processes) for part in step.parts for number in range(processes)]
    assert all(len(one.starts_B) for one in rows)  # of 64 processes, most have an empty row
    starts = np.concatenate([one.starts_B[one.lengths_B > 0] for one in rows])
    assert sorted(starts) == sorted(np.concatenate([part.starts_B for part in step.parts]))
    assert Step(rows[:1], of=step.targets).targets == step.targets == sum(one.targets for one in rows)
    assert not Rows(*(np.ones(1, int),) * 3, 4).every(1, 2).targets


def test_one_file_knows_of_many_processes_and_imports_it_only_for_them() -> None:
    source = Path(cr.__file__).parent
    naming = [path for path in source.rglob("*.py") if "torch.distributed" in path.read_text()]
    knowing = [path for path in naming if "torch.distributed" in _imports(path, ast.walk)]
    assert knowing == [source / "training" / "parallel.py"]
    assert not {"torch", "torch.distributed"} & _imports(knowing[0], lambda tree: tree.body)


def _imports(path: Path, nodes: Any) -> set[str]:
    """The modules that a file imports, those of torch.distributed by that name."""
    found = set()
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {"torch.distributed" if name.startswith("torch.distributed") else name for name in found}
