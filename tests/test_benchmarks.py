"""Tests of the small functions of the benchmarks, on which the meaning of the figures depends."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import defaults
from benchmarks.ngram import gpu, main, score, suggesting
from benchmarks.ngram.lab import Lab, Ran, has_kenlm, measure, size_of

import chainrule as cr
from chainrule.ngram.ngram_model import NgramModel

TEXT = "i love cats\ni love dogs\n\ncats chase mice\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


def test_a_child_is_measured_alone() -> None:
    ran = measure([sys.executable, "-c", "print(sum(range(2_000_000)))"])
    assert ran.output == "1999999000000\n"
    assert ran.cpu > 0
    assert ran.seconds > 0
    assert ran.peak > 1e6  # at least a Python; this process, if that is larger, until the child has started


def test_a_child_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match=r"failed \(3\): no text"):
        measure([sys.executable, "-c", "import sys; print('no text', file=sys.stderr); sys.exit(3)"])


def test_two_runs_in_turn_have_the_sum_of_times_and_the_larger_memory() -> None:
    assert Ran(1, 2, 300).then(Ran(10, 20, 200, "done")) == Ran(11, 22, 300, "done")


def test_a_lab_takes_lines_or_words(tmp_path: Path, text: Path) -> None:
    lab = Lab.prepare(tmp_path, text, text, 2, argparse.Namespace())
    assert (lab.lines, lab.words, lab.text.read_text()) == (2, 6, "i love cats\ni love dogs\n")
    lab = Lab.prepare(tmp_path, text, text, None, argparse.Namespace())
    assert (lab.lines, lab.words, lab.text.read_text()) == (4, 9, TEXT)
    assert lab.head(4).read_text() == "i love cats\ni love dogs\n"


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3))
    (tmp_path / "b").write_bytes(bytes(4))
    assert (size_of(tmp_path), size_of(tmp_path / "b")) == (7, 4)


def test_perplexity_with_and_without_unknown_words() -> None:
    # four tokens of probability 1/2, one unknown of 1/32: (2^4 · 2^5)^(1/5) and 2
    found = {"tokens": 5, "unknown": 1, "nats": -9 * math.log(2), "nats_of_known": -4 * math.log(2)}
    assert np.allclose(score.perplexities(found), (2 ** (9 / 5), 2))


def test_a_missing_peer_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert not has_kenlm("lmplz")
    assert capsys.readouterr().out == "KenLM is left out: not on PATH: lmplz\n"


def test_a_model_of_ids_on_a_device_is_the_one_that_training_gives() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TEXT * 20), order=gpu.ORDER, tokenizer="word", context="line")
    assert isinstance(lm, NgramModel)
    ids = lm.tokenizer.encode_lines((TEXT * 20).encode()).astype(np.int64)
    automaton = gpu.model_of(torch.as_tensor(ids), lm.tokenizer)
    np.testing.assert_allclose(automaton.to(None).score(ids), lm.automaton.score(ids), atol=1e-5)


def test_lines_are_scored_beside_kenlm_where_it_is(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out = tmp_path / "held-out.txt"
    held_out.write_text("i love mice\ncats chase zebras\n", encoding="utf-8")
    lab = Lab.prepare(tmp_path, text, held_out, None, argparse.Namespace())
    cr.train("ngram", TEXT, order=2, tokenizer="word").save(tmp_path / "model")
    lab._made = {form: (tmp_path / "model", Ran(0, 0, 0)) for form in ("hash", "compact")}
    monkeypatch.setattr(score, "ROUNDS", 1)
    score.run_texts(lab)
    said = capsys.readouterr().out
    assert "chainrule.score, hash" in said and "2 lines" in said
    assert "KenLM is left out" in said or ("kenlm full_scores" in said and "TOO MUCH" not in said)


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["speed"])


def test_names_are_listed() -> None:
    found = subprocess.run([sys.executable, "-m", "benchmarks"], capture_output=True, text=True, check=False)
    names = "autodiff, decode, defaults, masked, mixtures, neural, ngram, pretraining, scale, seq2seq, serve, "
    names += "spelling, tagging, tokens"
    assert found.stderr.endswith(f"there are: {names}\n")


def test_suggestions_are_the_same_but_for_equally_likely_words() -> None:
    def found(**words: float) -> list[cr.decode.Suggestion]:
        return [cr.decode.Suggestion(word, word, p) for word, p in words.items()]

    assert suggesting.same(found(a=0.5, b=0.2, c=0.1), found(a=0.5, b=0.2, d=0.100001))
    assert not suggesting.same(found(a=0.5, b=0.2, c=0.1), found(a=0.5, c=0.2, b=0.1))
    assert not suggesting.same(found(a=0.5, b=0.2), found(a=0.5, b=0.21))
    assert not suggesting.same(found(a=0.5), found(a=0.5, b=0.2))


def test_the_regret_of_defaults_is_measured_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.de", "val.de"):
        (tmp_path / "multi30k").mkdir(exist_ok=True)
        (tmp_path / "multi30k" / name).write_text(TEXT * 20)
    options = ["feedforward", "--texts", "german", "--steps", "2", "--device", "cpu", "--data", str(tmp_path)]
    record = tmp_path / "runs.jsonl"
    defaults.main([*options, "--record", str(record)])
    first, runs = capsys.readouterr().out, [json.loads(line) for line in record.read_text().splitlines()]
    perplexities = {run["change"]: run["perplexity"] for run in runs}
    assert {"plain", "half the rate", "twice the rate", "larger"} <= perplexities.keys()
    assert len(set(perplexities.values())) > 3
    regret = perplexities["plain"] / min(perplexities.values()) - 1
    assert f"{regret:.1%}" in first
    monkeypatch.setattr(defaults.cr, "train", None)  # a run that is kept is not repeated
    defaults.main([*options, "--record", str(record)])
    assert f"{regret:.1%}" in capsys.readouterr().out
