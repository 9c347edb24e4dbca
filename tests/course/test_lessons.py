"""Every lesson: its code prints what it says, solutions are right, blanks are not, wrong answers get hints."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import chainrule as cr
from chainrule.course.answers import blanks
from chainrule.course.graders.claim import Claim
from chainrule.course.graders.grader import filled
from chainrule.course.lesson import lesson_paths
from chainrule.course.markdown import Code, Prose
from chainrule.course.notebook import notebook

ROOT = Path(__file__).parents[2]
NUMBERS = list(lesson_paths())
STUDENTS = ["", "ann", "1234567"]


def solutions(number: int, student: str) -> dict[str, Any]:
    path = Path(__file__).parent / "solutions" / f"{number:02}.py"
    return dict(runpy.run_path(str(path))["answers"](student))


@pytest.mark.parametrize("number", NUMBERS)
def test_code_runs_and_prints_what_the_lesson_says(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    update = runpy.run_path(str(ROOT / "docs" / "update_lessons.py"))
    one = cr.lesson(number)
    assert update["updated"](one) == one.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_solutions_are_right(number: int, student: str) -> None:
    one, answers = cr.lesson(number, student), solutions(number, student)
    grades = [one.check_in(answers, exercise.id) for exercise in one.exercises]
    assert [grade for grade in grades if grade.state != "right"] == []


@pytest.mark.parametrize("number", NUMBERS)
def test_blanks_are_not_yet_answers(number: int) -> None:
    one, names = cr.lesson(number), {"__name__": "answers"}
    exec(compile(blanks(one), "answers.py", "exec"), names)
    assert all(grader.name in names for grader in one.graders.values())
    assert {one.check_in(names, exercise.id).state for exercise in one.exercises} == {"not yet"}


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_each_known_wrong_answer_gets_its_hint(number: int, student: str) -> None:
    one = cr.lesson(number, student)
    known = [(grader, wrong) for grader in one.graders.values() for wrong in grader.wrong]
    assert len(known) >= len(one.exercises)
    answers = solutions(number, student)
    for grader, wrong in known:
        answer = grader.value(wrong["value"])
        if isinstance(grader, Claim):  # the known wrong answer is the name that is claimed
            answer = claiming(answer, answers[grader.name])
        grade = one.check(grader.id, answer)
        assert (grade.state, grade.message) == ("wrong", filled(wrong["hint"], grader.names)), wrong


def claiming(name: str, right: Any) -> Any:
    """Return the right answer to a claim, with another name for the better model."""
    return lambda folder: (right(folder)[0], name)


@pytest.mark.parametrize("number", NUMBERS)
def test_students_have_other_data_and_other_answers(number: int) -> None:
    ann, bob = cr.lesson(number, "ann"), cr.lesson(number, "bob")
    assert repr(ann.data) != repr(bob.data)
    answers = solutions(number, "ann")
    assert "wrong" in {bob.check_in(answers, exercise.id).state for exercise in bob.exercises}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_has_the_usual_form(number: int) -> None:
    one = cr.lesson(number)
    prose = "\n\n".join(part.text for part in one.parts if isinstance(part, Prose))
    assert 600 <= len(re.findall(r"\w+", prose)) <= 1500
    assert 4 <= len(one.exercises) <= 7
    assert [exercise.id for exercise in one.exercises] == [str(i + 1) for i in range(len(one.exercises))]
    assert "\n## Summary\n" in prose and "\n## Exercises" in prose
    # what a page would take for HTML, such as <s>, has to be code
    text = one.markdown()
    tokens = [child for token in MarkdownIt().parse(text) for child in token.children or [token]]
    assert [token.content for token in tokens if token.type.startswith("html")] == []
    assert "{{" not in text
    assert max(map(len, one.path.read_text(encoding="utf-8").splitlines())) < 200


@pytest.mark.parametrize("number", NUMBERS)
def test_the_cells_for_answers_of_its_notebook_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = json.loads(json.dumps(notebook(cr.lesson(number))))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in made["cells"]:
        source = "".join(cell["source"])
        if source.startswith("!"):
            assert not set("{}$") & set(source), "Jupyter would replace these by values of Python"
        elif cell["cell_type"] == "code":
            assert cell["outputs"] == []
            code = compile(source, cell["id"], "exec")
            if "lesson" in source:  # the others are the code of the lesson, which is run above
                exec(code, names)
    assert sum("lesson.check(" in "".join(cell["source"]) for cell in made["cells"]) == len(
        cr.lesson(number).exercises
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of the libraries that run a notebook
@pytest.mark.parametrize("number", NUMBERS)
def test_its_notebook_runs_in_jupyter(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # where chainrule is
    monkeypatch.setenv("PYTHONPATH", str(Path(cr.__file__).parents[1]))
    opened: Any = nbformat.reads(json.dumps(notebook(cr.lesson(number))), as_version=4)
    nbformat.validate(opened)
    commands = [cell for cell in opened.cells if cell.source.startswith("!")]
    for cell in commands:  # a command that fails is no error of a notebook
        cell.source = "\n".join(f"{line}\nassert _exit_code == 0, {line!r}" for line in cell.source.splitlines())
    has_commands = any(isinstance(part, Code) and part.language == "sh" for part in cr.lesson(number).parts)
    assert bool(commands) == has_commands
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(opened, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in opened.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output.text for output in outputs if "not found" in output.get("text", "")]
    shown = [output.data["text/plain"] for output in outputs if "data" in output]
    assert sum("not yet" in text for text in shown) == len(cr.lesson(number).exercises)
