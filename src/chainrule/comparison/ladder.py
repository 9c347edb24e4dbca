"""The ladder that a comparison climbs: which models, and how the time is shared among them."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from chainrule import settings as settings_of
from chainrule.contract.kinds import Kind, Rung, Task, find_kind, kind_names
from chainrule.errors import ChainruleError, MissingExtraError, PluginError
from chainrule.system.progress import SILENT, Progress

Ladder: TypeAlias = Sequence[tuple[Kind, Rung]]

QUICK, FULL = "quick", "full"
"""The ladders of what kinds bring with them: a few models that show the way, and all of them."""

MINUTES = 4.0
"""The time of a comparison of language models where none is given."""

_OWN, _FILE = files("chainrule.comparison").joinpath("ladders"), ".toml"
_MEASURING = 0.12  # of a network's time, for measuring it
_LEAST_SECONDS = 1.0  # a network gets at least that much, however late it is


def find_ladder(
    chosen: str | Path = FULL,
    kinds: Sequence[str] | None = None,
    task: Task = "language",
    progress: Progress = SILENT,
) -> list[tuple[Kind, Rung]]:
    """The rungs of a ladder by its name, or those that a file lists; with `kinds`, those of these kinds alone.

    A name is quick, full, or one of `ladder_names`. No two rungs have one name: where kinds of two packages agree
    on one, the name of the kind is added.
    """
    if str(chosen) in (QUICK, FULL):
        found = [(kind, rung) for kind, rung in rungs(kinds, progress, task) if chosen == FULL or rung.quick]
    else:
        found = [
            (kind, rung)
            for kind, rung in _read(str(chosen))
            if _fits(kind, task, str(chosen)) and (not kinds or kind.name in kinds)
        ]
    if not found:
        of = "" if str(chosen) == FULL else f" in the ladder {chosen}"
        raise ChainruleError(f"there is no model to compare{of}: no kind of {task} adds a rung (is torch missing?)")
    return _told_apart(found)


def rungs(
    kinds: Sequence[str] | None = None, progress: Progress = SILENT, task: Task = "language"
) -> Iterator[tuple[Kind, Rung]]:
    """The rungs of every kind of a task, or of the named ones: kinds of other tasks share no scale with these.

    A kind whose library is missing is noted and left out.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(kinds or kind_names()):
        try:
            kind = find_kind(name)
        except MissingExtraError as error:
            if kinds:
                raise
            missing.setdefault((error.library, error.extra), []).append(name)
            continue
        except PluginError as error:
            if kinds:
                raise
            progress.note(f"left out: {error}")
            continue
        if kind.task != task:
            if kinds:
                raise ChainruleError(f"the kind {name} is for another task: compare it with --task {kind.task}")
            continue
        for rung in kind.ladder:
            yield kind, rung
    for (library, extra), names in missing.items():
        what = f"the kind {names[0]}" if len(names) == 1 else f"each of the kinds {', '.join(names)}"
        left_out = MissingExtraError(library, extra, what)
        progress.note(f"left out: {left_out}")


# -- ladders in files -------------------------------------------------------------------------------------


def ladder_names() -> list[str]:
    """The ladders in files of this package, by name: tables of the lectures."""
    return sorted(one.name.removesuffix(_FILE) for one in _OWN.iterdir() if one.name.endswith(_FILE))


def _read(chosen: str) -> Iterator[tuple[Kind, Rung]]:
    """The rungs of a file: a list of tables [[rung]] with kind, name, settings and share, in TOML or JSON."""
    path = _OWN / f"{chosen}{_FILE}" if chosen in ladder_names() else Path(chosen)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.name.endswith(".json") else tomllib.loads(text)
    except OSError as error:
        known = ", ".join([QUICK, FULL, *ladder_names()])
        raise ChainruleError(f"{chosen}: there is no such ladder ({error.strerror}): {known}, or a file") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ChainruleError(f"{chosen}: the ladder cannot be read: {error}") from None
    listed = content.get("rung") if isinstance(content, dict) else content
    if not isinstance(listed, list) or not listed:
        raise ChainruleError(f"{chosen}: a ladder is a list of [[rung]] tables, each with a kind and settings")
    for number, entry in enumerate(listed, start=1):
        yield _rung(entry, f"{chosen}, rung {number}")


def _rung(entry: Any, where: str) -> tuple[Kind, Rung]:
    known = {"kind", "name", "settings", "share"}
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise ChainruleError(f"{where}: it has no kind")
    if unknown := sorted(set(entry) - known):
        raise ChainruleError(f"{where}: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    values, share = entry.get("settings", {}), entry.get("share", 1.0)
    if not isinstance(values, dict):
        raise ChainruleError(f"{where}: the settings should be a table")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or share <= 0:
        raise ChainruleError(f"{where}: the share of the time should be a number above 0, not {share!r}")
    kind = find_kind(entry["kind"])
    try:
        settings_of.parse(kind.settings, values)
    except ChainruleError as error:
        raise ChainruleError(f"{where}: {error}") from None
    named = " ".join([kind.name, *(f"{key}={value}" for key, value in values.items())])
    timed = {"minutes": 1.0, **values} if kind.keeps_run and not _has_length(values) else values
    return kind, Rung(str(entry.get("name", named)), timed, float(share))


def _has_length(values: Mapping[str, Any]) -> bool:
    return any(name in values for name in ("minutes", "steps", "epochs"))


def _fits(kind: Kind, task: Task, chosen: str) -> bool:
    if kind.task != task:
        raise ChainruleError(f"{chosen}: the kind {kind.name} is for another task: --task {kind.task}")
    return True


def _told_apart(ladder: Ladder) -> list[tuple[Kind, Rung]]:
    """The rungs, each with a name, and so a folder, of its own."""
    names = Counter(folder_name(rung.name) for _, rung in ladder)
    taken: set[str] = set()
    found = []
    for kind, rung in ladder:
        name = rung.name if names[folder_name(rung.name)] == 1 else f"{rung.name} ({kind.name})"
        number = 2
        while folder_name(name) in taken:
            name = f"{rung.name} ({kind.name} {number})"
            number += 1
        taken.add(folder_name(name))
        found.append((kind, replace(rung, name=name)))
    return found


def folder_name(name: str) -> str:
    """The name of the folder of a rung's model."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


# -- the time ---------------------------------------------------------------------------------------------


@dataclass
class Budget:
    """The time of a comparison: models that are counted take what they need, and networks share the rest.

    A network's share is of the time that is left when its turn comes, so what one does not use goes to the next.
    """

    minutes: float | None
    """All of the time; None: every network has the minutes of its own rung."""
    spent: float = 0.0
    """Seconds that an earlier part of the comparison took."""
    began: float = field(default_factory=time.perf_counter)

    def within(self, rung: Rung, waiting: Sequence[Rung]) -> Rung:
        """The rung with the minutes it may train; `waiting` are those after it."""
        if self.minutes is None or "minutes" not in rung.settings:
            return rung
        shares = rung.share + sum(other.share for other in waiting if "minutes" in other.settings)
        left = 60 * self.minutes - self.spent - (time.perf_counter() - self.began)
        seconds = max(_LEAST_SECONDS, left * rung.share / shares * (1 - _MEASURING))
        return replace(rung, settings={**rung.settings, "minutes": round(seconds / 60, 4)})
