"""Tests of mixtures that torch computes, as on a GPU: "cpu:0" is the CPU, but with torch instead of NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import mixtures

import chainrule as cr
from chainrule.arrays import pad
from chainrule.testing.laws import LAWS, prefixes

TEXT = "i love cats\ni love dogs\ncats chase mice\n"
TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text(TEXT))
NETWORK: dict[str, Any] = {"steps": 3, "embedding": 8, "hidden": 8, "engine": "torch"}


def models(context: str = "stream") -> list[cr.LanguageModel]:
    return [
        cr.train("ngram", TEXT, order=3, tokenizer=TOKENIZER, context=context),
        cr.train("lstm", TEXT, tokenizer=TOKENIZER, context=context, **NETWORK),
    ]


OPTIONS: dict[str, dict[str, Any]] = {
    "caches": {"weights": [0.3, 0.3, 0.2, 0.2], "cache": 3, "continuous_cache": 4, "theta": 1.0},
    "log-linear": {"weights": [0.5, 0.6], "form": "log-linear"},
}
THERE = [law for law in LAWS if law not in ("save_and_load_is_bit_equal", "moving_changes_nothing_here")]


@pytest.fixture(scope="module", params=OPTIONS)
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    moved = cr.mix(models(), **OPTIONS[request.param]).on("cpu:0")
    assert isinstance(moved.next_log_probs(moved.start(1)), torch.Tensor)
    return moved


@pytest.mark.parametrize("law", THERE)
def test_law(lm: cr.LanguageModel, law: str) -> None:
    LAWS[law](lm)


@pytest.mark.parametrize("by", ["length", "match", "entropy"])
def test_weights_by_context_are_the_same_there(by: Any) -> None:
    here = cr.mix(models("line"), "cats love mice\ni chase dogs\n", by=by, cache=2)
    there = here.on("cpu:0")
    rows = pad(prefixes(here))
    np.testing.assert_allclose(cr.to_numpy(there.score(rows)), here.score(rows), rtol=1e-4, atol=1e-5)
    state, other = (lm.extend(lm.start(len(rows)), rows) for lm in (here, there))
    expected = here.next_log_probs(state)
    np.testing.assert_allclose(cr.to_numpy(there.next_log_probs(other)), expected, rtol=1e-4, atol=1e-5)


def test_a_model_that_stays_on_the_cpu_is_mixed_with_one_that_moves() -> None:
    anygram = cr.train("anygram", TEXT, tokenizer=TOKENIZER, context="stream")
    here = cr.mix([anygram, models()[1]], weights=[0.5, 0.5])
    rows = pad(prefixes(here))
    moved = here.on("cpu:0")
    assert moved.models[0].device == "cpu"
    np.testing.assert_allclose(cr.to_numpy(moved.score(rows)), here.score(rows), rtol=1e-4, atol=1e-5)


def test_the_benchmark_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wikitext-2").mkdir()
    for name in ("train", "valid", "test"):
        (tmp_path / "wikitext-2" / f"{name}.txt").write_text(TEXT * 3, encoding="utf-8")
    _, lstm = models()
    lstm.save(tmp_path / "lstm")
    few = ["--cache", "5", "--continuous-cache", "6", "--rates", "0.001", "--decays", "0.01", "--segment", "6"]
    folders = ["--data", str(tmp_path), "--lstm", str(tmp_path / "lstm"), "--save", str(tmp_path / "saved")]
    mixtures.main([*folders, "--device", "cpu", "--order", "2", "--tokens", "20", *few])
    out = capsys.readouterr().out
    assert "both, caches, dynamic" in out
    assert cr.load(tmp_path / "saved" / "both-caches-by-match").kind == "mixture"
