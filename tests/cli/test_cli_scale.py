"""`chainrule scale`: a tiny grid, its record and its pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chainrule.comparison.scaling import grid

from .running import Fails, Run

LAW = ["--sizes", "1x8,1x16,2x16", "--shares", "1/4,1/2,1", "--tokenizer", "word", "--context", "line"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    words, path = ["cat", "dog", "mat", "sun", "one"], tmp_path / "corpus.txt"
    lines = [" ".join(words[(i * (k + 2) + k * k) % 5] for k in range(6)) for i in range(160)]
    path.write_text("\n".join(f"{line} {i % 7}" for i, line in enumerate(lines)) + "\n", encoding="utf-8")
    return path


def test_a_law_is_fitted_recorded_and_drawn(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("altair")
    monkeypatch.setattr(grid, "_speed", lambda *_: grid.Speed(1000, 1e-6))
    out = tmp_path / "law"
    found = run("scale", corpus, *LAW, "--budget", "1e12", "--out", out)
    assert found.code == 0
    assert "L(N, D) = " in found.out and "For 1.00e+12 operations" in found.out and "Test: a law of" in found.out
    assert "Warning: this is a guess" in found.out and "5-gram" in found.out
    record = json.loads((out / grid.RECORD).read_text())
    assert len(record["cells"]) == 9 and len(record["ngrams"]) == 6 and record["is_finished"]
    assert record["prediction"]["predicted"] and "operations of the grid" in record["advice"][0]["warning"]
    page = (out / "scale.html").read_text()
    assert "vegaEmbed" in page and "Warning: this is a guess" in page and "Test: a law of" in page
    assert {path.name for path in (out / "scale").iterdir()} == {
        f"{name}.{form}" for name in ("tokens", "budgets") for form in ("png", "svg")
    }
    again = run("scale", corpus, *LAW, "--budget", "1e12", "--out", out, "--json")  # trains nothing
    assert [c["seconds"] for c in again.json["cells"]] == [c["seconds"] for c in record["cells"]]


def test_bad_grids_are_refused_in_one_line(run: Run, corpus: Path, tmp_path: Path) -> None:
    for words, message in (
        (["--sizes", "2x64,4"], "a size is layers x width"),
        (["--sizes", "2x64"], "at least three sizes"),
        (["--shares", "1/2,1"], "at least three shares"),
        (["--budget", "-1"], "a budget is tokens=N"),
        (["--budget", "tokens=5"], "finds the best size for flops=N"),
        (["--minutes", "0"], "--minutes"),
    ):
        found = run("scale", corpus, *words, "--out", tmp_path / "law")
        assert found.code == 2 and message in found.err and len(found.err.splitlines()) == 1
        assert not (tmp_path / "law" / grid.RECORD).exists()


def test_large_models_are_held_against_chinchillas_rule(run: Run, tmp_path: Path) -> None:
    models = {one["name"]: one for one in run("scale", "--models", "--json").json}
    assert models["GPT-3"]["flops"] == pytest.approx(3.15e23)
    assert models["Chinchilla"]["tokens_per_parameter"] == 20
    assert models["Chinchilla"]["best_parameters"] == pytest.approx(models["Chinchilla"]["parameters"])
    assert models["GPT-4"]["flops"] is None and not models["GPT-4"]["is_published"]
    starved = {name for name, one in models.items() if one["tokens"] and one["tokens"] < one["enough_tokens"]}
    assert starved == {"GPT-2", "GPT-3", "PaLM", "LaMDA"}
    table = run("scale", "--models").out
    assert "1.76 T?" in table and "3.2e+23" in table
    pytest.importorskip("altair")
    svg = tmp_path / "models.svg"
    assert "the picture is in" in run("scale", "--models", "--svg", svg).out
    assert all(name in svg.read_text() for name in models)


def test_large_models_take_no_corpus(fails: Fails, corpus: Path, tmp_path: Path) -> None:
    assert "leave out CORPUS" in fails("scale", corpus, "--models")
    assert "Missing argument 'CORPUS...'" in fails("scale", "--out", tmp_path / "law")
    assert "Missing option '--out'" in fails("scale", corpus)
    assert "--svg goes with --models" in fails("scale", corpus, "--out", tmp_path / "law", "--svg", "a.svg")
