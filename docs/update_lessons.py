"""Run the code of the lessons, and write what it prints below it; with --check, compare.

    python docs/update_lessons.py [--check] [NUMBER]...

The blocks of a lesson run in order, in a folder that has its texts. Each Python block that prints has its output
below it. What a command prints is written only where an ```output block stands, since times differ from run to run.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from typing import Any

from chainrule.course.lesson import Lesson, lesson, lesson_paths
from chainrule.course.markdown import Code


def outputs(one: Lesson) -> list[tuple[Code, str]]:
    """Run the blocks of a lesson in order; return each with what it prints."""
    names: dict[str, Any] = {"__name__": "lesson"}
    blocks = [part for part in one.parts if isinstance(part, Code) and part.role != "exercises"]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        one.write_texts()
        return [(code, run(one, code, names)) for code in blocks]


def run(one: Lesson, code: Code, names: dict[str, Any]) -> str:
    """Run a block; return what it prints."""
    with redirect_stdout(io.StringIO()) as printed:
        if code.language == "python":
            one.run(code, names)
        else:
            for line in code.source.replace("\\\n", " ").splitlines():
                command(shlex.split(line, comments=True))
    return printed.getvalue()


def command(words: list[str]) -> None:
    """Run a command of chainrule in this process."""
    from chainrule.cli.main import main

    if words:
        try:
            main(words[1:])
        except SystemExit as ended:
            if words[0] != "chainrule" or ended.code:
                raise RuntimeError(f"failed: {shlex.join(words)}") from ended


def updated(one: Lesson) -> str:
    """Return the text of a lesson with its outputs brought up to date."""
    lines = one.path.read_text(encoding="utf-8").splitlines(keepends=True)
    for code, printed in reversed(outputs(one)):
        after = code.line + len(code.source.splitlines()) + 1  # the line below the fence that ends the block
        has_output = "".join(lines[after : after + 2]) == "\n```output\n"
        end = lines.index("```\n", after + 2) + 1 if has_output else after
        if has_output or (code.language == "python" and printed):
            text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
            lines[after:end] = ["\n", "```output\n", text, "```\n"]
    return "".join(lines)


def main(words: list[str]) -> None:
    """Update or check the lessons of these numbers, or all."""
    os.environ["COLUMNS"] = "120"
    is_check = "--check" in words
    for number in [int(word) for word in words if word != "--check"] or lesson_paths():
        one = lesson(number)
        text = updated(one)
        if text != one.path.read_text(encoding="utf-8"):
            if is_check:
                sys.exit(f"{one.path.name}: the outputs differ: run python docs/update_lessons.py {number}")
            one.path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
