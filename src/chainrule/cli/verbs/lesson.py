"""`chainrule lesson`: the course, read and graded in a terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import console, count, echo, emit, print_json, say, wrapped
from chainrule.errors import CourseError
from chainrule.system.display import ResultTable

if TYPE_CHECKING:
    from chainrule.course.grading import Graded
    from chainrule.course.lesson import Lesson

_COLUMNS = 100
_STYLES = {"right": "green", "wrong": "red", "not yet": "dim"}


@click.command(short_help="Read a lesson of the course, and have your answers graded.")
@click.argument("number", type=int, required=False)
@opt.options(
    """
    --start DIR            Make a folder with the texts of the lesson and answers.py, which has blanks.
    --check FILE           Grade a file of answers, or a folder; the exit code is 0 if all are right, else 1.
    --watch                Grade the file each time that it is saved, until all answers are right.
    --notebook FILE : new  Write the lesson as a notebook.
    --overwrite            Replace a notebook that exists.
    --student ID
        Take the data of this student: a name or a number. A folder of --start remembers it, for commands in it.
    --time-limit SECONDS : [0.1,∞) = 120.0
        Stop the answers after this time.
    """,
    student={"default": "", "show_default": True},
)
@opt.json
@click.pass_context
def lesson(
    ctx: click.Context, /, number: int | None, check: str | None, watch: bool, as_json: bool, **options: Any
) -> None:
    """Show lesson NUMBER of the course, or the list of lessons with your progress.

    Begin with `chainrule lesson 3`, then `chainrule lesson 3 --start counting`. Write your answers into
    counting/answers.py, and have them graded: `chainrule lesson 3 --check counting/answers.py`. An answer is right,
    wrong, with a hint, or not yet given. The answers are a program, so check only files that you would run.

    --json prints the grades as Gradescope reads them (results.json).
    """
    start, notebook, student = (options[name] for name in ("start", "notebook", "student"))
    given = {"--start": start, "--check": check, "--notebook": notebook}
    for name, value in given.items():
        if value == "":
            raise click.UsageError(f"{name} needs a name; found an empty one")
    if sum(map(bool, given.values())) > 1:
        raise click.UsageError("--start, --check and --notebook do different things: give one of them")
    if watch and not check:
        raise click.UsageError("--watch grades a file: give it by --check answers.py")
    if watch and as_json:
        raise click.UsageError("--watch is for people: --json grades once")
    if number is None:
        if start or check or notebook:
            raise click.UsageError("which lesson? chainrule lesson 3 --check answers.py")
        _list(as_json)
        return
    from chainrule.course.answers import ANSWERS, record_of
    from chainrule.course.lesson import lesson as lesson_of

    if check and Path(check).is_dir():
        check = str(Path(check, ANSWERS))
    record = record_of(Path(check).parent if check else Path())
    if record is not None and not start:
        if check and record["lesson"] != number:
            raise CourseError(f"{check} has answers to lesson {record['lesson']}, not to lesson {number}")
        if student and check and student != record["student"]:
            raise CourseError(f"{Path(check).parent} is the folder of the student {record['student'] or '(none)'}")
        student = student or str(record["student"])
    chosen = lesson_of(number, student)
    if start:
        from chainrule.course.answers import start as make

        first, *texts = make(chosen, Path(start))
        emit(
            as_json,
            {"folder": start, "files": [first, *texts]},
            f"{start} has {', '.join([first, *texts])}",
            f"fill in {Path(start, first)}, then: chainrule lesson {number} --check {Path(start, first)}",
        )
    elif notebook:
        from chainrule.course.notebook import notebook as made

        Path(notebook).write_text(json.dumps(made(chosen), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        said = f"{notebook} has {count(len(chosen.exercises), 'exercise')}; open it with Jupyter"
        emit(as_json, {"notebook": notebook, "exercises": len(chosen.exercises)}, said)
    elif check:
        ctx.exit(0 if _check(chosen, Path(check), watch, options["time_limit"], as_json) else 1)
    elif as_json:
        print_json(_described(chosen))
    else:
        _show(chosen)


def _list(as_json: bool) -> None:
    """Print the lessons, and how many exercises of each are right in this folder and those in it."""
    from chainrule.course.answers import progress
    from chainrule.course.lesson import lesson as lesson_of
    from chainrule.course.lesson import lesson_paths

    done = progress(Path())
    described = [_described(lesson_of(number)) for number in lesson_paths()]
    for one in described:
        one["right"] = sum(exercise["id"] in done.get(one["number"], ()) for exercise in one["exercises"])
    rows = [
        [str(one["number"]), one["title"], one["time"], f"{one['right']} of {len(one['exercises'])}"]
        for one in described
    ]
    emit(
        as_json,
        described,
        ResultTable(["lesson", "title", "time", "right"], rows, left=[1, 2]),
        "\nchainrule lesson N shows a lesson; progress is that of the folders of --start in this folder",
    )


def _described(one: Lesson) -> dict[str, Any]:
    exercises = [{"id": each.id, "title": each.title, "points": each.points} for each in one.exercises]
    return {"number": one.number, "title": one.title, "time": one.time, "exercises": exercises}


def _show(one: Lesson) -> None:
    """Print a lesson; a terminal shows it in a pager."""
    from rich.markdown import Markdown

    screen = console()
    if screen.is_terminal:
        os.environ.setdefault("LESS", "-FRX")  # colours; a text that fits the screen is just printed
        screen.width = min(screen.width, _COLUMNS)
        with screen.pager(styles=True):
            screen.print(Markdown(one.markdown(), code_theme="ansi_dark"))  # which has no background
    else:
        from chainrule.course.markdown import wrapped as wrapped_markdown

        echo(wrapped_markdown(one.markdown(), _COLUMNS))


def _check(one: Lesson, path: Path, watch: bool, seconds: float, as_json: bool) -> bool:
    """Print the grades of a file, once or at every save; return whether all are right."""
    from chainrule.course.answers import ANSWERS, note, record_of
    from chainrule.course.grading import changes, grade_file

    for _ in changes(path):
        graded = grade_file(one, path, seconds)
        record = record_of(path.parent)
        if record is not None and path.name == ANSWERS:
            note(path.parent, one, graded.grades)
        if graded.printed:
            echo(graded.printed, nl=False, err=True)
        if as_json:
            print_json(graded.to_json())
        else:
            _print(graded)
        if graded.is_right or not watch:
            break
        say(console(), f"waiting for the next save of {path}; Ctrl-C ends\n")
    return graded.is_right


def _print(graded: Graded) -> None:
    from rich.text import Text

    screen = console()
    columns = min(screen.width, _COLUMNS)
    if graded.fault:
        say(screen, f"{wrapped(graded.fault, columns)}\n")
    for grade in graded.grades:
        screen.print(Text(f"{grade.id:>2}  {grade.state:<7}", _STYLES[grade.state]), Text(grade.title))
        if grade.message:
            screen.print(Text(wrapped(grade.message, columns, indent=13)), soft_wrap=True)
    right = sum(grade.state == "right" for grade in graded.grades)
    say(screen, f"{right} of {count(len(graded.grades), 'exercise')} right")
