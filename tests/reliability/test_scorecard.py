"""Every row of the scorecard at a small scale: nothing is lost, and its controls are found."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from reliability.__main__ import main
from reliability.architectures import DESIGNS
from reliability.controls import BROKEN
from reliability.frame import Control, Result, Row, Trial, added, run_control, run_row
from reliability.models import KINDS
from reliability.page import PAGE, page, read
from reliability.rows import ROWS
from reliability.writers import COMMANDS, WRITERS, Writer

from chainrule.contract.kinds import _BUILT_IN
from chainrule.interop.huggingface import ARCHITECTURES
from reliability import equivalences, faults, kills, limited, mutants, stops

CONTROLS = [(row, control) for row in ROWS.values() for control in row.controls]


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_small_run_loses_nothing(row: Row) -> None:
    if reason := row.needs():
        pytest.skip(reason)
    trial = Trial(row.small, row.seed, small=True)
    row.run(trial)
    assert trial.tries
    assert dict(trial.lost) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("row", "control"), CONTROLS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_row_finds_what_is_broken(row: Row, control: Control) -> None:
    if reason := row.needs() or control.needs():
        pytest.skip(reason)
    assert run_control(row, control) > 0


def test_every_row_has_a_control_and_every_control_a_row() -> None:
    assert all(row.controls for row in ROWS.values())
    assert {control.name for _, control in CONTROLS} == {*BROKEN}
    assert {*KINDS} == {*_BUILT_IN}
    assert {*DESIGNS} == {*ARCHITECTURES}


# -- the frame --------------------------------------------------------------------------------------------


def losing(trial: Trial) -> None:
    for number in trial:
        trial.note("odd" if number % 2 else "even", "broke" if number == trial.seed else None)


def test_a_result_counts_what_was_tried_and_lost() -> None:
    row = Row("name", "Recipe.", "promise.", losing, count=10, small=2, controls=[], seed=3)
    found = run_row(row)
    assert found.line().startswith("name: seed 3, 10 tries, 9 survived, 1 lost, 0 of 0 controls found")
    assert (found.sorts, found.problems, found.is_good) == ({"even": 5, "odd": 5}, {"odd: broke": 1}, False)
    assert run_row(row, small=True).is_good
    assert run_row(row, seconds=-1).tries == 0
    assert not run_row(row, seconds=-1).is_good


def test_a_control_that_is_not_found_is_told() -> None:
    found = Result("name", 1, tries=3, lost=0, seconds=0.0, controls={"seen": 2, "unseen": 0})
    assert (found.blind, found.is_good) == (["unseen"], False)


def test_the_page_is_that_of_the_kept_results() -> None:
    assert page(read()) == PAGE.read_text(encoding="utf-8")


def test_parts_of_a_row_add_up_to_the_whole() -> None:
    row = Row("name", "Recipe.", "promise.", losing, count=10, small=2, controls=[], seed=3)
    parts = [run_row(row, part=(part, 3)) for part in range(3)]
    assert [one.tries for one in parts] == [4, 3, 3]
    assert replace(added(parts), seconds=0.0) == replace(run_row(row), seconds=0.0)


def test_parts_try_other_models() -> None:
    tried: list[list[str]] = []
    for part in range(2):
        trial = Trial(12, small=True, part=(part, 2))
        with patch.object(equivalences, "_checked", lambda *args: "wrong"):
            ROWS["equivalences"].run(trial)
        tried.append([problem.split(": ", 1)[1] for problem in trial.lost])
    assert sum(map(len, tried)) == 12
    assert {one.split(",")[0] for one in tried[0]} == {"model 0", "model 2"}
    assert {one.split(",")[0] for one in tried[1]} == {"model 1", "model 3"}


@pytest.mark.slow
def test_processes_share_a_row_and_its_results_come_onto_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reliability.page.RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("reliability.page.PAGE", tmp_path / "page.md")
    small = ["strange-surroundings", "--small", "--to", str(tmp_path / "found.json")]
    assert main([*small, "--jobs", "2"]) == 0
    assert "strange-surroundings: seed 1, 1 tries, 1 survived, 0 lost, 1 of 1 controls" in capsys.readouterr().out
    assert main(["--page", *[str(tmp_path / "found.json")] * 2]) == 0
    (line,) = (line for line in (tmp_path / "page.md").read_text().splitlines() if "[strange-" in line)
    assert line.startswith("| [strange-surroundings](#strange-surroundings) | 2 | 189 | 2 | 0 | 1 of 1 | 1 |")


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "there is no row 'nothing'; there are: kills" in capsys.readouterr().err


# -- parts of rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [*WRITERS, *COMMANDS], ids=lambda writer: writer.name)
def test_the_writers_tell_versions_apart(tmp_path: Path, writer: Writer) -> None:
    assert writer.version(tmp_path) is None
    for number in (2, 3):
        writer.write(tmp_path, number)
        assert writer.version(tmp_path) == writer.shown(number)


def write_in_place(folder: Path, number: int) -> None:
    with (folder / "file").open("w") as file:
        for _ in range(20):
            print(number, file=file, flush=True)
            time.sleep(0.001)


def read_in_place(folder: Path) -> int | None:
    if not (folder / "file").exists():
        return None
    lines = (folder / "file").read_text().split()
    assert len(lines) == 20, f"{len(lines)} lines"
    return int(lines[0])


def test_a_writer_that_writes_in_place_is_found_out() -> None:
    writer = Writer("in place", write_in_place, read_in_place)
    assert any(kills.kill_once(writer, after / 200, exchanges=True) for after in range(1, 11))
    assert faults._judged(writer, Path("nowhere"), 0, "") == "exit code 0, and None is there"


@pytest.mark.parametrize(
    ("after", "found"), [("sys.exit(3)", "exit code 3"), ("sys.exit(143)", "left behind: ")], ids=["code", "file"]
)
def test_a_command_that_stops_badly_is_found_out(tmp_path: Path, after: str, found: str) -> None:
    code = f"""import pathlib, signal, sys, tempfile, time
signal.signal(signal.SIGTERM, lambda *_: {after})
pathlib.Path(tempfile.gettempdir(), "left").write_text("")
time.sleep(60)"""
    _, problem = stops.stop_once(tmp_path, [sys.executable, "-c", code], signal.SIGTERM, 1.0)
    assert problem is not None and problem.startswith(found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork while a library has threads
def test_tries_that_crash_hang_or_take_too_much_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "SECONDS", 0.3)

    def prepare(worker: int) -> Callable[[int], tuple[str, str | None]]:
        def attempt(number: int) -> tuple[str, str | None]:
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while number == 2:
                pass
            if number == 3:
                bytearray(5 << 30)
            return "fine", None

        return attempt

    trial = Trial(5, small=True)
    limited.run_limited(trial, prepare)
    assert trial.tries == {"fine": 2, "a crash": 1, "too late": 1, "an error": 1}
    assert [problem.partition(": try ")[2].partition(":")[0] for problem in trial.lost] == [
        "1",
        "2 took more than 0.3 s",
        "3",
    ]


def test_a_mutant_is_behind_a_switch_in_one_place() -> None:
    found = [*mutants.mutants("decode/top.py")]
    assert len({(one.place, one.before) for one in found}) == len(found) > 20
    plain = mutants.mutated("decode/top.py", {}, 9).splitlines()
    for one in found[::7]:
        changed = mutants.mutated(one.file, {one.place: 3}, 9).splitlines()
        ((old, new),) = ((a, b) for a, b in zip(plain, changed, strict=True) if a != b)
        assert "if _switch.at(3) else" in new
        assert "_switch.at(3)" not in old


def run_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, test: str) -> Trial:
    """Try every mutant of a package of one file with the tests of another."""
    package = tmp_path / "made" / "chainrule"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(source)
    for name in ("tests", "reliability"):
        (tmp_path / name).mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(test)
    (tmp_path / "reliability" / "__init__.py").touch()
    shutil.copy(mutants.switch.__file__, tmp_path / "reliability")
    monkeypatch.setattr(mutants, "SOURCE", package)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "SMALL", {"parts.py": "test_it.py"})
    trial = Trial(len([*mutants.mutants("parts.py")]), small=True)
    mutants.run(trial)
    return trial


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert parts.two() == 2", True),
        ("assert parts.two()", False),
        pytest.param("while parts.two() > 2: pass", True, marks=pytest.mark.slow),
        ("assert not parts.two()", False),
        ("subprocess.run([sys.executable, '-c', CODE], check=True)", True),
        pytest.param("pass", False, marks=pytest.mark.slow),
    ],
    ids=["fails", "passes", "never ends", "fails without it too", "a process", "is not reached"],
)
def test_a_mutant_is_caught_by_a_test_that_passes_without_it(
    body: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = f"""import subprocess, sys
from chainrule import parts
CODE = "from chainrule import parts; assert parts.two() == 2"
def test_it():
    {body}
"""
    trial = run_mutants(tmp_path, monkeypatch, "def two():\n    return 2\n", test)
    assert dict(trial.tries) == {"parts.py": 1}
    assert [*trial.lost] == ([] if found else ["parts.py: lives: parts.py:2: 2 -> 3"])


@pytest.mark.slow
def test_a_mutant_of_what_an_import_computes_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "LIMIT = 2\nOTHER = 7\n\ndef limit():\n    return LIMIT\n"
    test = "from chainrule import parts\ndef test_it(): assert parts.limit() == 2\n"
    trial = run_mutants(tmp_path, monkeypatch, source, test)
    assert [*trial.lost] == ["parts.py: lives: parts.py:2: 7 -> 8"]


def test_a_package_whose_tests_cannot_be_run_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run_mutants(tmp_path, monkeypatch, "def two():\n    return 2\n", "import no_such_package")
    assert not trial.tries
    assert "No module named 'no_such_package'" in trial.left_out["parts.py"]
