"""Every item of the five lectures, shown by running it.

    python -m tests.lectures [NUMBER ...]

A lecture is a file of rows, 000.toml to 004.toml. A row has a number, the part of the lecture, the item, and one
way to show it:

    command   commands of chainrule, one on a line; `shows` are texts that their outputs have
    python    code of which the last line is a condition that holds; `shows` may have texts that it prints
    prose     a page and words of it, where the item is an explanation

`number` is the value to compare with, `lesson` the lesson that teaches the item, and `differs` says where ours
follows another convention than the slide. docs/lectures.md is made of the same rows (docs/update_lectures.py), so
what the page says is what was run.

[texts] are files that stand in the folder; [models] are commands that make models, each run when a row first names
its folder.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


@dataclass(frozen=True)
class Row:
    """An item of a lecture, and how it is shown."""

    row: str
    part: str
    item: str
    command: str = ""
    python: str = ""
    prose: str = ""
    """A file of the project, and after a colon the words that it has to contain."""
    shows: list[str] = field(default_factory=list)
    number: str = ""
    lesson: int = 0
    differs: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.command, self.python, self.prose))) != 1:
            raise ValueError(f"row {self.row} needs a command, python or prose")
        if not self.shows and not self.prose and not _has_condition(self.python):
            raise ValueError(f"row {self.row} cannot fail: it needs `shows`, or python that ends with a condition")


@dataclass(frozen=True)
class Lecture:
    """The rows of a lecture, with the texts and models that they use."""

    name: str
    title: str
    rows: list[Row]
    texts: dict[str, str]
    models: dict[str, str]


def lectures() -> Iterator[Lecture]:
    """Yield the lectures in order; texts and models of `shared.toml` belong to each."""
    shared = tomllib.loads((FOLDER / "shared.toml").read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("0*.toml")):
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        yield Lecture(
            path.stem,
            read["title"],
            [Row(**row) for row in read["row"]],
            {**shared["texts"], **read.get("texts", {})},
            {**shared["models"], **read.get("models", {})},
        )


class Bench:
    """A folder in which rows of a lecture are run."""

    def __init__(self, lecture: Lecture, folder: Path) -> None:
        self.lecture, self.folder = lecture, folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in lecture.texts.items():
            (folder / name).write_text(text, encoding="utf-8")

    def check(self, row: Row) -> str | None:
        """Run a row; return what is wrong with it, or None."""
        try:
            with contextlib.chdir(self.folder):
                self._make(row.command + row.python)
                printed = self._printed(row)
        except Exception:
            return traceback.format_exc(limit=-3)
        missing = [text for text in row.shows if _plain(text) not in _plain(printed)]
        return None if not missing else f"the output has no {missing}:\n{printed}"

    def _printed(self, row: Row) -> str:
        if row.prose:
            path, _, words = row.prose.partition(":")
            text = _plain((ROOT / path).read_text(encoding="utf-8"))
            if not words or _plain(words) not in text:
                raise AssertionError(f"{path} does not say {words!r}")
            return text
        if row.command:
            return "".join(run(line) for line in row.command.strip().splitlines())
        return _run_python(row.python)

    def _make(self, source: str) -> None:
        """Train the models that commands or code name, and those that these need."""
        for name, command in self.lecture.models.items():
            if re.search(rf"\b{re.escape(name)}\b", source) and not Path(name).exists():
                needed = command.replace(f"--out {name}", "")
                if re.search(rf"\b{re.escape(name)}\b", needed):
                    raise ValueError(f"the name of the model {name} is a word of its own command")
                self._make(needed)
                run(command)


def run(line: str) -> str:
    """Run a command of chainrule in this process; return what it prints."""
    from chainrule.cli.main import main

    words = shlex.split(line)
    if words[:1] != ["chainrule"]:
        raise ValueError(f"not a command of chainrule: {line}")
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "200"
        try:
            main(words[1:])
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"{line}: exit status {ended.code}\n{out.getvalue()}") from None
        finally:
            os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return out.getvalue()


def _has_condition(source: str) -> bool:
    """Return True for code whose last line is a condition, which `print` is not."""
    last = ast.parse(source).body[-1:]
    return bool(last) and isinstance(last[0], ast.Expr) and not ast.unparse(last[0]).startswith("print(")


def _run_python(source: str) -> str:
    """Run code whose last line is a condition; return what it prints."""
    tree = ast.parse(source)
    names: dict[str, Any] = {"__name__": "row"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        *first, last = tree.body
        exec(compile(ast.Module(first, []), "row", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "row", "eval"), names)
            if not isinstance(last.value, ast.Call) or value is not None:
                assert value, f"not so: {ast.unparse(last)}"
        else:
            exec(compile(ast.Module([last], []), "row", "exec"), names)
    return out.getvalue()


def _plain(text: str) -> str:
    """Return a text with single spaces, so that the width of a table or a line does not matter."""
    return " ".join(text.split())
