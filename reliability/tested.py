"""Rows whose tries are tests that the project has anyway: they are run in a process of their own and counted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

from .frame import Trial

ROOT = Path(__file__).parents[1]
CONTROL = "RELIABILITY_CONTROL"


def tests(files: Sequence[str], small: Sequence[str]) -> Callable[[Trial], None]:
    """Return what runs these files of tests, and in a small run some tests of them."""

    def run(trial: Trial) -> None:
        run_tests(trial, trial.only or (small if trial.small else files))

    return run


def run_tests(trial: Trial, nodes: Sequence[str]) -> None:
    """Run tests, as many as are ended in time; each is a try, under the name of its file."""
    with tempfile.TemporaryDirectory() as folder:
        for node in nodes:
            left = trial.ends - time.monotonic()
            if left <= 0:
                return
            report = Path(folder) / "report.xml"
            report.unlink(missing_ok=True)
            plugins = ["-p", "no:cacheprovider", "-p", "reliability.tested"]
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-m", "", *plugins, f"--junitxml={report}", node],
                    cwd=ROOT,
                    env={**os.environ, CONTROL: trial.control},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=min(left + 60, 1e6),
                )
            except subprocess.TimeoutExpired:
                trial.left_out[node] = "the time was up"
                continue
            if not report.exists():
                raise RuntimeError(f"{node}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
            _count(trial, node.partition("::")[0], report)


def _count(trial: Trial, name: str, report: Path) -> None:
    for case in ET.parse(report).iter("testcase"):
        outcomes = {part.tag: part for part in case}
        if "skipped" in outcomes:
            trial.left_out[case.get("name", "")] = outcomes["skipped"].get("message", "")
            continue
        failure = next((outcomes[tag] for tag in ("failure", "error") if tag in outcomes), None)
        said = None if failure is None else failure.get("message", "").replace("\n", " ")[:200]
        trial.note(name, said and f"{case.get('name')}: {said}")


def pytest_sessionstart(session: object) -> None:
    """Break something for a whole session of tests, in which this module is a plug-in."""
    from .controls import BROKEN

    if name := os.environ.get(CONTROL):
        BROKEN[name]().__enter__()
