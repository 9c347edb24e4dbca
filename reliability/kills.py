"""Processes that are killed while they write: what was acknowledged is there, whole, and nothing stays behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from random import Random

from chainrule.system.disk import atomic, locks

from .frame import FAST, Trial
from .writers import WRITERS, Writer


def run(trial: Trial) -> None:
    """Kill processes that write each thing in turn, by exchanged names and by two renames."""
    writers = {writer.name: writer for writer in WRITERS}
    names = trial.chosen(list(writers))
    seconds = {name: _duration(writers[name]) for name in names}
    for number in trial:
        name = names[number % len(names)]
        share = Random(f"{trial.seed} {number}").random()
        after = 0.001 + 3 * seconds[name] * share**2  # in the first write, or a later one
        trial.note(name, kill_once(writers[name], after, exchanges=number // len(names) % 2 == 0))


def _duration(writer: Writer) -> float:
    """How long a write takes, when what is compiled or cached on first use is there."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        writer.write(Path(folder), 0)
        writer.version(Path(folder))
        began = time.perf_counter()
        writer.write(Path(folder), 1)
        return time.perf_counter() - began


def kill_once(writer: Writer, after: float, *, exchanges: bool) -> str | None:
    """Kill a process that writes version after version; returns what is wrong afterwards, None if nothing is.

    It is killed `after` so many seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=FAST))
    exchange = atomic._exchange
    if not exchanges:
        atomic._exchange = lambda one, other: False
    try:
        acknowledged = _killed(writer, folder, after)
        try:
            there = writer.version(folder)
        except Exception as error:
            return f"after {acknowledged}: {type(error).__name__}: {error}"
        if writer.cycle and there is not None:  # whole is all that can be told
            there = acknowledged or 0
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
