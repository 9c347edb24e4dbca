"""Make docs/lectures.md of the rows of tests/lectures, which are run as tests; with --check, compare.

python docs/update_lectures.py [--check]
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.lectures import FOLDER, Lecture, Row, lectures  # noqa: E402

from chainrule.course.lesson import Lesson, lesson_paths  # noqa: E402

PAGE = ROOT / "docs" / "lectures.md"
LINKED = ("docs/", "src/", "examples/", "benchmarks/results/")
"""Where files are to which a link leads, on a code host and on the site."""
MOST_LINES = 40
"""A longer text is named, not shown."""
INTRODUCTION = """<!-- written by docs/update_lectures.py from tests/lectures -->
# The lectures, item by item

The tables have every item of the five lectures in its order: how to see it, the number to compare with, and the
[lesson](course.md) that teaches it. `python -m tests.lectures 0.2 2.51` runs rows by their numbers in a copy of
the repository, and without numbers all of them; they are tests, too. Where the convention of a slide differs from
that of chainrule, the row says so.

*Code* is a few lines of Python in the file of the rows. [From the lectures to the code](lectures-files.md) has, for
each concept, the file that implements its equation.

"""


def main(words: list[str]) -> None:
    """Write the page, or with --check exit with 1 if it is out of date."""
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if (new := page()) == old:
        return
    if "--check" in words:
        sys.exit("docs/lectures.md is out of date; run `make docs`")
    PAGE.write_text(new, encoding="utf-8")


def page() -> str:
    """Return the page: the lessons, what all commands need, and a table for each lecture."""
    shared = tomllib.loads((FOLDER / "shared.toml").read_text(encoding="utf-8"))
    every = list(lectures())
    parts = [INTRODUCTION, lessons(every), "## Texts and models\n\n"]
    parts += ["The commands of all lectures use these:\n\n", preparation(shared["texts"], shared["models"])]
    for one in every:
        texts = {name: text for name, text in one.texts.items() if name not in shared["texts"]}
        models = {name: made for name, made in one.models.items() if name not in shared["models"]}
        parts += [f"## Lecture {one.name}: {one.title}\n\n", rows(one)]
        if texts or models:
            parts += ["Its texts and models:\n\n", preparation(texts, models)]
    return "".join(parts).rstrip() + "\n"


def lessons(every: Iterable[Lecture]) -> str:
    """Return the table of lessons, with the items that each teaches."""
    all_rows = [row for lecture in every for row in lecture.rows]
    cells = []
    for number, path in lesson_paths().items():
        taught = ", ".join(row.row for row in all_rows if row.lesson == number)
        one = Lesson(path)
        cells.append([str(number), f"[{one.title}]({relative(path)})", one.time, str(len(one.exercises)), taught])
    return "## Lessons\n\n" + table(["lesson", "title", "time", "exercises", "items"], cells)


def rows(lecture: Lecture) -> str:
    """Return the items of a lecture; its part is named where it begins."""
    cells, before = [], ""
    for row in lecture.rows:
        part, before = "" if row.part == before else row.part, row.part
        compare = row.number + (f"{'. ' if row.number else ''}Differs: {row.differs}" if row.differs else "")
        shown = shown_by(row, lecture)
        cells.append([row.row, plain(part), plain(row.item), shown, plain(compare), lesson_link(row.lesson)])
    return table(["item", "part", "what it says", "how to see it", "compare with", "lesson"], cells)


def shown_by(row: Row, lecture: Lecture) -> str:
    """Return the commands, the code or the page that shows an item."""
    if row.command:
        return ", then ".join(code(line) for line in row.command.strip().splitlines())
    if row.python:
        return f"[code](../tests/lectures/{lecture.name}.toml)"
    path = row.prose.partition(":")[0]
    return f"[{Path(path).name}]({relative(ROOT / path)})" if path.startswith(LINKED) else code(path)


def lesson_link(number: int) -> str:
    """Return the number of a lesson as a link."""
    return f"[{number}]({relative(lesson_paths()[number])})"


def relative(path: Path) -> str:
    """Return a path as a link of the page."""
    return Path(os.path.relpath(path, PAGE.parent)).as_posix()


def preparation(texts: Mapping[str, str], models: Mapping[str, str]) -> str:
    """Return the commands that write texts and make models, as a block to paste."""
    lines = []
    for name, text in texts.items():
        if text.count("\n") > MOST_LINES:
            lines.append(f"# {name} has {text.count(chr(10))} lines: tests/lectures has them\n")
        else:
            lines.append(f"cat > {name} <<'END'\n{text if text.endswith(chr(10)) else text + chr(10)}END\n")
    lines += [f"{command.strip()}\n" for command in models.values()]
    return f"```sh\n{''.join(lines)}```\n\n" if lines else ""


def table(head: list[str], cells: Iterable[list[str]]) -> str:
    """Return a table of Markdown; a bar inside a cell is escaped."""
    lines = [
        head,
        ["---"] * len(head),
        *([" ".join(cell.split()).replace("|", r"\|") for cell in row] for row in cells),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def plain(text: str) -> str:
    """Return words in which only backticks are markup: <s> is no tag, and a star no emphasis."""
    return re.sub(r"`[^`]*`|[<*$]", lambda found: f"\\{found[0]}" if len(found[0]) == 1 else found[0], text)


def code(text: str) -> str:
    """Return a text as code, between more backticks than it has."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    main(sys.argv[1:])
