"""The folder of a student: the texts of a lesson, answers.py with blanks, and a record of what is right."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

from chainrule._version import __version__
from chainrule.course.lesson import Grade, Lesson
from chainrule.course.markdown import wrapped
from chainrule.errors import CourseError

ANSWERS, RECORD = "answers.py", "lesson.json"
_COLUMNS = 100


def start(lesson: Lesson, folder: Path) -> list[str]:
    """Make the folder of a lesson; return the names of its files."""
    if folder.exists() and not folder.is_dir():
        raise CourseError(f"{folder} is a file: choose another name for the folder")
    for name in (ANSWERS, RECORD):
        if (folder / name).exists():
            raise CourseError(f"{folder} has a file {name} already: choose another folder, or go on in this one")
    folder.mkdir(parents=True, exist_ok=True)
    texts = lesson.write_texts(folder)
    (folder / ANSWERS).write_text(blanks(lesson), encoding="utf-8")
    note(folder, lesson, [])
    return [ANSWERS, *texts]


def blanks(lesson: Lesson) -> str:
    """Return answers.py: the student's data, each question as a comment, and a blank below it."""
    lines = [f'"""Answers to lesson {lesson.number}, {lesson.title}.', ""]
    lines += ["Replace each `...` and each `raise NotImplementedError` by your answer, then run", ""]
    lines += [f"    chainrule lesson {lesson.number} --check {ANSWERS}", ""]
    lines += ["A number is right within 0.5 %, in a list within 0.5 % of the largest: three digits are enough."]
    own = ["import numpy as np", "import chainrule as cr"]
    trees = [ast.parse(grader.blank).body for grader in lesson.graders.values()]
    more = [ast.unparse(one) for tree in trees for one in tree if isinstance(one, (ast.Import, ast.ImportFrom))]
    lines += ["A count has to be exact.", '"""', "", *dict.fromkeys([*own, *more]), ""]
    lines += [f"lesson = {lesson.call}", *lesson.given]
    for exercise in lesson.exercises:
        lines += ["", "", "# " + "-" * (_COLUMNS - 2), f"# {exercise.heading}", "#"]
        question = wrapped(lesson.filled(exercise.question), _COLUMNS - 2)
        lines += [f"# {line}".rstrip() for line in [*question.splitlines(), ""]]
        code = lesson.graders[exercise.id].blank.splitlines()
        lines += ["\n".join(line for line in code if not line.startswith(("import ", "from "))).strip()]
    return "\n".join(lines) + "\n"


def note(folder: Path, lesson: Lesson, grades: Sequence[Grade]) -> None:
    """Write the record of a folder: the lesson, the student, and the exercises that are right."""
    right = [grade.id for grade in grades if grade.state == "right"]
    record = {"lesson": lesson.number, "student": lesson.student, "chainrule": __version__, "right": right}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def record_of(folder: Path) -> dict[str, object] | None:
    """Return the record of a folder; None if it has none."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        types = {"lesson": int, "student": str, "right": list}
        return found if all(isinstance(found.get(name), of) for name, of in types.items()) else None
    except (OSError, ValueError, AttributeError):
        return None


def progress(folder: Path) -> dict[int, set[str]]:
    """Return the exercises that are right, by lesson: those of this folder and of the folders in it."""
    done: dict[int, set[str]] = {}
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        record = record_of(place)
        if record is not None:
            done.setdefault(int(str(record["lesson"])), set()).update(map(str, record["right"]))  # type: ignore[call-overload]
    return done
