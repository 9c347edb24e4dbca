"""Every figure of one training's report, from its run folder or from the model that came out of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule import settings as settings_of
from chainrule.contract.kinds import find_kind
from chainrule.errors import ChainruleError, FolderError
from chainrule.folder import MANIFEST, read_folder
from chainrule.networks.defaults import reason
from chainrule.report.record import FORMAT, VERSION, points_of
from chainrule.runs.record import RECORD
from chainrule.system.disk.locks import LOCK, is_abandoned
from chainrule.system.display import PlainResult
from chainrule.training.checkpoints.run_folder import HISTORY, METRICS, curves, records_of

MOST_SAMPLES = 12
MOST_POINTS = 2000
"""Points of one chart; of a longer run, points at equal distances are drawn."""


@dataclass(frozen=True)
class RunDetails(PlainResult):
    """The figures of a training."""

    format: str
    version: int
    what: str
    title: str
    kind: str
    settings: dict[str, Any]
    is_going_on: bool
    measurements: int
    """The number of measurements; `points` may be fewer."""
    summary: dict[str, float]
    """The last value of each figure, and the best validation."""
    points: list[dict[str, float]]
    """Figures by step: losses in bits per token, the learning rate, the speed, the norm of the gradient."""
    chosen: dict[str, dict[str, Any]]
    """The settings that were left open: the value and the reason of each."""
    decisions: dict[str, Any]
    """What was decided before the first step, with the measurements behind it."""
    samples: list[dict[str, Any]]
    """What the network wrote on the way: step and text."""


def is_run(folder: Path) -> bool:
    """Return True if a folder is that of a run."""
    return (folder / METRICS).is_file() or (folder / RECORD).is_file()


def is_going_on(folder: Path) -> bool:
    """Return True if a process trains in a run folder at this time: it has locked a file there."""
    return (folder / LOCK).exists() and not is_abandoned(folder / LOCK)


def run_details(folder: Path) -> RunDetails:
    """Read the figures of a run folder, or of a model folder."""
    is_new = is_run(folder) and not (folder / METRICS).is_file()  # nothing was measured yet
    records = [] if is_new else [dict(record) for record in curves(folder).records]
    others = [*records_of(folder / METRICS)] if (folder / METRICS).is_file() else []
    points = points_of(records)
    if not points and not is_run(folder):
        raise FolderError(f"{folder}: the curves of this model have no steps")
    kind, settings = _kind_and_settings(folder)
    decided = next((dict(one) for one in reversed(others) if one.get("what") == "decisions"), {})
    complete = decided.pop("settings", None)
    chosen = _chosen(kind, settings, complete if isinstance(complete, dict) else {})
    samples = [
        {"step": one["step"], "text": one["text"]}
        for one in others
        if one.get("what") == "sample" and isinstance(one.get("step"), int) and isinstance(one.get("text"), str)
    ]
    summary: dict[str, float] = {}
    for point in points:
        summary |= point
    if valid := [point["validation_loss"] for point in points if "validation_loss" in point]:
        summary["best_validation_loss"] = min(valid)
    return RunDetails(
        format=FORMAT,
        version=VERSION,
        what="run",
        title=f"Training {folder.resolve().name}",
        kind=kind,
        settings={**settings, **{name: one["value"] for name, one in chosen.items()}},
        is_going_on=is_run(folder) and is_going_on(folder),
        measurements=len(points),
        summary=summary,
        points=spaced(points),
        chosen=chosen,
        decisions={name: value for name, value in decided.items() if name not in ("what", "step", "measured")}
        | (measured if isinstance(measured := decided.get("measured"), dict) else {}),
        samples=samples[:: -(-len(samples) // MOST_SAMPLES) or 1],
    )


def _chosen(kind: str, given: dict[str, Any], complete: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of a run that were not given, each with its value and the reason for it."""
    names = [name for name, value in complete.items() if value is not None and given.get(name, 0) is None]
    try:
        settings: Any = settings_of.parse(find_kind(kind).settings, given)
        return {name: {"value": complete[name], "reason": reason(settings, name)} for name in names}
    except (ChainruleError, AttributeError):  # a kind of a plug-in that is not installed, or of an earlier version
        return {name: {"value": complete[name], "reason": ""} for name in names}


def spaced(points: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return at most MOST_POINTS of the measurements, at equal distances, and every validation."""
    every = -(-len(points) // MOST_POINTS)
    return [
        one for i, one in enumerate(points) if i % every == 0 or "validation_loss" in one or i == len(points) - 1
    ]


def _kind_and_settings(folder: Path) -> tuple[str, dict[str, Any]]:
    """Read the kind and the settings of the model that is trained."""
    if (folder / MANIFEST).is_file():
        content = read_folder(folder, verify=False)
        return content.kind, {key: value for key, value in content.config.items() if key != HISTORY}
    try:
        run = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return str(run["kind"]), dict(run["settings"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", {}
