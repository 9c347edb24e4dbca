"""The trials at a small scale: nothing goes wrong, and what is tried would find it if it did."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from reliability.trials import faults, kills, mutations, texts
from reliability.trials.writers import WRITERS, Writer


def wrong(found: Counter[str]) -> list[str]:
    return [what for what in found if what.startswith("wrong")]


def test_kills_lose_nothing() -> None:
    assert wrong(kills.run(2 * len(WRITERS), seed=1)) == []


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="needs a C compiler")
def test_faults_are_answered_by_an_error_or_a_whole_file() -> None:
    found = faults.run(most=3)
    assert sum(found.values()) > 60
    assert wrong(found) == []


def test_mutations_are_refused_or_harmless() -> None:
    assert wrong(mutations.run(200, seed=1)) == []


def test_pipes_and_changing_files_give_the_text_or_an_error() -> None:
    assert wrong(texts.run(12, seed=1)) == []


def test_damaged_parquet_files_are_refused_by_name() -> None:
    assert wrong(mutations.run_parquet(12, seed=1)) == []


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


def test_a_writer_that_writes_in_place_is_found_out() -> None:
    writer = Writer("in place", write_in_place, read_in_place)
    assert any(kills.kill_once(writer, chance / 10, exchanges=True) for chance in range(10))
    assert faults._judged(writer, Path("nowhere"), 0, "") == "exit code 0, and None is there"
