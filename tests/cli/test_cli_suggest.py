"""`chainrule suggest`: the words that complete a text or follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import chainrule as cr

from .running import Fails, Run, on_terminal


def test_a_text_on_the_command_line(run: Run, mle_model: Path) -> None:
    ran = run("suggest", mle_model, "--prompt", "i love ca")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()[2:]] == [["cats", "'ts'", "1.000"]]
    likely = run("suggest", mle_model, "--prompt", "i love", "--min-probability", "0.6", "--json")
    assert json.loads(likely.out)["suggestions"] == []


def test_texts_on_standard_input(run_alone: Run, mle_model: Path) -> None:
    ran = run_alone("suggest", mle_model, "-k", "1", "--json", stdin=b"cats ch\r\ni lo")
    assert ran.code == 0, ran.err
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["text"] for record in records] == ["cats ch", "i lo"]
    for record in records:
        (found,) = record["suggestions"]
        (wanted,) = cr.suggest(cr.load(mle_model), record["text"], 1)
        assert found == {"word": wanted.word, "completion": wanted.completion, "probability": wanted.probability}
    shown = run_alone("suggest", mle_model, stdin=b"cats ch\ni lo\n").out
    assert "cats ch" in shown
    assert "'ve'" in shown


def test_no_text_gives_no_output(run_alone: Run, mle_model: Path) -> None:
    ran = run_alone("suggest", mle_model)
    assert (ran.code, ran.out) == (0, "")


def test_bytes_that_are_no_text_are_named(run_alone: Run, mle_model: Path) -> None:
    ran = run_alone("suggest", mle_model, stdin=b"cats\n\xff\n")
    assert ran.code == 2
    assert "standard input: line 2 is not UTF-8" in ran.err


@pytest.mark.parametrize(("words", "named"), [(["-k", "0"], "-k"), (["--prompt"], "--prompt")])
def test_wrong_options_are_refused(fails: Fails, mle_model: Path, words: list[str], named: str) -> None:
    assert named in fails("suggest", mle_model, *words)


def test_inspect_shows_suggestions_first(run: Run, mle_model: Path) -> None:
    out = run("inspect", mle_model, "--prompt", "i love c").out
    assert out.index("word ") < out.index("next token")
    described = run("inspect", mle_model, "--prompt", "i love c", "--json").json
    assert [entry["word"] for entry in described["suggestions"]] == ["cats"]
    assert [(entry["token"], entry["adds"]) for entry in described["next"]] == [("cats", "ats")]
    plain = run("inspect", mle_model, "--prompt", "i love", "--no-heal", "--json").json
    assert plain["suggestions"] == []


def test_json_on_a_terminal_takes_the_place_of_the_waiting_line(mle_model: Path) -> None:
    seen = on_terminal(80, "suggest", mle_model, "--prompt", "i love ca", "--json", errors_too=True)
    assert seen.startswith("chainrule: starting …\r\x1b[2K{")


def test_a_small_network_of_torch_writes_on_the_tape(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU and in single precision, that starts without torch and writes faster; the words are the same."""
    from chainrule.autodiff.tape_model import TapeModel
    from chainrule.cli import options as opt

    lm = cr.train("gru", ["i love cats", "i love dogs"] * 4, steps=3, engine="torch", tokenizer="word", hidden=8)
    lm.save(tmp_path / "gru")
    on_cpu = {"device": "auto", "dtype": "float32"}
    folder = str(tmp_path / "gru")
    assert isinstance(opt.load_model(folder, on_cpu, "language", writes=True), TapeModel)
    assert not isinstance(opt.load_model(folder, on_cpu, "language"), TapeModel)
    in_bfloat16 = on_cpu | {"dtype": "bfloat16"}
    assert not isinstance(opt.load_model(folder, in_bfloat16, "language", writes=True), TapeModel)
    ran = run("suggest", folder, "--prompt", "i love", "--json").json
    (best, *_) = cr.suggest(lm, "i love")
    assert ran["suggestions"][0]["word"] == best.word
    assert ran["suggestions"][0]["probability"] == pytest.approx(best.probability, rel=1e-4)
    monkeypatch.setattr(opt, "_SMALL_BYTES", 1)
    assert not isinstance(opt.load_model(folder, on_cpu, "language", writes=True), TapeModel)
