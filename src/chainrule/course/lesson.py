"""A lesson: its text, the data of a student, and the grades of answers."""

from __future__ import annotations

import io
import json
import re
import types
from collections.abc import Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.course.cards import Card, to_markdown
from chainrule.course.graders import grader_of
from chainrule.course.graders.difference import show
from chainrule.course.graders.grader import NOT_YET, Grader, State, filled
from chainrule.course.markdown import VIEW_LINK, Code, Exercise, Part, Prose, parts_of
from chainrule.errors import CourseError
from chainrule.system.display import to_html


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise."""

    id: str
    title: str
    points: int
    state: State
    message: str = ""

    def __str__(self) -> str:
        return f"{self.id}  {self.state}" + (f": {self.message}" if self.message else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return to_html([str(self)])


class Lesson:
    """A lesson of the course, with the data of one student.

    >>> lesson(3)
    <lesson 3: Counting, 6 exercises>
    >>> lesson(3).check("1", 3)
    1  wrong: ...
    """

    def __init__(self, path: Path, student: str = "") -> None:
        self.path, self.student = path, student
        self.number = int(path.name.partition("-")[0])
        text = path.read_text(encoding="utf-8")
        self.parts = parts_of(text, path.name)
        head = re.match(r"# Lesson \d+: (.+)\n\nTime: (.+?)\.", text)
        if head is None:
            raise CourseError(
                f"{path.name} should begin with '# Lesson N: Title' and a paragraph 'Time: 40 minutes.'"
            )
        self.title, self.time = head.groups()
        self.exercises = [part for part in self.parts if isinstance(part, Exercise)]
        self.cards = [part for part in self.parts if isinstance(part, Card)]
        self._names_of_cards: dict[int, dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"<lesson {self.number}: {self.title}, {len(self.exercises)} exercises>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    @property
    def call(self) -> str:
        """The call that returns this lesson, in Python."""
        return f"cr.lesson({self.number}" + (f", student={json.dumps(self.student)})" if self.student else ")")

    @cached_property
    def _namespaces(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the exercises use, and the part of it that is the student's data."""
        seed = [self.number, *self.student.encode()]
        names: dict[str, Any] = {"__name__": "lesson", "student_rng": np.random.default_rng(seed)}
        data: dict[str, Any] = {}
        for code in self.parts:
            if isinstance(code, Code) and code.role:
                before = dict(names)
                with redirect_stdout(io.StringIO()):
                    self.run(code, names)
                if code.role == "exercises":
                    data |= {key: names[key] for key in names if names[key] is not before.get(key)}
        return names, {
            key: value
            for key, value in data.items()
            if key[0] != "_" and not callable(value) and not isinstance(value, types.ModuleType)
        }

    @property
    def data(self) -> dict[str, Any]:
        """The names that the exercises give to the student."""
        return deepcopy(self._namespaces[1])

    @property
    def texts(self) -> dict[str, list[str]]:
        """The texts of the lesson, by the names of their files.

        Every list of strings that a shared block or one for exercises names, be they lines or single words, is a
        file: `corpus` is corpus.txt. A name with a leading underscore is none.
        """
        names = {key: value for key, value in self._namespaces[0].items() if key[0] != "_"}
        return {f"{key}.txt": list(value) for key, value in names.items() if _is_text(value)}

    @cached_property
    def graders(self) -> dict[str, Grader]:
        """The graders of the exercises by their ids."""
        names = self._namespaces[0]
        return {one.id: grader_of(one, names, self.path.name) for one in self.exercises}

    def run(self, code: Code, names: dict[str, Any]) -> None:
        """Run a block of Python; an error in it has the line of the lesson's file."""
        exec(compile("\n" * code.line + code.source, self.path.name, "exec"), names)

    def filled(self, text: str, *, live: bool = False) -> str:
        """Replace each {{expression}} of a text by its value; links to views stay only where they work (`live`)."""
        text = filled(text, self._namespaces[0])
        return text if live else VIEW_LINK.sub(r"\1", text)

    @property
    def given(self) -> list[str]:
        """The lines of Python that give the student the data, each with a comment that shows it."""
        texts = self.texts if self.data else {}
        return [
            f'{name} = lesson.data["{name}"]  # ' + (f"{name}.txt" if f"{name}.txt" in texts else show(value))
            for name, value in self.data.items()
        ]

    def check(self, exercise: str | int, answer: Any) -> Grade:
        """Grade the answer to an exercise: right, wrong with a hint, or not yet."""
        for one in self.exercises:
            if one.id == str(exercise):
                state, message = self.graders[one.id].grade(answer)
                return Grade(one.id, one.title, one.points, state, " ".join(message.split()))
        known = ", ".join(one.id for one in self.exercises)
        raise CourseError(f"lesson {self.number} has no exercise {exercise}: it has {known}")

    def check_in(self, names: Mapping[str, Any], exercise: str) -> Grade:
        """Grade the answer to an exercise in a namespace, such as that of a student's file."""
        name = self.graders[exercise].name
        return self.check(exercise, names[name]) if name in names else self.not_yet(exercise)

    def not_yet(self, exercise: str) -> Grade:
        """Return the grade of an exercise that has no answer."""
        (one,) = (one for one in self.exercises if one.id == exercise)
        return Grade(one.id, one.title, one.points, *NOT_YET)

    def show_card(self, number: int, values: Mapping[str, float] | None = None) -> dict[str, float] | str:
        """Return what a card shows, counted from 1: numbers by their labels, or a picture as the text of an SVG."""
        if not 1 <= number <= len(self.cards):
            raise CourseError(
                f"lesson {self.number} has no card {number}: the number of its cards is {len(self.cards)}"
            )
        card = self.cards[number - 1]
        if number not in self._names_of_cards:
            names = dict(self._namespaces[0])
            exec(compile(card.setup, card.title, "exec"), names)
            self._names_of_cards[number] = names
        return card.show(self._names_of_cards[number], values or {})

    def markdown(self, *, drawn: bool = False) -> str:
        """Return the text for a reader: without the code and the tables that only graders need.

        With `drawn`, the cards have their numbers and pictures, which takes a few seconds.
        """
        return "\n\n".join(filter(None, (self._markdown(part, drawn) for part in self.parts))) + "\n"

    def _markdown(self, part: Part, drawn: bool) -> str:
        if isinstance(part, Prose):
            return self.filled(part.text)
        if isinstance(part, Card):
            return to_markdown(part, self.show_card(self.cards.index(part) + 1) if drawn else None)
        if isinstance(part, Exercise):
            blank = f"```python\n{self.graders[part.id].blank}\n```"
            given = (
                [f"```python\nlesson = {self.call}", *self.given, "```\n\n"] if part is self.exercises[0] else []
            )
            return "\n".join(given) + f"### {part.heading}\n\n{self.filled(part.question)}\n\n{blank}"
        if part.role == "exercises":
            return ""
        output = f"\n\n```text\n{part.output}```" if part.output else ""
        return f"```{part.language}\n{part.source}```{output}"

    def write_texts(self, folder: str | Path = ".") -> list[str]:
        """Write the texts of the lesson into a folder, a line for each; return their names."""
        for name, lines in self.texts.items():
            Path(folder, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return list(self.texts)


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(line, str) and line for line in value)


@cache
def lesson_paths() -> dict[int, Path]:
    """Return the files of the lessons by their numbers."""
    found = Path(str(files("chainrule.course").joinpath("lessons"))).glob("*.md")
    return {int(path.name.partition("-")[0]): path for path in sorted(found)}


@cache
def lesson(number: int, student: str = "") -> Lesson:
    """Return a lesson of the course; `student` is a name or number that gives other data to each student.

    >>> lesson(3).check("1", ...)
    1  not yet
    """
    if not student.isprintable():
        raise CourseError(f"{student!r} is no name of a student: write letters, digits and spaces")
    if number not in lesson_paths():
        raise CourseError(f"there is no lesson {number}: there are {', '.join(map(str, lesson_paths()))}")
    return Lesson(lesson_paths()[number], student)
