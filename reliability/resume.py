"""Trainings with dropout that are killed after a random step and resumed: the same model, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.contract import kinds
from chainrule.training.loop import Loop

from .controls import broken
from .frame import Trial
from .models import KINDS, trained

STEPS = 8
TRAINED = [name for name in KINDS if name not in ("ngram", "anygram", "mixture", "table", "bayes")]
PROCESSES = "torchrun, 2 processes"


def _settings(kind: str) -> dict[str, Any]:
    """Settings with dropout and a checkpoint after every step."""
    names = {field for field in kinds.find_kind(kind).settings.__dataclass_fields__ if field.endswith("dropout")}
    dropouts = {name: 0.2 for name in names if "attention" not in name}
    return {**dropouts, "steps": STEPS, "checkpoint_minutes": 0.0, "batch": 32, "precision": "float32"}


def run(trial: Trial) -> None:
    """Kill and resume a training of each kind in turn, some of them of two processes."""
    names = trial.chosen([*TRAINED, PROCESSES])
    if trial.small and PROCESSES in names:
        names.remove(PROCESSES)  # it takes half a minute
    whole: dict[str, dict[str, np.ndarray]] = {}
    for number in trial:
        name = names[number % len(names)]
        at, seed = trial.random.randrange(1, STEPS), number // len(names) % 3
        if name == PROCESSES:
            trial.note(name, _of_processes(at))
            continue
        key = f"{name} {seed}"
        if key not in whole:
            whole[key] = _tensors(trained(name, **_settings(name), seed=seed))
        trial.note(name, _killed_and_resumed(name, at, seed, whole[key]))


def _tensors(model: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in model.tensors().items()}


def _killed_and_resumed(kind: str, at: int, seed: int, whole: dict[str, np.ndarray]) -> str | None:
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        place = Path(folder) / "run"
        # a process of its own: one that is forked may wait for ever for threads of torch, which only its parent has
        command = [sys.executable, "-m", "reliability.resume", kind, str(place), str(at), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            return f"it was not killed at step {at}: {done.returncode}: {done.stderr[-300:]}"
        resumed = _tensors(trained(kind, **_settings(kind), seed=seed, run=place, resume=True))
    return _difference(whole, resumed, at)


def _kill_after(step: int) -> None:
    between = Loop._between_steps

    def killing(self: Any, task: Any) -> None:
        between(self, task)
        if self.state.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Loop._between_steps = killing  # type: ignore[method-assign]


def _difference(whole: dict[str, np.ndarray], resumed: dict[str, np.ndarray], at: int) -> str | None:
    if whole.keys() != resumed.keys():
        return "other arrays"
    differing = [name for name, array in whole.items() if array.tobytes() != resumed[name].tobytes()]
    return f"killed after step {at}: {', '.join(differing[:3])} differ" if differing else None


# -- two processes ----------------------------------------------------------------------------------------


def _of_processes(at: int) -> str | None:
    """The same of a Transformer that torchrun trains on two processes, both of which are killed."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        for name, step in (("whole", 0), ("killed", at), ("killed", 0)):
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            done = subprocess.run(
                [*command, "-m", "reliability.resume", PROCESSES, str(Path(folder) / name), str(step), "0"],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if (done.returncode == 0) != (step == 0):
                return f"{name}, step {step}: exit code {done.returncode}: {done.stderr[-300:]}"
        whole, killed = (dict(np.load(Path(folder) / f"{name}.npz")) for name in ("whole", "killed"))
        shutil.rmtree(folder, ignore_errors=True)
    return _difference(whole, killed, at)


def _train_of_processes(place: Path) -> None:
    from chainrule.training.team import rank

    lm = trained("transformer", **_settings("transformer"), run=place, resume=place.exists(), parallel="ddp")
    if rank() == 0:
        np.savez(place.with_suffix(".npz"), **_tensors(lm))


def _main(kind: str, place: str, at: str, seed: str) -> None:
    if int(at):
        _kill_after(int(at))
    if kind == PROCESSES:
        _train_of_processes(Path(place))
    else:
        trained(kind, **_settings(kind), seed=int(seed), run=Path(place))


if __name__ == "__main__":
    with broken(os.environ.get("RELIABILITY_CONTROL", "")):
        _main(*sys.argv[1:])
