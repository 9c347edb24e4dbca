"""Tries in processes of limited memory and time: what crashes, hangs or takes too much is counted, not suffered.

The time is that of the processor, which other programs of the machine do not lengthen.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .frame import Trial

SECONDS, GIGABYTES = 5, 2
_STUCK = 60
"""A process that has not ended its try after so many seconds by the clock is killed."""


class Late(BaseException):
    """A try took too long."""


def run_limited(trial: Trial, prepare: Callable[[int], Callable[[int], tuple[str, str | None]]]) -> None:
    """Make tries in a process for each core; `prepare(worker)` returns what makes try `number`, in that process.

    A try returns its sort and a problem, None if there is none. A process that dies is replaced, and goes on after
    the try that killed it.
    """
    workers = 1 if trial.small else max(1, len(os.sched_getaffinity(0)))
    children = [_Child(prepare, worker, workers, trial) for worker in range(workers)]
    try:
        while any(child.is_running for child in children):
            ready, _, _ = select.select([child.pipe for child in children if child.is_running], [], [], 1.0)
            for child in children:
                # one that has ended may share its number with the pipe of a later one
                if child.is_running and child.pipe in ready:
                    child.read()
                elif child.is_running and time.monotonic() - child.heard > _STUCK:
                    os.kill(child.process, signal.SIGKILL)
    finally:
        for child in children:
            child.end()


class _Child:
    """A process that makes every nth try, from one on."""

    def __init__(self, prepare: Callable[..., Callable[..., object]], first: int, step: int, trial: Trial) -> None:
        self.prepare, self.worker, self.step, self.trial = prepare, first, step, trial
        self.begun: int | None = None
        self.rest = b""
        self.is_running = False
        self._start(first)

    def _start(self, first: int) -> None:
        receive, send = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(receive)
            _work(self.prepare, self.worker, range(first, self.trial.count, self.step), self.trial.ends, send)
        os.close(send)
        self.pipe, self.heard, self.is_running, self.begun, self.rest = receive, time.monotonic(), True, None, b""

    def read(self) -> None:
        """Count what the process has reported."""
        piece = os.read(self.pipe, 1 << 16)
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if isinstance(said, int):
                self.begun = said
            else:
                self.begun = None
                self.trial.note(*said)
        if not piece:
            self._ended()

    def _ended(self) -> None:
        self.is_running = False
        os.close(self.pipe)
        _, status = os.waitpid(self.process, 0)
        code = os.waitstatus_to_exitcode(status)
        if self.begun is not None:
            why = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.trial.note("a crash", f"try {self.begun}: {why}")
            self._start(self.begun + self.step)
        elif code:
            raise RuntimeError(f"a process of tries ended with {code} between two of them")

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.is_running:
            with contextlib.suppress(OSError):
                os.kill(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)


def _work(prepare: Callable[..., Callable[..., object]], worker: int, tries: range, ends: float, send: int) -> None:
    code = 1
    try:
        attempt = prepare(worker)
        # beside what the process has reserved: a library may reserve more than that without using it
        reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = reserved + (GIGABYTES << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.signal(signal.SIGPROF, _late)
        for number in tries:
            if time.monotonic() > ends:
                break
            os.write(send, b"%d\n" % number)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                said = attempt(number)
            except Late:
                said = ("too late", f"try {number} took more than {SECONDS} s")
            except Exception as error:
                said = ("an error", f"try {number}: {type(error).__name__}: {error}")
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(send, json.dumps(said).encode() + b"\n")
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _late(*_: object) -> None:
    raise Late
