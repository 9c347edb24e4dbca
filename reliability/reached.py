"""A plug-in of pytest that writes which tests reach which lines of a package, and how long they take."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

PLACE, FILE = "RELIABILITY_PLACE", "RELIABILITY_REACHED"
"""Variables of the environment: the file or folder whose lines are meant, and where to write."""

_lines: dict[str, set[str]] = defaultdict(set)
_seconds: dict[str, float] = {}
_test = ""


def _called(frame: FrameType, event: str, argument: object) -> Any:
    return _line if frame.f_code.co_filename.startswith(os.environ[PLACE]) else None


def _line(frame: FrameType, event: str, argument: object) -> Any:
    _lines[f"{frame.f_code.co_filename}:{frame.f_lineno}"].add(_test)
    return _line


def _audit(event: str, arguments: object) -> None:
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        _lines["a process"].add(_test)  # what it reaches is not seen


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch lines from now on: those of imports belong to no test."""
    sys.addaudithook(_audit)
    threading.settrace(_called)
    sys.settrace(_called)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Tell whose lines are reached, and how long it takes."""
    global _test
    _test, began = item.nodeid, time.monotonic()
    sys.settrace(_called)  # which a test may have changed
    yield
    _seconds[_test] = time.monotonic() - began


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was reached: places, each with the tests, and the seconds of the tests."""
    sys.settrace(None)
    lines = {line: sorted(tests) for line, tests in sorted(_lines.items())}
    Path(os.environ[FILE]).write_text(json.dumps({"seconds": _seconds, "lines": lines}))
