"""Every figure of one training's report, from its run folder or from the model that came out of it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chainrule.errors import FolderError
from chainrule.folder import MANIFEST, read_folder
from chainrule.system.disk.locks import LOCK, is_abandoned
from chainrule.training.checkpoints.run_folder import HISTORY, METRICS
from chainrule.training.tracking.curves import curves

MOST_POINTS = 2000
"""Of one chart; of a longer run equally spaced ones are drawn."""
_RUN = "run.json"
_KEPT = ("loss", "validation_loss", "learning_rate", "tokens_per_second", "grad_norm", "tokens", "seconds")
_LOSSES = ("loss", "validation_loss")


@dataclass(frozen=True)
class RunRecord:
    """The report of a training."""

    format: str
    version: int
    what: str
    title: str
    kind: str
    settings: dict[str, Any]
    is_going_on: bool
    measurements: int
    """How many there are; `points` may be fewer."""
    summary: dict[str, float]
    points: list[dict[str, float]]
    """A step each: losses in bits per token, the learning rate, the speed, the norm of the gradient."""

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return asdict(self)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / METRICS).is_file() or (folder / _RUN).is_file()


def run_record(folder: Path) -> RunRecord:
    """The record of a run folder, or of a model folder."""
    from chainrule.report.record import FORMAT, VERSION

    if not (folder / METRICS).is_file() and is_run(folder):
        records: list[dict[str, Any]] = []  # it has only just begun
    else:
        records = [dict(record) for record in curves(folder).records]
    points = [_point(record) for record in records if isinstance(record.get("step"), int)]
    if not points and not is_run(folder):
        raise FolderError(f"{folder}: the curves of this model have no steps")
    kind, settings = _described(folder)
    return RunRecord(
        format=FORMAT,
        version=VERSION,
        what="run",
        title=f"Training {folder.resolve().name}",
        kind=kind,
        settings=settings,
        is_going_on=is_run(folder) and is_going_on(folder),
        measurements=len(points),
        summary=_summary(points),
        points=_thinned(points),
    )


def _point(record: dict[str, Any]) -> dict[str, float]:
    """A measurement: losses in bits; what is no number is left out."""
    found: dict[str, float] = {"step": record["step"]}
    for name in _KEPT:
        value = record.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            found[name] = value / math.log(2) if name in _LOSSES else value
    return found


def _thinned(points: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most MOST_POINTS of the measurements, at equal distances; every validation stays."""
    every = -(-len(points) // MOST_POINTS)
    return [
        one for i, one in enumerate(points) if i % every == 0 or "validation_loss" in one or i == len(points) - 1
    ]


def _summary(points: list[dict[str, float]]) -> dict[str, float]:
    """The last value of each figure, and the best validation."""
    last: dict[str, float] = {}
    for point in points:
        last |= point
    valid = [point["validation_loss"] for point in points if "validation_loss" in point]
    return {**last, **({"best_validation_loss": min(valid)} if valid else {})}


def _described(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind and the settings of what is trained."""
    if (folder / MANIFEST).is_file():
        content = read_folder(folder, verify=False)
        return content.kind, {key: value for key, value in content.config.items() if key != HISTORY}
    try:
        content_of_run = json.loads((folder / _RUN).read_text(encoding="utf-8"))
        return str(content_of_run["kind"]), dict(content_of_run["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", {}


def is_going_on(folder: Path) -> bool:
    """Whether a process trains in a run folder at this time: it has locked a file there."""
    return (folder / LOCK).exists() and not is_abandoned(folder / LOCK)
