"""Tests that the benchmarks of networks run at a very small size, and that their figures are right."""

from __future__ import annotations

import gzip
import math
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.harness import load_module
from benchmarks.neural import main
from benchmarks.neural.lab import Lab, Run, ratio
from benchmarks.neural.nanogpt import NanoGPT, Plan
from benchmarks.neural.shakespeare import characters, their_ids
from torch import Tensor

from chainrule.inference.neural_model import NeuralModel

WORDS = ["the", "cat", "sees", "a", "dog", "and", "runs", "to", "an", "old", "tree", "by", "the", "river"]
LINES = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(3 + i % 5)) for i in range(120)]
TEXT = "\n".join(LINES) + "\n"
NANOGPT = os.environ.get("CHAINRULE_NANOGPT")
needs_nanogpt = pytest.mark.skipif(NANOGPT is None, reason="CHAINRULE_NANOGPT names no checkout of nanoGPT")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files named as those of the real texts."""
    folder = tmp_path_factory.mktemp("data")
    names = ["tinyshakespeare/input", "wikitext-2/train", "wikitext-2/valid", "wikitext-2/test", "simplewiki/valid"]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.txt").write_text(TEXT)
    (folder / "simplewiki/train.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    return folder


@pytest.fixture
def lab(data: Path, tmp_path: Path) -> Lab:
    options = Namespace(nanogpt=None, gpt_fast=tmp_path / "nothing")
    return Lab(tmp_path, data, "cpu", True, {}, options)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("cpu", "held-out loss after 1,920 characters"),
        ("shakespeare", "as evaluated"),
        ("lstm", "nn.LSTM, products in bfloat16"),
        ("minutes", "chainrule train lstm"),
        ("gpt2", "held-out nats a token"),
        ("wikitext", "5-gram, modified Kneser-Ney"),
    ],
)
def test_a_part_runs(
    part: str, said: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHAINRULE_NANOGPT", raising=False)
    main([part, "--small", "--device", "cpu", "--data", str(data)])
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert "chainrule" in printed or part == "wikitext"


@needs_nanogpt
@pytest.mark.parametrize("part", ["cpu", "shakespeare", "gpt2"])
def test_a_part_runs_beside_nanogpt(part: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([part, "--small", "--device", "cpu", "--data", str(data), "--nanogpt", str(NANOGPT)])
    printed = capsys.readouterr().out
    assert "left out" not in printed
    assert "nanoGPT" in printed


@needs_nanogpt
def test_nanogpt_learns_and_is_measured_as_ours_is(lab: Lab) -> None:
    plan = Plan(
        layers=1, heads=2, width=16, context=8, rows=8, learning_rate=1e-2, iterations=60, warmup=1, beta2=0.99
    )
    ids = their_ids(characters(lab))
    peer = NanoGPT(lab, Path(str(NANOGPT)), plan, ids.train, ids.vocab_size)
    before = peer.loss(ids.valid)
    # weights of 0.02 predict next to nothing: every character is as likely as any other
    assert before == pytest.approx(math.log(ids.vocab_size), abs=0.05)
    peer.steps(60)
    assert peer.done == 60
    assert peer.loss(ids.valid) < before - 0.5


def test_characters_are_numbered_from_the_line_end_on(lab: Lab) -> None:
    texts = characters(lab)
    ids = their_ids(texts)
    assert ids.vocab_size == len(set(TEXT))
    assert set(ids.train.tolist()) | set(ids.valid.tolist()) == set(range(ids.vocab_size))
    assert texts.tokenizer.decode(texts.valid.ids) in TEXT


def test_a_loss_in_windows_takes_every_token_but_the_first(lab: Lab) -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def nats(inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        seen.extend(zip(inputs_BT.tolist(), targets_BT.tolist(), strict=True))
        return targets_BT.sum() * 1.0

    # targets 1 to 7 sum up to 28
    assert lab.loss_in_windows(nats, np.arange(8), 3) == 28 / 7
    assert seen == [([0, 1, 2], [1, 2, 3]), ([3, 4, 5], [4, 5, 6]), ([6], [7])]


def test_rates_and_seconds_come_from_what_training_measured() -> None:
    def steps(step: int, tokens: int, rate: float) -> dict[str, Any]:
        return {"what": "steps", "step": step, "tokens": tokens, "tokens_per_second": rate}

    validation = {"what": "validation", "step": 4, "validation_loss": 2.5}
    records = [steps(2, 200, 50.0), steps(4, 400, 100.0), validation, steps(6, 600, 400.0)]
    run = Run(NeuralModel.__new__(NeuralModel), 1.0, records)
    assert run.rate == (100 + 400) / 2
    assert run.seconds_until(4) == 200 / 50 + 200 / 100
    assert run.seconds_until(6) == 6 + 200 / 400
    assert run.validations == [(4, 2.5)]
    assert (ratio(3.0, 2.0), ratio(3.0, None)) == ("1.50x", "")


def test_nanogpts_learning_rate_rises_and_falls_to_a_tenth() -> None:
    plan = Plan(
        layers=1, heads=1, width=8, context=8, rows=1, learning_rate=1.0, iterations=12, warmup=2, beta2=0.9
    )
    assert [plan.rate(step) for step in (0, 1)] == pytest.approx([1 / 3, 2 / 3])
    # from step 2 to 12 the cosine goes from 1 to 0: half way down it is 0.1 + 0.9 / 2
    assert [plan.rate(step) for step in (2, 7, 12, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_modules_of_a_checkout_do_not_hide_others(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("SIZE = 3\n")
    (tmp_path / "program.py").write_text("from json import SIZE\n")
    model = load_module(tmp_path / "model.py", "checkout_model")
    program = load_module(tmp_path / "program.py", "checkout_program", {"json": model})
    import json

    assert program.SIZE == 3
    assert hasattr(json, "loads")
    assert load_module(tmp_path / "model.py", "checkout_model") is model
    with pytest.raises(SystemExit, match="is that a checkout"):
        load_module(tmp_path / "nothing.py", "checkout_nothing")
    for name in ("checkout_model", "checkout_program"):
        del sys.modules[name]


def test_missing_peers_and_texts_are_reported(lab: Lab, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.peer("nanoGPT") is None
    assert capsys.readouterr().out == "nanoGPT is left out: name a checkout of it with --nanogpt\n"
    with pytest.raises(SystemExit, match="no such folder"):
        main(["cpu", "--small", "--data", str(data), "--nanogpt", "nothing"])
    with pytest.raises(SystemExit, match="is not there"):
        main(["cpu", "--small", "--data", "nothing"])
    with pytest.raises(SystemExit):
        main(["speed"])
