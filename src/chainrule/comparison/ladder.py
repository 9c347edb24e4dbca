"""The ladder of a comparison: which models are trained."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from chainrule import settings as settings_of
from chainrule.contract.kinds import Kind, LadderEntry, find_kind, kind_names, present_name
from chainrule.errors import ChainruleError, MissingExtraError, PluginError
from chainrule.system.progress import SILENT, Progress

Ladder: TypeAlias = Sequence[tuple[Kind, LadderEntry]]

QUICK, STANDARD, FULL = "quick", "standard", "full"
"""The ladders of the models that kinds declare: a few of them, each family at its best, and all."""

_OWN, _FILE = files("chainrule.comparison").joinpath("ladders"), ".toml"


def find_ladder(
    chosen: str | Path | None = None,
    kinds: Sequence[str] | None = None,
    task: str = "language",
    progress: Progress = SILENT,
) -> list[tuple[Kind, LadderEntry]]:
    """Return the models of a ladder by its name, or those that a file lists; with `kinds`, only those kinds.

    A name is quick, standard, full, or one of `ladder_names`; without one it is standard, and full for named kinds.
    Names of models are unique: if two kinds use the same one, the name of the kind is added.
    """
    chosen = (FULL if kinds else STANDARD) if chosen is None else chosen
    if str(chosen) in (QUICK, STANDARD, FULL):
        every = ladder_entries(kinds, progress, task)
        found = [one for one in every if chosen == FULL or getattr(one[1], str(chosen))]
    else:
        listed = list(_read(str(chosen)))
        if other := next((kind for kind, _ in listed if kind.task != task), None):
            raise ChainruleError(f"{chosen}: the kind {other.name} is for another task: --task {other.task}")
        found = [one for one in listed if not kinds or one[0].name in map(present_name, kinds)]
    if not found:
        of = "" if str(chosen) in (STANDARD, FULL) else f" in the ladder {chosen}"
        raise ChainruleError(
            f"there is no model to compare{of}: no kind of {task} adds one to the ladder (is torch missing?)"
        )
    return _with_unique_names(found)


def ladder_entries(
    kinds: Sequence[str] | None = None, progress: Progress = SILENT, task: str = "language"
) -> Iterator[tuple[Kind, LadderEntry]]:
    """Yield the models that these kinds, or those of a task, add to the ladder; note kinds without a library."""
    missing: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(kinds or kind_names()):
        try:
            if not kinds and find_kind(name, usable=False).task != task:
                continue
            kind = find_kind(name)
        except (MissingExtraError, PluginError) as error:
            if kinds:
                raise
            if isinstance(error, MissingExtraError):
                missing.setdefault((error.library, error.extra), []).append(name)
            else:
                progress.note(f"left out: {error}")
            continue
        if kind.task == task:
            yield from ((kind, entry) for entry in kind.ladder)
        elif kinds:
            raise ChainruleError(f"the kind {name} is for another task: compare it with --task {kind.task}")
    for (library, extra), names in missing.items():
        what = f"the kind {names[0]}" if len(names) == 1 else f"each of the kinds {', '.join(names)}"
        progress.note(f"left out: {MissingExtraError(library, extra, what)}")


# -- ladders in files -------------------------------------------------------------------------------------


def ladder_names() -> list[str]:
    """Return the names of the ladders in files of this package: tables of the lectures.

    >>> ladder_names()
    ['lecture-networks', 'lecture-ngrams']
    """
    return sorted(one.name.removesuffix(_FILE) for one in _OWN.iterdir() if one.name.endswith(_FILE))


def _read(chosen: str) -> Iterator[tuple[Kind, LadderEntry]]:
    """Read a file of tables [[model]] with kind, name, settings and share, in TOML or JSON."""
    path = _OWN / f"{chosen}{_FILE}" if chosen in ladder_names() else Path(chosen)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.name.endswith(".json") else tomllib.loads(text)
    except OSError as error:
        known = ", ".join([QUICK, STANDARD, FULL, *ladder_names()])
        raise ChainruleError(f"{chosen}: there is no such ladder ({error.strerror}): {known}, or a file") from None
    except (ValueError, RecursionError) as error:
        raise ChainruleError(f"{chosen}: the ladder cannot be read: {error}") from None
    if isinstance(content, dict):
        content = content.get("model", content.get("rung"))  # rung: the name of the tables in earlier versions
    if not isinstance(content, list) or not content:
        raise ChainruleError(f"{chosen}: a ladder is a list of [[model]] tables, each with a kind and settings")
    for number, values in enumerate(content, start=1):
        try:
            yield _read_entry(values)
        except MissingExtraError:
            raise
        except ChainruleError as error:
            raise ChainruleError(f"{chosen}, model {number}: {error}") from None


def _read_entry(values: Any) -> tuple[Kind, LadderEntry]:
    known = {"kind", "name", "settings", "share", "tokenizer", "vocab_size"}
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise ChainruleError("it has no kind")
    if unknown := sorted(set(values) - known):
        raise ChainruleError(f"{unknown[0]!r} is not one of {', '.join(sorted(known))}")
    settings, share = values.get("settings", {}), values.get("share", 1.0)
    if not isinstance(settings, dict):
        raise ChainruleError("the settings should be a table")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or share <= 0:
        raise ChainruleError(f"the share of the time should be a number above 0, not {share!r}")
    tokenizer, vocab_size = values.get("tokenizer"), values.get("vocab_size")
    if tokenizer is not None and not isinstance(tokenizer, str):
        raise ChainruleError(f"the tokenizer should be a name or a folder, not {tokenizer!r}")
    if vocab_size is not None and (tokenizer is None or isinstance(vocab_size, bool)):
        raise ChainruleError("vocab_size, a number, is for a model with a tokenizer of its own")
    kind = find_kind(values["kind"])
    settings_of.parse(kind.settings, settings)
    described = " ".join([kind.name, *(f"{key}={value}" for key, value in settings.items())])
    if kind.keeps_run and not settings.keys() & {"minutes", "steps", "epochs"}:
        settings = {"minutes": 1.0, **settings}
    name = str(values.get("name", described))
    return kind, LadderEntry(name, settings, float(share), tokenizer=tokenizer, vocab_size=vocab_size)


def _with_unique_names(ladder: Ladder) -> list[tuple[Kind, LadderEntry]]:
    """Give each model a name, and so a folder, of its own."""
    names = Counter(folder_name(entry.name) for _, entry in ladder)
    taken: set[str] = set()
    found = []
    for kind, entry in ladder:
        name = entry.name if names[folder_name(entry.name)] == 1 else f"{entry.name} ({kind.name})"
        number = 2
        while folder_name(name) in taken:
            name = f"{entry.name} ({kind.name} {number})"
            number += 1
        taken.add(folder_name(name))
        found.append((kind, replace(entry, name=name)))
    return found


def folder_name(name: str) -> str:
    """Return the name of a model's folder.

    >>> folder_name("lstm, two directions")
    'lstm-two-directions'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-")
