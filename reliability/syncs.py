"""What a loss of power would take: every file is synced before it gets its name, and then the folder it is in.

A killed process loses nothing that it wrote, so neither kills nor faults show a missing sync.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chainrule.system.disk import atomic

from .frame import FAST, Trial
from .writers import COMMANDS, WRITERS, Writer


def run(trial: Trial) -> None:
    """Write each thing twice, again and again, by exchanged names and by two renames."""
    writers = {writer.name: writer for writer in [*WRITERS, *COMMANDS]}
    names = trial.chosen(list(writers))
    for number in trial:
        name = names[number // 2 % len(names)]
        problems = _unsynced(writers[name], exchanges=number % 2 == 0)
        trial.note(name, "; ".join(problems) or None)


def _unsynced(writer: Writer, *, exchanges: bool) -> list[str]:
    """What got its name before it was synced, and the folders that were not synced after that."""
    synced: dict[int, tuple[int, int]] = {}
    problems: list[str] = []
    renamed: set[Path] = set()
    fsync, exchange = os.fsync, atomic._exchange

    def note(descriptor: int) -> None:
        fsync(descriptor)
        stat = os.fstat(descriptor)
        synced[stat.st_ino] = _content(stat)
        renamed.difference_update([path for path in renamed if path.stat().st_ino == stat.st_ino])

    def look(new: Any, place: Any) -> None:
        if Path(place).name.startswith(".") or Path(name) not in Path(place).parents:
            return  # put aside, or made to be written: a model is trained when it is first asked for
        for path in [Path(new), *Path(new).rglob("*")]:
            stat = path.stat()
            if synced.get(stat.st_ino) != _content(stat):
                problems.append(f"{path.suffix or path.name[:9]} was not synced before it was renamed")
        renamed.add(Path(place).parent)

    def first(real: Callable[..., Any]) -> Callable[..., Any]:
        def rename(new: Any, place: Any, *args: Any, **options: Any) -> Any:
            look(new, place)
            return real(new, place, *args, **options)

        return rename

    swaps = first(exchange) if exchanges else lambda one, other: False
    with (
        tempfile.TemporaryDirectory(prefix="trial-", dir=FAST) as name,
        patch.object(os, "fsync", note),
        patch.object(os, "rename", first(os.rename)),
        patch.object(os, "replace", first(os.replace)),
        patch.object(atomic, "_exchange", swaps),
    ):
        for number in (2, 4):
            writer.write(Path(name), number)
        problems += [f"the folder {path.relative_to(name)} was not synced" for path in renamed]
    return problems


def _content(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_size, stat.st_mtime_ns
