"""`chainrule lesson`: folders, files of answers, grades, and what a student's code may do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.cli.main import main
from chainrule.course.grading import grade_file
from chainrule.errors import CourseError

Run = Callable[..., tuple[Any, str, str]]
SOLUTIONS = Path(__file__).parent / "solutions" / "03.py"
RIGHT = f"import runpy\nglobals().update(runpy.run_path({str(SOLUTIONS)!r})['answers']({{student!r}}))\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`chainrule lesson` in this process, in an empty folder: its exit code, and what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["lesson", *map(str, words)])
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def answers(run: Run) -> Path:
    """The file with blanks of a student."""
    code, out, err = run(3, "--start", "counting", "--student", "ann")
    assert (code, err) == (0, "") and "counting has answers.py, toy.txt, corpus.txt" in out
    return Path("counting/answers.py")


def graded(folder: Path, text: str, seconds: float = 60) -> tuple[dict[str, str], str, str]:
    """Grade answers; return the states or messages by exercise, the fault, and what was printed."""
    (folder / "a.py").write_text(text, encoding="utf-8")
    found = grade_file(cr.lesson(3), folder / "a.py", seconds)
    return {grade.id: grade.message or grade.state for grade in found.grades}, found.fault, found.printed


def test_a_folder_from_start_to_the_last_right_answer(run: Run, answers: Path) -> None:
    assert Path("counting/corpus.txt").read_text().splitlines() == cr.lesson(3, "ann").data["corpus"]
    code, out, err = run(3, "--check", answers)
    assert (code, out.count("not yet"), err) == (1, 6, "")
    answers.write_text(RIGHT.format(student="ann"), encoding="utf-8")
    code, out, err = run(3, "--check", answers, "--json")
    assert (code, err) == (0, "")
    results = json.loads(out)
    assert results["score"] == sum(test["max_score"] for test in results["tests"]) == 11
    keys = {"number", "name", "score", "max_score", "status", "output"}
    assert all(set(test) == keys and test["status"] == "passed" for test in results["tests"])
    assert {one["number"]: one["right"] for one in json.loads(run("--json")[1])}[3] == 6
    code, _, err = run(3, "--start", "counting")
    assert code == 2 and "counting has a file answers.py already" in err


def test_answers_of_another_student_are_wrong(run: Run, answers: Path) -> None:
    answers.write_text(RIGHT.format(student="bob"), encoding="utf-8")
    assert run(3, "--check", answers)[0] == 1
    Path("elsewhere.py").write_text(answers.read_text(), encoding="utf-8")
    assert run(3, "--check", "elsewhere.py", "--student", "bob")[0] == 0
    code, _, err = run(4, "--check", answers)
    assert code == 2 and "has answers to lesson 3, not to lesson 4" in err


def test_a_fault_is_told_by_its_line_and_answers_above_it_count(tmp_path: Path) -> None:
    size = cr.lesson(3).data["vocabulary_size"]
    found, fault, printed = graded(
        tmp_path, f"print('hello')\nanswer_5 = {size**2 * (size - 1)}\nanswer_1 = 1 / 0\n"
    )
    assert fault == "a.py, line 3: ZeroDivisionError: division by zero; what stands below it is not graded"
    assert (found["1"], found["5"], printed) == ("not yet", "right", "hello\n")


def test_a_syntax_error_is_told_by_its_line(tmp_path: Path) -> None:
    found, fault, _ = graded(tmp_path, "answer_1 = 1\ndef f(:\n")
    assert fault == "a.py, line 2: SyntaxError: invalid syntax; the file is not graded"
    assert set(found.values()) == {"not yet"}


def test_a_fault_in_a_function_is_told_by_its_line(tmp_path: Path) -> None:
    found, fault, _ = graded(tmp_path, "def ngram_counts(lines, n):\n    return lines[n + 100]\n")
    assert (fault, found["4"]) == ("", "a.py, line 2: IndexError: list index out of range")


def test_answers_that_take_too_long_are_stopped(tmp_path: Path) -> None:
    endless = "answer_1 = 0.5\ndef ngram_counts(lines, n):\n    while True: pass\nanswer_5 = 1\n"
    found, _, _ = graded(tmp_path, endless, seconds=6)
    assert found["4"] == "it takes more than 6 seconds"
    assert (found["1"] != "not yet", found["5"]) == (True, "not yet")
    found, fault, _ = graded(tmp_path, "while True: pass\n", seconds=3)
    assert fault == "a.py: it takes more than 3 seconds" and set(found.values()) == {"not yet"}


def test_answers_that_end_python_are_no_error_of_ours(tmp_path: Path) -> None:
    found, fault, _ = graded(tmp_path, "import sys\nanswer_1 = 0.5\nsys.exit('done')\n")
    assert fault.startswith("a.py, line 3: SystemExit: done; what") and found["1"] != "not yet"
    _, fault, _ = graded(tmp_path, "import os\nos._exit(3)\n")
    assert fault == "a.py: Python stopped with the exit status 3"


def test_answers_that_end_python_after_all_grades_count(tmp_path: Path) -> None:
    states, fault, _ = graded(tmp_path, "import atexit, os\natexit.register(os._exit, 3)\nanswer_1 = ...\n")
    assert (set(states.values()), fault) == ({"not yet"}, "")


def test_what_answers_print_is_cut_where_it_is_long(tmp_path: Path) -> None:
    _, fault, printed = graded(tmp_path, "while True: print('x' * 99)\n", seconds=3)
    assert fault == "a.py: it takes more than 3 seconds"
    assert len(printed) < 30_000 and printed.endswith("… and more\n")


def test_a_file_that_is_no_text_is_told_so(tmp_path: Path) -> None:
    found, fault, _ = graded(tmp_path, "answer_1 = 0.5\n\0\n")
    assert fault == "the file: SyntaxError: source code string cannot contain null bytes; the file is not graded"
    assert set(found.values()) == {"not yet"}


def test_a_damaged_record_is_no_record(run: Run, answers: Path) -> None:
    Path("counting/lesson.json").write_text('{"right": []}', encoding="utf-8")
    assert run(3, "--check", answers)[0] == 1
    assert run()[0] == 0


def test_json_says_what_was_made(run: Run) -> None:
    assert json.loads(run(3, "--start", "a", "--json")[1]) == {
        "folder": "a",
        "files": ["answers.py", "toy.txt", "corpus.txt"],
    }
    assert json.loads(run(3, "--notebook", "a.ipynb", "--json")[1]) == {"notebook": "a.ipynb", "exercises": 6}


def test_progress_is_that_of_answers_py(run: Run, answers: Path) -> None:
    answers.write_text(RIGHT.format(student="ann"), encoding="utf-8")
    assert run(3, "--check", "counting")[0] == 0  # a folder is enough
    Path("counting/other.py").write_text("answer_1 = 5\n", encoding="utf-8")
    assert run(3, "--check", "counting/other.py")[0] == 1
    assert "6 of 6" in run()[1]


def test_a_folder_keeps_its_student(run: Run, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = cr.lesson(3, "ann").data["sentence"]
    assert sentence != cr.lesson(3).data["sentence"]
    code, _, err = run(3, "--check", answers, "--student", "bob")
    assert code and "counting is the folder of the student ann" in err
    monkeypatch.chdir("counting")
    assert sentence in run(3)[1]


def test_a_changed_file_is_graded_again(run: Run, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(seconds: float) -> None:
        assert "runpy" not in answers.read_text(encoding="utf-8")  # saved once, and not graded again
        answers.write_text(RIGHT.format(student="ann"), encoding="utf-8")

    monkeypatch.setattr("chainrule.course.grading.sleep", save)
    code, out, _ = run(3, "--check", answers, "--watch")
    assert code == 0
    assert "waiting for the next save" in out and out.endswith("6 of 6 exercises right\n")


def test_a_notebook_is_written_once(run: Run) -> None:
    assert run(3, "--notebook", "l.ipynb")[0] == 0
    assert json.loads(Path("l.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    assert run(3, "--notebook", "l.ipynb")[0] == 2
    assert run(3, "--notebook", "l.ipynb", "--overwrite")[0] == 0


def test_a_lesson_is_printed_as_markdown_where_there_is_no_terminal(run: Run) -> None:
    code, out, _ = run(3, "--student", "ann")
    assert (code, out.split()) == (0, cr.lesson(3, "ann").markdown().split())
    prose = re.sub(r"(?ms)^```.*?^```$", "", out)
    assert max(len(line) for line in prose.splitlines()) <= 100
    assert "_ngram_counts" not in out and "kind =" not in out


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="there is no lesson 99: there are "):
        cr.lesson(99)
    with pytest.raises(CourseError, match="lesson 3 has no exercise 7: it has 1, 2, 3"):
        cr.lesson(3).check(7, 1)
    with pytest.raises(CourseError, match="no such file; chainrule lesson 3 --start"):
        grade_file(cr.lesson(3), tmp_path / "none.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--start", "a"], "which lesson?"),
        ([3, "--watch"], "--watch grades a file"),
        ([3, "--start", "a", "--check", "b"], "give one of them"),
        ([3, "--check", ""], "--check needs a name; found an empty one"),
        ([3, "--student", "\x1b[31m"], "is no name of a student"),
        ([3, "--student", "\udcff", "--start", "a"], "is no name of a student"),
        ([3, "--start", __file__], "is a file: choose another name for the folder"),
        ([3, "--check", "nowhere"], "there is no such file; chainrule lesson 3 --start DIR makes one"),
    ],
)
def test_options_that_do_not_fit_are_refused(run: Run, words: list[object], said: str) -> None:
    code, _, err = run(*words)
    assert code == 2 and said in err
