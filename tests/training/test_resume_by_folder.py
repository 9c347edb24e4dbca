"""`chainrule resume RUN` and `chainrule.resume(run)`: a run folder knows its own training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_resume import run

import chainrule as cr
from chainrule.errors import CorpusError, DamagedFileError, FolderError, SettingsError, TrainingError
from chainrule.runs.record import describe_corpus, open_corpus
from stopping import interrupted, stopping

SMALL: dict[str, Any] = {"engine": "tape", "steps": 12, "hidden": 8, "embedding": 4, "batch": 64}
SET = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"line {i % 7} of a text with {i % 3} cats\n" for i in range(60)), encoding="utf-8")
    return path


def stopped(corpus: Any, folder: Path, **more: Any) -> Path:
    """The run folder of a training that was stopped after five of twelve steps."""
    with interrupted(5):
        cr.train("elman", corpus, run=folder / "stopped", **{"tokenizer": "word", **SMALL, **more})
    return folder / "stopped"


def weights(lm: cr.LanguageModel) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in lm.tensors().items()}


@pytest.mark.parametrize("own_tokenizer", [False, True])
def test_a_run_goes_on_as_if_it_had_not_been_stopped(own_tokenizer: bool, corpus: Path, tmp_path: Path) -> None:
    tokenizer = cr.train_tokenizer("char", corpus) if own_tokenizer else cr.TokenizerChoice("word", min_count=2)
    valid = tmp_path / "valid.txt"
    valid.write_text("line 3 of a text\n", encoding="utf-8")
    more: dict[str, Any] = {"tokenizer": tokenizer, "valid": valid, "context": "stream", "seed": 3}
    whole = cr.train("elman", corpus, **SMALL, **{"tokenizer": "word", **more})
    folder = stopped(corpus, tmp_path, **more)
    lm = cr.resume(folder)
    assert (lm.metrics["steps"], lm.context) == (12, "stream")
    assert weights(lm) == weights(whole)
    assert [r["loss"] for r in lm.history.records] == [r["loss"] for r in whole.history.records]


def test_a_corpus_that_moved_is_asked_for(corpus: Path, tmp_path: Path) -> None:
    folder = stopped(corpus, tmp_path)
    moved = corpus.rename(tmp_path / "moved.txt")
    with pytest.raises(CorpusError, match=r"corpus.txt: the corpus of this run is no longer there; if it moved"):
        cr.resume(folder)
    before = (folder / "run.json").read_bytes()
    with pytest.raises(TrainingError, match="another corpus"):
        cr.resume(folder, corpus="another text\nof two lines\n")
    assert (folder / "run.json").read_bytes() == before  # what was refused is not written down
    assert cr.resume(folder, corpus=moved).metrics["steps"] == 12
    assert json.loads((folder / "run.json").read_text())["corpus"]["files"] == [str(moved)]


def test_a_held_out_text_that_moved_is_asked_for_by_its_option(corpus: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("line 3 of a text\n", encoding="utf-8")
    folder = stopped(corpus, tmp_path, valid=valid)
    moved = valid.rename(tmp_path / "moved.txt")
    with pytest.raises(CorpusError, match=r"the held-out text of this run .* --held-out FILE, .*valid=\.\.\."):
        cr.resume(folder)
    assert cr.resume(folder, valid=moved).metrics["steps"] == 12


def test_text_in_memory_is_asked_for(corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_text(encoding="utf-8")
    folder = stopped(text, tmp_path)
    with pytest.raises(CorpusError, match=r"was not in a file \(the text\): give it again"):
        cr.resume(folder)
    assert weights(cr.resume(folder, corpus=text)) == weights(
        cr.train("elman", corpus, **{"tokenizer": "word", **SMALL})
    )


def test_a_pretraining_goes_on_with_the_text_that_it_began_with(corpus: Path, tmp_path: Path) -> None:
    """A translator learns from pairs, but what it is pretrained on is text, also when it is given again."""
    small = {"pretrain": "infilling", "cell": "gru", "width": 8, "layers": 1, "steps": 8, "tokenizer": "word"}
    with interrupted(5):
        cr.train("seq2seq", corpus, run=tmp_path / "stopped", **small)  # type: ignore[arg-type]
    moved = corpus.rename(tmp_path / "moved.txt")
    assert cr.resume(tmp_path / "stopped", corpus=moved).metrics["steps"] == 8


def test_builtin_text_is_found_again(tmp_path: Path) -> None:
    corpus = cr.Corpus.open("builtin:python")
    description = describe_corpus(corpus)
    assert description == {"files": ["builtin:python"]}
    assert open_corpus(description, "corpus", tmp_path) == corpus


def test_bytes_that_are_not_utf8_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 au lait\n" * 20 + b"tea\n" * 20)
    folder = stopped(cr.Corpus.open(path, encoding_errors="replace"), tmp_path)
    assert cr.resume(folder).metrics["steps"] == 12


def test_settings_that_may_change_may(corpus: Path, tmp_path: Path) -> None:
    folder = stopped(corpus, tmp_path)
    with pytest.raises(TrainingError, match="settings hidden: 8 then, 9 now"):
        cr.resume(folder, hidden=9)
    assert cr.resume(folder, steps=15).metrics["steps"] == 15


def test_files_of_the_settings_are_looked_for_where_the_run_began(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text("cats 1 2 3 4\nline 4 3 2 1\n", encoding="utf-8")
    folder = stopped(corpus, tmp_path, vectors="vectors.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=r"vectors=vectors.txt is a file of .*: resume the run in that folder"):
        cr.resume(folder)
    monkeypatch.chdir(tmp_path)
    assert cr.resume(folder).metrics["steps"] == 12


def test_what_cannot_be_resumed_is_said(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"nothing: no such run folder$"):
        cr.resume(tmp_path / "nothing")
    (tmp_path / "model.run").mkdir()
    (tmp_path / "model.run" / "run.json").touch()
    with pytest.raises(FolderError, match=r"model: no such run folder \(there is .*/model\.run\)$"):
        cr.resume(tmp_path / "model")
    with pytest.raises(
        FolderError, match=r"not a run folder: it has no run\.json \(resume a run of an earlier version"
    ):
        cr.resume(tmp_path)
    with pytest.raises(FolderError, match=r"corpus.txt: a file, not a run folder"):
        cr.resume(corpus)
    cr.train("elman", corpus, run=tmp_path / "model.run", **{"tokenizer": "word", **SMALL}).save(tmp_path / "model")
    with pytest.raises(FolderError, match=r"model: not a run folder: .*\(there is .*model\.run\)"):
        cr.resume(tmp_path / "model")
    cr.train("elman", corpus, run=tmp_path / "run", **{"tokenizer": "word", **SMALL})
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / checkpoint.name)
    with pytest.raises(FolderError, match="there is no checkpoint to continue from: it has finished"):
        cr.resume(tmp_path / "run")
    for damage in (
        "{",
        "{}",
        '{"format": "chainrule-run", "version": 9}',
        '{"format": "chainrule-run", "version": 1}',
    ):
        (tmp_path / "run" / "run.json").write_text(damage)
        with pytest.raises(DamagedFileError, match=r"run\.json"):
            cr.resume(tmp_path / "run")


def test_the_command(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    out, whole = tmp_path / "model", tmp_path / "whole"
    assert run(capsys, "train", "elman", "--tokenizer", "word", corpus, "--out", whole, *SET)[0] == 0
    with monkeypatch.context() as patched:
        stopping(patched, 5)
        run(capsys, "train", "elman", "--tokenizer", "word", corpus, "--out", out, *SET)
    moved = corpus.rename(tmp_path / "moved.txt")
    code, said = run(capsys, "resume", f"{out}.run")
    assert code == 2
    assert f"if it moved, give it again: chainrule resume {out}.run --corpus FILE" in said
    assert run(capsys, "resume", f"{out}.run", "--corpus", moved)[0] == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert not (tmp_path / "model.run" / "checkpoints").exists()
    code, said = run(capsys, "resume", f"{out}.run")
    assert code == 2
    assert "its training has finished, and nothing is left to resume" in said


def test_the_command_needs_a_name_for_the_model(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    folder = stopped(corpus, tmp_path)
    code, said = run(capsys, "resume", folder)
    assert code == 2
    assert "name the model folder to write with --out" in said
    for name in ("corpus", "device", "progress"):  # arguments of cr.resume, and no settings
        code, said = run(capsys, "resume", folder, "--out", tmp_path / "model", "--set", f"{name}=1")
        assert code == 2
        assert f"unknown setting '{name}'" in said
    assert run(capsys, "resume", folder, "--out", tmp_path / "model", "--keep", "--set", "steps=14")[0] == 0
    assert cr.load(tmp_path / "model").metrics["steps"] == 14
    assert (folder / "checkpoints").exists()
