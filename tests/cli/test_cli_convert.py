"""`chainrule convert`: models from elsewhere."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import chainrule as cr

from .running import Fails, Run

ARPA = """\
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1\t<unk>
-99\t<s>\t-0.3
-0.5\t</s>
-0.25\tcats\t-0.1

\\2-grams:
-0.5\t<s> cats
-0.125\tcats </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    path = tmp_path / "m.arpa"
    path.write_text(ARPA, encoding="utf-8")
    return path


def test_there_and_back(run: Run, arpa: Path, held_out: Path, tmp_path: Path) -> None:
    ran = run("convert", arpa, tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    assert "n-grams of 1 to 2 words: 4, 2" in ran.out
    assert run("convert", tmp_path / "m", tmp_path / "back.arpa.gz").code == 0
    text = gzip.decompress((tmp_path / "back.arpa.gz").read_bytes()).decode()
    assert text.startswith("\\data\\\nngram 1=4\nngram 2=2\n")
    assert run("convert", tmp_path / "back.arpa.gz", tmp_path / "again").code == 0
    one, other = (run("evaluate", tmp_path / name, held_out, "--json").json for name in ("m", "again"))
    assert one["perplexity"] == other["perplexity"]


def test_json_says_what_was_made(run: Run, arpa: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    report = run("convert", arpa, out, "--json").json
    size = sum(file.stat().st_size for file in out.iterdir()) / 1e6
    assert report == {"target": str(out), "vocab_size": 4, "ngrams": [4, 2], "megabytes": size}
    back = run("convert", out, tmp_path / "back.arpa", "--json").json
    assert back["megabytes"] == (tmp_path / "back.arpa").stat().st_size / 1e6


def test_a_trained_model_becomes_a_file(run: Run, animals: Path, corpus: Path, tmp_path: Path) -> None:
    assert run("convert", animals, tmp_path / "m.arpa").code == 0
    assert run("convert", tmp_path / "m.arpa", tmp_path / "m").code == 0
    one, other = (run("evaluate", folder, corpus, "--json").json for folder in (animals, tmp_path / "m"))
    assert one["perplexity"] == other["perplexity"]
    inspected = run("inspect", tmp_path / "m", "--json").json
    assert inspected["config"]["smoothing"] == "imported"
    assert inspected["provenance"]["arpa"] == "m.arpa"


def test_context_is_what_is_said(run: Run, arpa: Path, tmp_path: Path) -> None:
    assert run("convert", arpa, tmp_path / "m", "--context", "stream").code == 0
    assert cr.load(tmp_path / "m").context == "stream"
    ran = run("convert", tmp_path / "m", tmp_path / "s.arpa")
    assert (ran.code, ran.err.count("\n")) == (0, 1)
    assert ran.err.startswith("note: context flows across lines")


def test_what_cannot_be_converted_is_refused(
    run: Run, fails: Fails, arpa: Path, bpe_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    assert run("convert", arpa, out).code == 0
    assert "should end in .arpa" in fails("convert", out, tmp_path / "m.txt")
    assert "a model folder has a context" in fails("convert", out, tmp_path / "x.arpa", "--context", "line")
    assert "--overwrite" in fails("convert", arpa, out)
    assert "--overwrite" in fails("convert", out, arpa)
    assert "bpe tokens cannot be written" in fails("convert", bpe_model, tmp_path / "x.arpa")
    assert "No such file" in fails("convert", tmp_path / "none.arpa", tmp_path / "x")
    (tmp_path / "bad.arpa").write_text(ARPA.replace("-0.25", "0.25"), encoding="utf-8")
    assert "line 9: expected a log-probability" in fails("convert", tmp_path / "bad.arpa", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "x.arpa").exists()


def test_overwrite_replaces(run: Run, arpa: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert run("convert", arpa, out).code == 0
    assert run("convert", arpa, out, "--overwrite").code == 0
    assert run("convert", out, arpa, "--overwrite").code == 0
    assert arpa.read_text(encoding="utf-8") != ARPA
