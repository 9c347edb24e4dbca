"""Tests of the example of pairs: the data is the same in every run, and ROUGE is that of rouge-score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.harness import load_module

import chainrule as cr

FOLDER = Path(__file__).parents[1] / "examples" / "pairs"


def test_the_data_is_always_the_same_and_nothing_is_tested_that_was_learned(tmp_path: Path) -> None:
    make = load_module(FOLDER / "make.py", "pairs_make")
    make.main(tmp_path / "one")
    make.main(tmp_path / "two")
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}

    def prompts(name: str) -> list[str]:
        return [json.loads(line)["prompt"] for line in files[name].splitlines()]

    assert not set(prompts("questions.jsonl")) & set(prompts("questions-test.jsonl"))
    facts = files["facts.txt"].decode()
    answers = [json.loads(line)["reply"] for line in files["questions-test.jsonl"].splitlines()]
    assert len(answers) == 90 and all(answer.removesuffix(".") in facts for answer in answers)
    plays = " ".join(files["plays.txt"].decode().split())
    long = [prompt for prompt in prompts("turns-test.jsonl") if len(prompt) > 60]
    assert len(long) > 50 and not any(prompt in plays for prompt in long)


def test_measures_are_those_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure = load_module(FOLDER / "measure.py", "pairs_measure")
    pairs = [("a cat sat. a dog ran.", "a cat ran"), ("the end. of it.", "the end")]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"prompt": a, "reply": b}) + "\n" for a, b in pairs))
    cr.train("seq2seq", pairs * 8, cell="gru", width=8, layers=1, steps=2, batch=64).save(tmp_path / "model")
    measure.main(str(tmp_path / "model"), str(file))
    first, model = capsys.readouterr().out.splitlines()[1:]
    # ROUGE-1: 2 of 3 words and 2 of 2; ROUGE-2: 1 of 2 pairs and 1 of 1; ROUGE-L: as ROUGE-1
    assert first.split("\t") == ["first sentence", "83.3", "75.0", "83.3", "50.0"]
    assert len(model.split("\t")) == 5
