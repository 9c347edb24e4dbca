"""The run folder: the files that a training run keeps while it lasts.

checkpoints/step-000123/   the state of the run after a step; the newest two
metrics.jsonl              the measurements taken on the way
run.json                   kind, settings, corpus and tokenizer, from which `chainrule resume` goes on
last/                      the model with the weights of the last step
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chainrule.errors import FolderError, SettingsError
from chainrule.folder import MANIFEST, check_destination, read_folder
from chainrule.system.disk import holding, recover, remove_folder, sweep
from chainrule.system.disk.tables import Curves

CHECKPOINTS, METRICS, LAST = "checkpoints", "metrics.jsonl", "last"

HISTORY = "history"
"""The metric of a model that holds its losses in training and in validation, at each validation."""
EARLIER = "earlier_seconds"
"""The metric of a model that holds the seconds of its training before it was resumed."""


def checkpoint_folders(run: Path) -> list[Path]:
    """Return the checkpoints of a run, the newest first; one that a killed process was replacing is put back."""
    for folder in _started(run):
        recover(folder)
    found = (path for path in (run / CHECKPOINTS).glob("step-*") if path.is_dir() and _number(path).isdecimal())
    return sorted(found, key=lambda path: int(_number(path)), reverse=True)


def sweep_checkpoints(run: Path) -> None:
    """Remove the unfinished checkpoints of killed processes."""
    for folder in _started(run):
        sweep(folder)


def _started(run: Path) -> set[Path]:
    """Return the paths of the checkpoints that were started, and perhaps not finished."""
    found = (run / CHECKPOINTS).glob(".step-*")
    return {path.with_name(name[0]) for path in found if (name := re.match(r"step-\d+", path.name[1:]))}


def _number(path: Path) -> str:
    return path.name.removeprefix("step-")


def check_run(run: Path | None, *, resume: bool) -> None:
    """Refuse to begin anew in the folder of a run that could be resumed: it may hold hours of training."""
    if run is None:
        if resume:
            raise SettingsError("resuming needs the run folder of the training")
    elif run.exists() and not run.is_dir():
        raise SettingsError(f"{run} is a file: checkpoints and measurements of a run are kept in a folder")
    elif checkpoint_folders(run) and not resume:
        raise SettingsError(
            f"{run} holds a training that can be resumed: resume it (--resume, resume=True), or begin anew "
            "(--overwrite, or another run folder)"
        )


@contextmanager
def using_run(run: Path | None, *, resume: bool) -> Iterator[None]:
    """Return a block in which no other process trains in the run folder; refuse what `check_run` refuses."""
    check_run(run, resume=resume)
    if run is None:
        yield
        return
    with holding(run):
        check_run(run, resume=resume)  # again: another process may have trained there until now
        yield


def check_output(out: Path, run: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse, before any text is read, a training whose model cannot be written to `out`."""
    if resume and (out / MANIFEST).exists():
        if not checkpoint_folders(run):
            raise SettingsError(
                f"{out} exists: its training has finished, and nothing is left to resume (a training with --keep "
                "could be made longer)"
            )
        if not overwrite:
            raise SettingsError(f"{out} exists: to go on with its training, and then replace it, add --overwrite")
    check_destination(out, overwrite=overwrite)


def remove_checkpoints(run: Path) -> None:
    """Remove the checkpoints of a run, and nothing else that may lie there."""
    for folder in checkpoint_folders(run):
        remove_folder(folder)
    sweep_checkpoints(run)
    with contextlib.suppress(OSError):  # there is something else in it, or it was not there
        (run / CHECKPOINTS).rmdir()


# -- measurements -----------------------------------------------------------------------------------------


_MEASURED = ("steps", "validation")


def records_of(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of metrics.jsonl; a line that was cut short by a crash is left out."""
    for line in metrics.read_text(encoding="utf-8", errors="replace").split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def curves(folder: str | Path) -> Curves:
    """Return the curves of a training: every measurement of a run folder, or the validations of a model folder.

    >>> import tempfile
    >>> import chainrule as cr
    >>> small = {"engine": "tape", "hidden": 4, "embedding": 4, "steps": 2}
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = cr.train("elman", ["the cat sat", "a dog ran"] * 4, run=run, **small)
    ...     found = curves(run)
    >>> found.columns()["step"][-1]
    2
    """
    folder = Path(folder)
    if (folder / METRICS).is_file():
        return Curves([one for one in records_of(folder / METRICS) if one.get("what") in _MEASURED])
    if not (folder / MANIFEST).is_file():
        raise FolderError(f"{folder}: neither a run folder (it has no {METRICS}) nor a model folder")
    history = read_folder(folder, verify=False).metrics.get(HISTORY)
    if not history:
        raise FolderError(
            f"{folder}: this model has no training curves; only a network that was trained in steps has some"
        )
    return Curves(history)
