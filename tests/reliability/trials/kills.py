"""Processes that are killed while they write: what was acknowledged is there, whole, and nothing stays behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from chainrule.system.disk import atomic, locks

from .writers import WRITERS, Writer


def run(count: int, seed: int = 0) -> Counter[str]:
    """Kill `count` processes; returns how many there were of each writer, and problems under "wrong: ..."."""
    generator, found = random.Random(seed), Counter[str]()
    for writer in WRITERS:
        writer.write(Path(tempfile.mkdtemp()), 0)  # what is compiled or cached on first use is made before the fork
    for trial in range(count):
        writer = WRITERS[trial % len(WRITERS)]
        exchanges = trial // len(WRITERS) % 2 == 0
        problem = kill_once(writer, generator.random(), exchanges=exchanges)
        found[f"{writer.name}, {'exchange' if exchanges else 'two renames'}"] += 1
        if problem:
            found[f"wrong: {writer.name}: {problem}"] += 1
    return found


def kill_once(writer: Writer, chance: float, *, exchanges: bool) -> str | None:
    """Kill a process that writes version after version; returns what is wrong afterwards, None if nothing is."""
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
    exchange = atomic._exchange
    if not exchanges:
        atomic._exchange = lambda one, other: False
    try:
        acknowledged = _killed(writer, folder, 0.001 + 0.06 * chance**2)
        try:
            there = writer.version(folder)
        except Exception as error:
            return f"after {acknowledged}: {type(error).__name__}: {error}"
        if writer.name == "arpa":  # only two versions: whole is all that can be told
            there = acknowledged if there is not None else None
        if acknowledged is not None and (there is None or there < acknowledged):
            return f"{there} is there, {acknowledged} was acknowledged"
        return _leftovers(writer, folder, (there or 0) + 1)
    finally:
        atomic._exchange = exchange
        shutil.rmtree(folder, ignore_errors=True)


def _killed(writer: Writer, folder: Path, seconds: float) -> int | None:
    """The last version that a process acknowledged before it was killed."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        for number in range(1, 10_000):
            writer.write(folder, number)
            os.write(send, number.to_bytes(4, "little"))
        os._exit(0)
    os.close(send)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    content = b""
    while piece := os.read(receive, 1 << 16):
        content += piece
    os.close(receive)
    return int.from_bytes(content[-4:], "little") if content else None


def _leftovers(writer: Writer, folder: Path, number: int) -> str | None:
    """Whether the next process writes, and removes what the killed one left."""
    fresh, locks._FRESH_SECONDS = locks._FRESH_SECONDS, -1.0  # an empty leftover would stay for a minute
    try:
        writer.write(folder, number)
    except Exception as error:
        return f"the next one fails: {type(error).__name__}: {error}"
    finally:
        locks._FRESH_SECONDS = fresh
    left = [str(path.relative_to(folder)) for path in folder.rglob(".*")]
    return f"left behind: {left}" if left else None
