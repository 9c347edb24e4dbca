"""Trainings and comparisons below one folder, which is given when the server starts.

A name that a client sends is looked up among the folders that were found there: it never becomes part of a path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from chainrule.comparison.results import RESULTS, Comparison, read_comparison
from chainrule.errors import ChainruleError, FolderError
from chainrule.folder import MANIFEST
from chainrule.folder import METRICS as MODEL_METRICS
from chainrule.report.charts import run_charts
from chainrule.report.run import RunDetails, is_going_on, run_details
from chainrule.training.checkpoints.run_folder import HISTORY, METRICS

DEPTH = 4
"""How deep folders inside folders are searched."""
MOST_RUNS = 500
MOST_FOLDERS = 5000
"""How many folders are searched for one list."""
MOST_BYTES = 256 << 20
"""The largest file of measurements, or of results, that is read."""
LIST_SECONDS = 1.0
"""How long a list is valid."""
MOST_KEPT = 64
"""How many records and charts are kept."""
REPORT = "report.html"
THEMES = {"light": "#1d2733", "dark": "#e4e8ed"}
"""The colour of the words of a chart, by theme."""


class UnknownRunError(ChainruleError):
    """No training has that name."""


@dataclass(frozen=True)
class Found:
    """A folder with a training or a comparison."""

    name: str
    what: Literal["run", "model", "comparison"]
    """A run folder, a model that kept the curves of its training, or a comparison."""
    folder: Path
    source: Path
    """The file with the figures."""

    @property
    def version(self) -> tuple[int, ...]:
        """The identity of its file of figures, which changes when there are new ones."""
        found = self.source.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    @property
    def report(self) -> Path | None:
        """Its report, if there is one."""
        page = self.folder / REPORT
        return page if self.what != "model" and page.is_file() and not page.is_symlink() else None

    @property
    def is_going_on(self) -> bool:
        """True if it is running now."""
        return self.what == "run" and is_going_on(self.folder)


class Runs:
    """The trainings and comparisons below a folder; none without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder.resolve()
        self._secret = secrets.token_bytes(32)
        self._kept: dict[tuple[str, str], tuple[tuple[int, ...], Any]] = {}
        self._listed: tuple[float, list[Found]] = (-math.inf, [])
        self._lock = threading.RLock()  # one chart at a time: drawing takes a whole core

    def all(self) -> list[Found]:
        """Return all that exist now, by name."""
        if self.folder is None:
            return []
        with self._lock:
            if time.monotonic() - self._listed[0] > LIST_SECONDS:
                self._listed = time.monotonic(), [*_search(self.folder)]
            return [one for one in self._listed[1] if one.source.is_file()]

    def find(self, name: str) -> Found:
        """Return one of them by its name."""
        for one in self.all():
            if one.name == name:
                return one
        raise UnknownRunError(f"no training or comparison is called {name[:100]!r}")

    def ticket(self, one: Found) -> str:
        """Return a code that opens the report of a comparison: hard to guess, and valid until the server ends.

        A browser that follows a link sends no key, so the link itself has to prove that the server made it.
        """
        return hmac.new(self._secret, one.name.encode(), hashlib.sha256).hexdigest()

    def by_ticket(self, ticket: str) -> Found:
        """Return the one whose report a ticket opens."""
        for one in self.all():
            if hmac.compare_digest(self.ticket(one).encode(), ticket.encode()):
                return one
        raise UnknownRunError("there is no such report")

    def record(self, one: Found) -> RunDetails:
        """Return the curves of a training; they are read again when there are new ones."""
        _check_size(one)
        try:
            record: RunDetails = self._keep("record", one, lambda: run_details(one.folder))
        except ChainruleError:  # its message names the folder, which clients should not know
            raise FolderError(f"{one.name}: its curves cannot be read") from None
        return replace(record, is_going_on=one.is_going_on)

    def comparison(self, one: Found) -> Comparison:
        """Return the results of a comparison."""
        _check_size(one)
        found: Comparison | None = self._keep("comparison", one, lambda: read_comparison(one.folder))
        if found is None:
            raise FolderError(f"{one.name}: its results cannot be read")
        return found

    def chart(self, one: Found, theme: str) -> str:
        """Return the losses of a training, as an SVG picture."""
        if one.what == "comparison":
            raise UnknownRunError(f"{one.name} is a comparison, which has no curve of its own; see its report")
        record = self.record(one)
        found: str = self._keep(f"{theme} chart", one, lambda: draw(record, theme))
        return found

    def _keep(self, what: str, one: Found, make: Callable[[], Any]) -> Any:
        """Return the result of `make` for a run; it is kept until the run changes."""
        version = one.version
        with self._lock:
            kept = self._kept.pop((what, one.name), None)
            if kept is None or kept[0] != version:
                kept = version, make()
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[what, one.name] = kept
            return kept[1]


def _search(top: Path) -> Iterator[Found]:
    """Yield all trainings and comparisons below a folder, in the order of their names; links are not followed."""
    names: set[str] = set()
    for path, inside, files in islice(os.walk(top), MOST_FOLDERS):
        if len(names) >= MOST_RUNS:
            return
        folder = Path(path)
        parts = folder.relative_to(top).parts
        inside[:] = sorted(one for one in inside if not one.startswith("."))
        # below a model or a run are only parts of it, or checkpoints
        if len(parts) >= DEPTH or MANIFEST in files or METRICS in files:
            inside[:] = []
        found = _found(":".join(parts) or top.name, folder, files)
        if found is not None and found.name not in names:
            names.add(found.name)
            yield found


def _found(name: str, folder: Path, files: list[str]) -> Found | None:
    if RESULTS in files:
        return Found(name, "comparison", folder, folder / RESULTS)
    if METRICS in files:
        return Found(name, "run", folder, folder / METRICS)
    if MANIFEST in files and MODEL_METRICS in files:
        metrics = folder / MODEL_METRICS
        if _has_curves(metrics, metrics.stat().st_mtime_ns, metrics.stat().st_size):
            return Found(name, "model", folder, metrics)
    return None


@lru_cache(MOST_FOLDERS)
def _has_curves(metrics: Path, changed: int, size: int) -> bool:
    """Return True if a model kept the curves of its training; a file is read once, until it changes."""
    if size > MOST_BYTES:
        return False
    try:
        content = json.loads(metrics.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and bool(content.get(HISTORY))


def _check_size(one: Found) -> None:
    if one.source.stat().st_size > MOST_BYTES:
        raise FolderError(f"{one.name}: its file of figures is too long to show")


def draw(record: RunDetails, theme: str) -> str:
    """Draw the losses of a training by Vega."""
    charts = run_charts(record.points)
    if "loss" not in charts:
        raise UnknownRunError(f"{record.title}: nothing was measured yet")
    import vl_convert

    ink = THEMES[theme]
    axis = {"labelColor": ink, "titleColor": ink, "tickColor": ink, "domainColor": ink, "gridColor": ink}
    config = {
        "background": "transparent",
        "view": {"stroke": "transparent"},
        "axis": {**axis, "gridOpacity": 0.15, "labelFontSize": 14, "titleFontSize": 15},
        "legend": {"labelColor": ink, "titleColor": ink, "orient": "top", "labelFontSize": 14, "titleFontSize": 15},
    }
    # narrower than on paper, so that its words can be read on a phone
    spec = {**charts["loss"].to_dict(), "width": 480, "height": 280, "config": config}
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


def summary_of(comparison: Comparison) -> dict[str, Any]:
    """Return the models of a comparison and how good they are, the best first."""
    names = ("name", "kind", "training_seconds", "megabytes", "parameters")
    models: list[dict[str, Any]] = [
        {"loss": one.loss} | {name: getattr(one, name) for name in names} for one in comparison.results
    ]
    models.sort(key=lambda one: (one["loss"] is None, one["loss"] or 0.0))
    failures = [{"name": one.name, "error": one.error} for one in comparison.failures]
    found = {name: getattr(comparison, name) for name in ("task", "is_finished", "advice")}
    return {**found, "models": models, "failures": failures}
