"""The recipe and the benchmark of taggers, at toy size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import tagging as benchmark
from recipes.__main__ import main as run_recipe

import chainrule as cr
from chainrule.text.tagged import Tagged

from .toys import sentences

SMALL = ("width=8", "layers=1", "embedding=4", "spelling=4", "batch=64", "steps=3", "minutes=none")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "ud-english-ewt"
    folder.mkdir()
    for seed, part in enumerate(("train", "dev", "test")):
        made = ["\n".join([*one.retagged(one.tags), ""]) for one in Tagged.of(sentences(20, seed))]
        (folder / f"en_ewt-ud-{part}.conllu").write_text("\n".join([*made, ""]))
    return tmp_path


def test_the_recipe(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for setting in SMALL for word in ("--set", setting)]
    run_recipe(["ewt_tagger", "--data", str(data), "--out", str(data / "out"), "--device", "cpu", *words])
    assert "the most frequent tag 100.00%" in capsys.readouterr().out.replace("\n", " ")
    assert cr.load(data / "out").metrics["test"]["words"] == 100


def test_the_benchmark(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for setting in SMALL[2:] for word in ("--set", setting)]
    options = ["--data", str(data / "ud-english-ewt"), "--device", "cpu", *words, "--set", "width=8"]
    benchmark.main(["words", "characters", *options])
    out = capsys.readouterr().out
    assert "most frequent tag" in out and "8 x 2" in out
    assert "words/s" in out
    with pytest.raises(SystemExit, match="needs a masked model"):
        benchmark.main(["frozen", *options])
    with pytest.raises(SystemExit, match=r"has no \*-train.conllu"):
        benchmark.main(["words", "--data", str(data)])
    with pytest.raises(SystemExit):
        benchmark.main(["nothing"])


def test_spacy_beside_ours(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(data / "ud-english-ewt"), "--minutes", "0.01"]
    benchmark.main(["spacy", *options])
    out = capsys.readouterr().out
    assert "left out: spacy: spaCy is not installed" in out or "96 x 4" in out
