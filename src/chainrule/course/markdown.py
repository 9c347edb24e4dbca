"""A lesson as it is written: Markdown, divided into prose, code, cards and exercises."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from markdown_it import MarkdownIt

from chainrule.course.cards import Card
from chainrule.errors import CourseError

VIEW_LINK = re.compile(r"\[([^\]\n]+)\]\(view:([^)\s]+)\)")
"""A link to a view of the server's page, such as [Tokens](view:tokens?text=love+cats): its words, the view."""
_ITEM = re.compile(r"(- |\d+\. )")
_EXERCISE = re.compile(r"### Exercise (\w+) (★{1,3}) (.+)")


@dataclass(frozen=True)
class Prose:
    """Text between blocks of code."""

    text: str


@dataclass(frozen=True)
class Code:
    """A block of Python or of commands, and what it prints."""

    language: str
    """python or sh."""
    role: str
    """shared: exercises use its names too; exercises: makes what exercises need, and no reader sees it."""
    source: str
    line: int
    """The line of the file before the first of the block."""
    output: str = ""


@dataclass(frozen=True)
class Exercise:
    """An exercise: the question for the student, and the table that says how an answer is graded."""

    id: str
    title: str
    points: int
    question: str
    spec: dict[str, Any]
    line: int

    @property
    def heading(self) -> str:
        """The exercise in a few words."""
        return f"Exercise {self.id} {'★' * self.points} {self.title}"


Part: TypeAlias = Prose | Code | Card | Exercise


def parts_of(text: str, name: str) -> list[Part]:
    """Divide a lesson into its parts; `name` is that of the file, for errors.

    >>> parts_of("# Sums\\n\\n```python\\nprint(1 + 1)\\n```\\n\\n```output\\n2\\n```\\n", "sums.md")
    [Prose(text='# Sums'), Code(language='python', role='', source='print(1 + 1)\\n', line=3, output='2\\n')]
    """
    parts: list[Part] = []
    lines, start, heading = text.splitlines(keepends=True), 0, None

    def prose(end: int) -> str:
        return "".join(lines[start:end]).strip()

    for kind, first, after, info, content in _blocks(text):
        where = f"{name}, line {first + 1}"
        if kind == "heading_open":
            found = _EXERCISE.fullmatch(lines[first].strip())
            if heading is not None:
                raise CourseError(f"{where}: the exercise before it has no block ```exercise")
            if found is not None:
                parts.append(Prose(prose(first)))
                heading, start = found, after
        elif info[0] == "exercise":
            if heading is None:
                raise CourseError(f"{where}: a line such as '### Exercise 1 ★ Title' is missing")
            spec = _table(content, where)
            parts.append(Exercise(heading[1], heading[3], len(heading[2]), prose(first), spec, first + 1))
            heading, start = None, after
        elif info[0] in ("card", "python", "sh") and heading is None:
            parts.append(Prose(prose(first)))
            if info[0] == "card":
                parts.append(_card(content, where, first + 1))
            else:
                parts.append(Code(info[0], info[1], content, first + 1))
            start = after
        elif info[0] == "output" and heading is None:
            before = parts[-1] if parts else None
            if not isinstance(before, Code) or prose(first):
                raise CourseError(f"{where}: ```output belongs right below the code that prints it")
            parts[-1] = replace(before, output=content)
            start = after
    parts.append(Prose(prose(len(lines))))
    return [part for part in parts if part != Prose("")]


def wrapped(text: str, columns: int) -> str:
    """Wrap the prose of a Markdown text; code, tables and headings stay as they are.

    >>> print(wrapped("- one two three four\\n- five n - 1\\n\\n    code that is long and stays", 12))
    - one two
      three four
    - five n - 1
    <BLANKLINE>
        code that is long and stays
    """
    found: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        # at the beginning of a line, each of these signs would begin a list or a quotation
        joined = re.sub(r" ([-+*>]) ", "\xa0\\1 ", " ".join(paragraph))
        item = _ITEM.match(joined)
        how: Any = {"break_long_words": False, "break_on_hyphens": False}
        lines = textwrap.wrap(joined, columns, subsequent_indent=" " * len(item[0]) if item else "", **how)
        found.extend(line.replace("\xa0", " ") for line in lines)
        paragraph.clear()

    is_code = False
    for line in text.splitlines():
        is_fence = line.startswith("```")
        is_code ^= is_fence
        if is_code or is_fence or not line.strip() or line.startswith(("|", "#", "    ")):
            end()
            found.append(line)
        else:
            if _ITEM.match(line):
                end()
            paragraph.append(line.strip())
    end()
    return "\n".join(found)


def _blocks(text: str) -> Iterator[tuple[str, int, int, list[str], str]]:
    """Yield headings and fenced blocks: type, first line, line after it, words behind the fence, content."""
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("heading_open", "fence") and token.level == 0 and token.map is not None:
            yield token.type, token.map[0], token.map[1], [*token.info.split(), ""], token.content


def _card(text: str, where: str, line: int) -> Card:
    try:
        card = Card(line=line, **_table(text, where))
        card.check()
    except TypeError as error:
        raise CourseError(f"{where}: {str(error).partition('__init__() ')[2]}") from error
    except CourseError as error:
        raise CourseError(f"{where}: {error}") from error
    return card


def _table(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{where}: the block is not TOML: {error}") from error
