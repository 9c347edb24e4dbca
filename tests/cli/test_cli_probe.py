"""`chainrule probe`, `chainrule positions` and `inspect --heat`: figures and pictures from real values."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import chainrule as cr

from .running import Fails, Run


@pytest.fixture(scope="module")
def trigram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe") / "trigram"
    cr.train("ngram", cr.Corpus.open("builtin:gaps"), order=3, tokenizer="word").save(folder)
    return folder


def test_gaps_are_probed_and_drawn(run: Run, fails: Fails, trigram: Path, tmp_path: Path) -> None:
    picture = tmp_path / "gaps.svg"
    ran = run("probe", trigram, "--longest", 2, "--svg", picture)
    assert (ran.code, ran.err) == (0, "")
    (row,) = (line.split() for line in ran.out.splitlines() if line.startswith(str(trigram)))
    assert float(row[1]) > 0.95 and all(abs(float(one) - 0.5) < 0.1 for one in row[2:])
    assert ET.parse(picture).getroot().tag.endswith("svg")
    ((_, found),) = run("probe", trigram, "--longest", 2, "--json").json.items()
    assert [one["gap"] for one in found] == [0, 1, 2]
    assert "gaps.svg exists" in fails("probe", trigram, "--svg", picture)


def test_positions_of_a_text_are_measured(run: Run, trigram: Path) -> None:
    ran = run("probe", trigram, "--by-position", "builtin:gaps", "--length", 64)
    assert (ran.code, ran.err) == (0, "")
    assert "0-31" in ran.out and "32-63" in ran.out


def test_positions_are_shown_and_drawn(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "positions.svg"
    ran = run("positions", "--length", 16, "--width", 4, "--svg", picture)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()[2:5]] == ["binary", "sinusoidal", "rotary"]
    assert ET.parse(picture).getroot().tag.endswith("svg")
    (found,) = run("positions", "binary", "--length", 4, "--width", 2, "--json").json
    assert found["rows"] == [[0, 0], [1, 0], [0, 1], [1, 1]]


def test_weights_are_drawn(run: Run, fails: Fails, tmp_path: Path) -> None:
    folder, picture = tmp_path / "elman", tmp_path / "heat.svg"
    cr.train("elman", ["i love cats"], tokenizer="word", steps=1, embedding=4, hidden=4, engine="tape").save(folder)
    ran = run("inspect", folder, "--heat", "embedding.weight", "--heat-rows", "cats,love", "--svg", picture)
    assert (ran.code, ran.err) == (0, "")
    assert ">love</text>" in picture.read_text(encoding="utf-8")
    assert "--svg FILE where" in fails("inspect", folder, "--heat", "embedding.weight")


def test_a_picture_is_drawn_although_the_reader_of_the_table_has_gone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does, once it has its lines
    command = [sys.executable, "-m", "chainrule", "positions", "--svg", str(tmp_path / "a.svg")]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (tmp_path / "a.svg").exists()
