"""Runs tests in forks of a process that has imported large packages: nobody waits for them at each run.

    python forks.py [PACKAGE ...]

A program of its own, because the fork must not have imported chainrule: it reads a request per line and answers
with the exit code. A request has the words for pytest, variables of the environment, the seconds that each test
took before (null: no limits), and a file for what is printed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

import pytest

LEAST = 10.0
"""Seconds of the processor that any test may take."""
TIMES = 10.0
"""How many times as long as before a test may take in seconds of the processor, and all tests by the clock."""


class Limits:
    """A plug-in of pytest that ends the process at a test that takes far longer than it did before."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self._start(6 * LEAST)  # for imports

    def _start(self, most: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, most)  # nothing handles its signal: the process ends

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start the clock again."""
        self._start(LEAST + TIMES * self.seconds.get(item.nodeid, 0.0))


def _child(request: dict[str, Any]) -> int:
    """Run the tests of a request in this process, and return their exit code."""
    os.setsid()
    said = os.open(request["said"], os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(said, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(request["environment"])
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.dont_write_bytecode = True
    limits = [] if request["seconds"] is None else [Limits(request["seconds"])]
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *request["words"]], limits))


def main() -> None:
    """Answer each request with an exit code, which is negative if the tests were killed."""
    for package in sys.argv[1:]:
        importlib.import_module(package)
    for line in sys.stdin:
        request = json.loads(line)
        if not (process := os.fork()):
            code = 3  # of pytest, for an error of its own
            try:
                code = _child(request)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        known, ended = request["seconds"], os.pidfd_open(process)
        if not select.select([ended], [], [], None if known is None else 60 + TIMES * sum(known.values()))[0]:
            os.killpg(process, signal.SIGKILL)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # processes that tests left
        print(code, flush=True)


if __name__ == "__main__":
    main()
