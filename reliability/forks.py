"""Runs tests in forks of a process that has imported packages, or collected tests: nobody waits for that each time.

    python forks.py import PACKAGE ...    forks collect the tests that they run
    python forks.py collect WORD ...      the process collects tests, with these words for pytest; forks run some

It reads a request per line: the tests, the number of the planted fault, the file for what is reached (switch.py),
the seconds that the tests took before (null: no limits, no end at a failure), the seconds after which no test is
begun, and the file for the answer. The answer has the tests that failed and the seconds of each; it is empty if the
fork was killed, since a test took far longer than before. A line on standard output says that it is there.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LEAST = 10.0
"""Seconds of the processor that any test may take."""
TIMES = 10.0
"""How many times as long as before a test may take in seconds of the processor, and all tests by the clock."""

WORDS = ("-q", "-s", "-p", "no:cacheprovider", f"--rootdir={Path.cwd()}")

Request = dict[str, Any]


class Watch:
    """A plug-in of pytest that times tests, notes failures, and ends the process at a test that takes too long."""

    def __init__(self, request: Request) -> None:
        self.known: dict[str, float] | None = request["seconds"]
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._start(60.0)  # for imports

    def _start(self, most: float) -> None:
        if self.known is not None:
            signal.setitimer(signal.ITIMER_PROF, most)  # nothing handles its signal: the process ends

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Start the clock of a test."""
        self._start(LEAST + TIMES * (self.known or {}).get(item.nodeid, 0.0))
        began = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def answer(self) -> dict[str, object]:
        return {"failed": self.failed, "seconds": self.seconds}


def run_collecting(request: Request) -> dict[str, object]:
    """Collect the tests of a request in this process, and run them."""
    watch = Watch(request)
    code = pytest.main([*WORDS, "-x", *request["tests"]], [watch])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not watch.failed:
        watch.failed = request["tests"]  # they cannot even be collected
    return watch.answer()


class Collected:
    """A plug-in of pytest that waits for requests when the tests are collected, and runs none itself."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.errors: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what cannot be collected."""
        if report.failed:
            self.errors[report.nodeid] = report.longreprtext[-2000:]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        self.items = {item.nodeid: item for item in session.items}
        said = json.dumps({"tests": [*self.items], "errors": self.errors})
        os.write(self.answers, f"{said}\n".encode())
        serve(self.answers, self._run)
        return True

    def _run(self, request: Request) -> dict[str, object]:
        items = [self.items[test] for test in request["tests"]]
        watch = Watch(request)
        items[0].config.pluginmanager.register(watch)
        began = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if watch.known is not None and (watch.failed or time.process_time() - began > request["enough"]):
                break
        return watch.answer()


def serve(answers: int, run: Callable[[Request], dict[str, object]]) -> None:
    """Run the tests of each request in a fork."""
    for line in sys.stdin:
        request = json.loads(line)
        if not (process := os.fork()):
            try:
                _child(request, run)
            finally:
                os._exit(0)
        known, ended = request["seconds"], os.pidfd_open(process)
        if not select.select([ended], [], [], None if known is None else 30 + TIMES * sum(known.values()))[0]:
            os.killpg(process, signal.SIGKILL)
        os.close(ended)
        os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # processes that tests left
        os.write(answers, b"\n")


def _child(request: Request, run: Callable[[Request], dict[str, object]]) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    switch = importlib.import_module("reliability.switch")
    os.environ |= {switch.CHOSEN: str(request["fault"]), switch.REACHED: request["reached"]}
    switch.chosen = request["fault"]
    Path(request["answer"]).write_text(json.dumps(run(request)), encoding="utf-8")


def main() -> None:
    """Answer requests."""
    answers = os.dup(1)
    said = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.dont_write_bytecode = True
    how, *words = sys.argv[1:]
    if how == "collect":
        pytest.main([*WORDS, *words], [Collected(answers)])
        return
    for package in words:
        importlib.import_module(package)
    os.write(answers, b'{"tests": [], "errors": {}}\n')
    serve(answers, run_collecting)


if __name__ == "__main__":
    main()
