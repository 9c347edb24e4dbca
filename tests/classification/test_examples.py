"""The examples of classifying texts run, and are right."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "classifying"


def test_languages(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "languages.py"))
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert found == ["English", "German", "French", "Italian", "Dutch"]


def test_authors(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "authors.py"))
    assert float(capsys.readouterr().out.partition("%")[0]) > 95
