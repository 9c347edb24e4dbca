"""The trials at a small scale: nothing goes wrong, and what is tried would find it if it did."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chainrule.contract.kinds import _BUILT_IN
from reliability.trials import faults, kills, mutations, syncs, terminations, texts
from reliability.trials.controls import BROKEN, broken
from reliability.trials.writers import WRITERS, Writer


def wrong(found: Counter[str]) -> list[str]:
    return [what for what in found if what.startswith("wrong")]


def test_kills_lose_nothing() -> None:
    assert wrong(kills.run(2 * len(WRITERS), seed=1)) == []


@pytest.mark.skipif(faults.compiler() is None, reason="needs a C compiler")
def test_faults_are_answered_by_an_error_or_a_whole_file() -> None:
    found = faults.run(most=3)
    assert sum(found.values()) > 80
    assert wrong(found) == []


def test_everything_is_synced() -> None:
    found = syncs.run()
    assert sum(found.values()) == 2 * len(WRITERS)
    assert wrong(found) == []


def test_mutations_are_refused_or_harmless() -> None:
    assert {*mutations.KINDS} == {*_BUILT_IN}
    assert wrong(mutations.run(200, seed=1)) == []


def test_pipes_and_changing_files_give_the_text_or_an_error() -> None:
    assert wrong(texts.run(12, seed=1)) == []


def test_files_of_other_programs_are_read_or_refused_by_name() -> None:
    assert wrong(mutations.run_imports(80, seed=1)) == []


def test_damaged_parquet_files_are_refused_by_name() -> None:
    assert wrong(mutations.run_parquet(12, seed=1)) == []


# -- controls: with something broken in chainrule, its trial must find something wrong ------------------------

CONTROLS: dict[str, Callable[[str], Counter[str]]] = {
    "nothing is synced": lambda name: broken_in(name, syncs.run),
    "an error of a sync is swallowed": lambda name: faults.run(names=["model"], control=name),
    "the old folder is deleted first": lambda name: faults.run(names=["model"], control=name),
    "signatures are not checked": lambda name: mutations.run(120, kinds=["ngram"], control=name),
    "checksums are not checked": lambda name: mutations.run(120, kinds=["ngram"], control=name),
    "weights of mixtures are not checked": lambda name: mutations.run(120, kinds=["mixture"], control=name),
    "values of other programs are trusted": lambda name: broken_in(name, lambda: mutations.run_imports(80, seed=1)),
    "damaged parquet files are not told": lambda name: broken_in(name, lambda: mutations.run_parquet(12, seed=1)),
    "the last piece of a pipe is lost": lambda name: broken_in(name, lambda: texts.run(2, seed=1)),
}


def broken_in(name: str, trial: Callable[[], Counter[str]]) -> Counter[str]:
    with broken(name):
        return trial()


@pytest.mark.parametrize("name", BROKEN)
def test_a_trial_finds_what_is_broken(name: str) -> None:
    if name in ("an error of a sync is swallowed", "the old folder is deleted first") and not faults.compiler():
        pytest.skip("needs a C compiler")
    assert wrong(CONTROLS[name](name)) != []


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_the_writers_tell_versions_apart(tmp_path: Path, writer: Writer) -> None:
    assert writer.version(tmp_path) is None
    versions = []
    for number in (2, 3):
        writer.write(tmp_path, number)
        versions.append(writer.version(tmp_path))
    assert versions == ([0, 1] if writer.name == "arpa" else [2, 3])


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


@pytest.mark.parametrize(
    ("after", "found"), [("sys.exit(3)", "exit code 3"), ("sys.exit(143)", "left behind: ")], ids=["code", "file"]
)
def test_a_command_that_stops_badly_is_found_out(tmp_path: Path, after: str, found: str) -> None:
    code = f"""import pathlib, signal, sys, tempfile, time
signal.signal(signal.SIGTERM, lambda *_: {after})
pathlib.Path(tempfile.gettempdir(), "left").write_text("")
time.sleep(60)"""
    _, problem = terminations.stop_once(tmp_path, [sys.executable, "-c", code], signal.SIGTERM, 1.0)
    assert problem is not None and problem.startswith(found)


def test_a_writer_that_writes_in_place_is_found_out() -> None:
    writer = Writer("in place", write_in_place, read_in_place)
    assert any(kills.kill_once(writer, chance / 10, exchanges=True) for chance in range(10))
    assert faults._judged(writer, Path("nowhere"), 0, "") == "exit code 0, and None is there"
