"""Every row of the lectures holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lectures import Bench, Lecture, Row, lectures

from chainrule.course.lesson import lesson_paths

ALL = [pytest.param(lecture, row, id=row.row) for lecture in lectures() for row in lecture.rows]
COUNTS = {"000": 35, "001": 37, "002": 104, "003": 37, "004": 43}


@pytest.fixture(scope="session")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    folder: Path = tmp_path_factory.mktemp("lectures")
    return {lecture.name: Bench(lecture, folder / lecture.name) for lecture in lectures()}


@pytest.mark.slow
@pytest.mark.xdist_group("lectures")
@pytest.mark.parametrize(("lecture", "row"), ALL)
def test_row(lecture: Lecture, row: Row, benches: dict[str, Bench]) -> None:
    assert (wrong := benches[lecture.name].check(row)) is None, wrong


def test_no_row_is_left_out() -> None:
    for lecture in lectures():
        numbers = [row.row for row in lecture.rows]
        assert numbers == [f"{int(lecture.name)}.{i + 1}" for i in range(COUNTS[lecture.name])]


def test_each_row_has_a_lesson_and_each_lesson_has_rows() -> None:
    assert {row.lesson for lecture in lectures() for row in lecture.rows} == set(lesson_paths())


def test_a_row_that_does_not_hold_is_found(tmp_path: Path) -> None:
    lecture = Lecture("x", "x", [], {"toy.txt": "i love cats\n"}, {})
    bench = Bench(lecture, tmp_path)
    assert bench.check(Row("1", "", "", python="1 + 1 == 2")) is None
    assert "not so: 1 + 1 == 3" in str(bench.check(Row("1", "", "", python="1 + 1 == 3")))
    right = Row("1", "", "", command="chainrule tokenize toy.txt --tokenizer char --show", shows=["i| |l|o|v|e"])
    wrong = Row("1", "", "", command=right.command, shows=["i|l|o|v|e"])
    assert bench.check(right) is None
    assert "the output has no" in str(bench.check(wrong))
    assert "exit status" in str(
        bench.check(Row("1", "", "", command="chainrule tokenize missing.txt", shows=["x"]))
    )
    assert "does not say" in str(bench.check(Row("1", "", "", prose="README.md:no such words stand there")))


@pytest.mark.parametrize("shown_by", [{"command": "chainrule kinds"}, {"python": "x = 1"}, {"python": "print(1)"}])
def test_a_row_that_cannot_fail_is_refused(shown_by: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="row 9 cannot fail"):
        Row("9", "", "", **shown_by)
    Row("9", "", "", **shown_by, shows=["1"])
