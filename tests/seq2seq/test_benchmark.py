"""The benchmark and the recipe of translation run, however small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import recipes
from benchmarks import seq2seq

from .toys import pairs_of


def test_the_benchmark_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    seq2seq.main(["--small", "--device", "cpu", "--keep", str(tmp_path / "models"), "--plot", str(plot)])
    printed = " ".join(capsys.readouterr().out.split())
    for said in ("lstm, no attention", "(copying the source)", "sentences/s", "left out: Joey NMT", "nrefs:1"):
        assert said in printed
    assert "lstm, attention" in plot.read_text(encoding="utf-8")
    assert (tmp_path / "models" / "lstm-no-attention" / "manifest.json").is_file()


def test_the_recipe_runs(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "val", "test_2016_flickr")):
        for side, suffix in enumerate(("en", "de")):
            lines = [pair[side] for pair in pairs_of("reverse", 30, seed=number)]
            (tmp_path / "multi30k").mkdir(exist_ok=True)
            path = tmp_path / "multi30k" / f"{name}.{suffix}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recipe = recipes.find("multi30k_gru")
    recipe = replace(recipe, tokenizer=replace(recipe.tokenizer, vocab_size=300))
    lm, measured = recipes.run(recipe, tmp_path, device="cpu", settings={"steps": 2, "width": 16, "minutes": None})
    assert (lm.kind, measured.pairs) == ("seq2seq", 30)  # type: ignore[union-attr]
