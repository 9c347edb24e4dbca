"""Tests of the example of other sequences: its commands run and find the odd sequences."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from benchmarks.harness import load_module

from chainrule.cli.main import main

FOLDER = Path(__file__).parents[1] / "examples" / "sequences"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make = load_module(FOLDER / "make.py", "make_sequences")
    monkeypatch.chdir(tmp_path)
    make.main(tmp_path / "data")
    return tmp_path / "data"


def run(command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 0, command


@pytest.mark.usefixtures("data")
def test_the_commands_of_its_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (FOLDER / "README.md").read_text()
    commands = re.findall(r"^chainrule (.*)", page, re.M)
    assert len(commands) == 4
    for command in commands:
        run(command)
    assert re.search(r"average precision 0\.976 .* AUROC 0\.995", capsys.readouterr().out)


@pytest.mark.usefixtures("data")
def test_each_kind_of_sequence_is_learned(capsys: pytest.CaptureFixture[str]) -> None:
    rows = re.findall(
        r"`(train ngram data/(\w+)\.txt[^`]*)` \| ([\d.]+) \| ([\d.]+)", (FOLDER / "README.md").read_text()
    )
    assert [name for _, name, *_ in rows] == ["sessions", "melodies", "genes"]
    for command, name, precision, area in rows:
        run(f"{command} --out {name}")
        capsys.readouterr()
        run(f"anomalies {name} data/{name}-test.jsonl --labels odd --json")
        found = json.loads(capsys.readouterr().out)
        assert (f"{found['average_precision']:.3f}", f"{found['auroc']:.3f}") == (precision, area)
    run("generate genes -n 5 --seed 1")
    genes = capsys.readouterr().out.split()
    assert len(genes) == 5 and all(gene.startswith("ATG") and gene.endswith("TAA") for gene in genes)
