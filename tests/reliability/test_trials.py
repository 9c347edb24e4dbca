"""The trials at a small scale: nothing goes wrong, and what is tried would find it if it did."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from chainrule.disk import atomic
from reliability.trials import faults, kills, mutations
from reliability.trials.writers import WRITERS


def wrong(found: Counter[str]) -> list[str]:
    return [what for what in found if what.startswith("wrong")]


def test_kills_lose_nothing() -> None:
    assert wrong(kills.run(36, seed=1)) == []


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="needs a C compiler")
def test_faults_are_answered_by_an_error_or_a_whole_file() -> None:
    found = faults.run(most=6)
    assert sum(found.values()) > 80
    assert wrong(found) == []


def test_mutations_are_refused_or_harmless() -> None:
    assert wrong(mutations.run(400, seed=1)) == []


def test_damaged_parquet_files_are_refused_by_name() -> None:
    assert wrong(mutations.run_parquet(30, seed=1)) == []


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_the_writers_tell_versions_apart(tmp_path: Path, writer: kills.Writer) -> None:
    assert writer.version(tmp_path) is None
    for number in (2, 3):
        writer.write(tmp_path, number)
        assert writer.version(tmp_path) in (number, (number % 2 and -number) or 0, 2 - (1 + (number % 2 == 0)))


def test_a_writer_that_is_not_atomic_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renames without recovery: some kill leaves nothing."""
    monkeypatch.setattr(atomic, "recover", lambda folder: None)
    (model,) = (writer for writer in WRITERS if writer.name == "model")
    problems = [kills.kill_once(model, chance / 150, exchanges=False) for chance in range(150)]
    assert any(problems)
