"""A server as users start it: a process of its own, on a free port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

STARTS_WITHIN = 180.0
_WITH_DEADLINE = """
import runpy
import chainrule.serve.guard
chainrule.serve.guard.DEADLINE = {}
runpy.run_module("chainrule", run_name="__main__", alter_sys=True)
"""

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on an event loop and a thread of its own: a browser of another test may hold one here."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


def ask(server: Running, path: str, **body: object) -> httpx2.Response:
    """Send JSON to a route."""
    return httpx2.post(f"{server.address}{path}", json=body, timeout=120)


def answer(server: Running, path: str, **body: object) -> dict[str, Any]:
    """The JSON that a route answers with; neither an infinity nor NaN is JSON."""
    response = ask(server, path, **body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = json.loads(response.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return found


@contextlib.contextmanager
def running(
    folders: Sequence[Path | str], *options: str, key: str | None = None, deadline: float | None = None
) -> Iterator[Running]:
    """A server of these folders, until the block ends; `deadline` is in the place of the ten seconds it has."""
    start = ["-m", "chainrule"] if deadline is None else ["-c", _WITH_DEADLINE.format(deadline)]
    command = [sys.executable, *start, "serve", *map(str, folders), "--port", "0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("CHAINRULE_KEY", None)
    if key is not None:
        environment["CHAINRULE_KEY"] = key
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    timer = threading.Timer(STARTS_WITHIN, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        said, found = "", None
        while found is None:
            line = process.stdout.readline()
            assert line, f"the server did not start: {said}"
            said += line
            found = re.search(r"http://\S+?:\d+", line)
        timer.cancel()
        yield Running(process, found[0])
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
