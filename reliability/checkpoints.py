"""Runs whose newest checkpoint is damaged: the one before is taken, and that is said."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from chainrule.system.progress import Silent
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from chainrule.training.checkpoints.run_folder import checkpoint_folders

from .changes import changed
from .frame import FAST, Trial

OLD, NEW = 1, 2


class _Listening(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def _truncate(random: Random, file: Path, old: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: random.randrange(len(content))])


def _flip(random: Random, file: Path, old: Path) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def _delete(random: Random, file: Path, old: Path) -> None:
    file.unlink()


def _swap(random: Random, file: Path, old: Path) -> None:
    """Put the file of the checkpoint before in its place."""
    shutil.copy(old / file.name, file)


def _change(random: Random, file: Path, old: Path) -> None:
    file.write_bytes(changed(random, file.name, file.read_bytes()))


DAMAGES: dict[str, Callable[[Random, Path, Path], None]] = {
    "truncated": _truncate,
    "a bit flipped": _flip,
    "deleted": _delete,
    "swapped": _swap,
    "changed": _change,
}


def run(trial: Trial) -> None:
    """Damage one file of the newer of two checkpoints, each time in one of the ways."""
    with tempfile.TemporaryDirectory(prefix="trial-", dir=FAST) as name:
        whole, place = Path(name) / "whole", Path(name) / "run"
        for number in (OLD, NEW):
            arrays = {"weights": np.full(500, number, np.float32), "empty": np.zeros(0, np.float32)}
            state = {"number": number, "counts": {}, "history": [{"step": number, "loss": 1.5}]}
            Checkpoints(whole, Silent()).write(number, Checkpoint(arrays, state))
        names = trial.chosen(list(DAMAGES))
        for number in trial:
            damage = names[number % len(names)]
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(whole, place)
            new, old = checkpoint_folders(place)
            file = trial.random.choice(sorted(new.iterdir()))
            before = file.read_bytes()
            DAMAGES[damage](trial.random, file, old)
            is_same = file.exists() and file.read_bytes() == before
            trial.note(damage, _judged(place, is_same=is_same, name=file.name))


def _judged(place: Path, *, is_same: bool, name: str) -> str | None:
    """What is wrong with the checkpoint that is taken, None if nothing is."""
    progress = _Listening()
    try:
        found = Checkpoints(place, progress).newest()
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    assert found is not None
    number = found.state["number"]
    if not (found.arrays["weights"] == number).all() or number not in (OLD, NEW):
        return f"{name}: a damaged checkpoint was taken"
    if number == NEW and not is_same and name != "manifest.json":
        return f"{name}: the change was not seen"
    if number == OLD and not any("going back to the checkpoint before" in note for note in progress.notes):
        return f"{name}: the one before was taken, and nothing was said"
    return None
