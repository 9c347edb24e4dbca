"""`chainrule train seq2seq`, `translate`, `evaluate` on pairs, `compare --task`, and verbs of other tasks."""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.comparison.results import read_comparison
from chainrule.contract.kinds import LadderEntry, find_kind

from .running import TRAIN_NGRAM, Fails, Run, sets

PAIRS = [(f"a{i % 7} b{i % 5}", f"c{i % 5} d{i % 7}") for i in range(40)]
SMALL = ("cell=gru", "width=16", "layers=1", "batch=64", "steps=4", "validate_every=2", "average=none")
SETTINGS = sets(*SMALL)


@dataclass(frozen=True)
class Files:
    """Pairs in two files and in one."""

    source: Path
    target: Path
    table: Path
    model: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("pairs")
    found = Files(folder / "a.src", folder / "a.tgt", folder / "a.tsv", folder / "model")
    found.source.write_text("".join(f"{source}\n" for source, _ in PAIRS), encoding="utf-8")
    found.target.write_text("".join(f"{target}\n" for _, target in PAIRS), encoding="utf-8")
    rows = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    found.table.write_text(f"en\tde\n{rows}", encoding="utf-8")
    settings = dict(setting.split("=") for setting in SMALL)
    cr.train("seq2seq", PAIRS, tokenizer="word", **settings).save(found.model)
    return found


def test_two_files_and_one_with_two_fields_give_the_same_model(run: Run, files: Files, tmp_path: Path) -> None:
    valid = ["--held-out", files.source, "--held-out", files.target]
    words = ["train", "seq2seq", files.source, files.target, *valid, "--tokenizer", "word", *SETTINGS]
    ran = run(*words, "--out", tmp_path / "two")
    assert ran.code == 0, ran.err
    assert "trained on 40 pairs, " in ran.out and "target tokens" in ran.out and "perplexity" in ran.out
    fields = ["--field", "en", "--field", "de"]
    words = ["train", "seq2seq", files.table, "--held-out", files.table, *fields, "--tokenizer", "word", *SETTINGS]
    assert run(*words, "--out", tmp_path / "one", "--json").json["pairs"] == 40
    one, two = (cr.load(tmp_path / name).tensors() for name in ("one", "two"))
    assert all((one[name] == two[name]).all() for name in one)


def test_the_tokenizer_is_that_of_the_kind(run: Run, files: Files, tmp_path: Path, fails: Fails) -> None:
    words = ["train", "seq2seq", files.source, files.target, *SETTINGS]
    assert run(*words, "--source-tokenizer", "char", "--vocab-size", "300", "--out", tmp_path / "m").code == 0
    lm = cr.load(tmp_path / "m")
    assert (lm.tokenizer.name, lm.source_tokenizer.name) == ("bpe", "char")  # type: ignore[attr-defined]
    assert "has no sources" in fails(
        *TRAIN_NGRAM, files.source, "--source-tokenizer", "char", "--out", tmp_path / "n"
    )


def test_a_stopped_training_goes_on_from_its_folder(run: Run, files: Files, tmp_path: Path) -> None:
    words = ["train", "seq2seq", files.source, files.target, "--tokenizer", "word", "--source-tokenizer", "word"]
    assert run(*words, *SETTINGS, "--keep", "--out", tmp_path / "m").code == 0
    ran = run("resume", tmp_path / "m.run", "--set", "steps=6", "--overwrite", "--json")
    assert ran.json["steps"] == 6
    moved = ["--corpus", files.source, "--corpus", files.target]
    assert run(*words, *SETTINGS, "--keep", "--out", tmp_path / "n").code == 0
    assert run("resume", tmp_path / "n.run", *moved, "--set", "steps=6", "--overwrite").code == 0


def test_translations_come_in_order(run: Run, files: Files, tmp_path: Path) -> None:
    (tmp_path / "few").write_text("a1 b1\n\na2 b2\n", encoding="utf-8")
    ran = run("translate", files.model, tmp_path / "few", "a1 b1")
    lines = ran.out.splitlines()
    assert len(lines) == 4
    assert lines[1] == ""
    assert lines[0] == lines[3] == cr.translate(cr.load(files.model), "a1 b1")
    best = [line.split("\t") for line in run("translate", files.model, "a1 b1", "--nbest", 3).out.splitlines()]
    assert [row[0] for row in best] == ["1"] * 3
    assert float(best[0][1]) >= float(best[1][1]) >= float(best[2][1])
    found = json.loads(run("translate", files.model, "a1 b1", "--json", "--nbest", 2).out)
    assert found["translation"] == found["translations"][0]["text"] == lines[0]
    assert len(found["translations"]) == 2
    records = run("translate", files.model, files.table, "--field", "en").out.splitlines()
    assert len(records) == len(PAIRS)


def test_standard_input_is_translated(run: Run, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a1 b1\na2 b2\n")))
    assert len(run("translate", files.model, "--batch", 1, "--temperature", 0.7).out.splitlines()) == 2


def test_alignments_are_drawn(run: Run, files: Files, tmp_path: Path, fails: Fails) -> None:
    picture = tmp_path / "a.svg"
    assert run("translate", files.model, "a1 b1", "--alignments", picture).code == 0
    assert "a1" in picture.read_text(encoding="utf-8")
    assert "exists" in fails("translate", files.model, "a1 b1", "--alignments", picture)


def test_a_source_that_is_cut_is_said(run: Run, tmp_path: Path) -> None:
    lm = cr.train("seq2seq", PAIRS, tokenizer="word", width=16, layers=1, heads=2, window=4, steps=1, batch=64)
    lm.save(tmp_path / "m")
    (tmp_path / "long").write_text("a1 b1\na1 b1 a1 b1 a1\n", encoding="utf-8")
    ran = run("translate", tmp_path / "m", tmp_path / "long")
    assert "long, line 2: longer than the 4 tokens the model takes; cut" in " ".join(ran.err.split())
    assert len(ran.out.splitlines()) == 2


def test_pairs_are_measured(run: Run, files: Files, tmp_path: Path) -> None:
    words = ["evaluate", files.model, "--source", files.source, "--target", files.target]
    ran = run(*words, "--plot", tmp_path / "p.svg")
    assert "BLEU" in ran.out and "chrF" in ran.out and "nrefs:1" in ran.out and "copying the sources" in ran.out
    assert "<svg" in (tmp_path / "p.svg").read_text(encoding="utf-8")
    one = run(*words, "--beams", 2, "--json").json
    other = run("evaluate", files.model, files.table, "--field", "en", "--field", "de", "--beams", 2, "--json").json
    assert one["bleu"] == other["bleu"] and one["perplexity"] == other["perplexity"]


def test_the_right_verb_is_named(fails: Fails, files: Files, corpus: Path, tmp_path: Path) -> None:
    use = f"a model of the kind seq2seq writes a target for a source: use chainrule translate {files.model}"
    for words in (
        ["generate", files.model],
        ["suggest", files.model, "--prompt", "a"],
        ["score", files.model, corpus],
        ["inspect", files.model, "--prompt", "a"],
        ["explain", files.model, "--prompt", "a"],
        ["diagnose", files.model, "--prompt", "a"],
    ):
        assert use in fails(*words)
    cr.train("ngram", ["a b"], tokenizer="word").save(tmp_path / "ngram")
    assert f"a model of the kind ngram predicts text: use chainrule generate {tmp_path / 'ngram'}" in fails(
        "translate", tmp_path / "ngram", corpus
    )
    assert "measured on pairs" in fails("evaluate", files.model, corpus)
    assert "predicts text" in fails(
        "evaluate", tmp_path / "ngram", "--source", files.source, "--target", files.target
    )


def test_bad_pairs_are_said(fails: Fails, files: Files, tmp_path: Path) -> None:
    short, gap = tmp_path / "short", tmp_path / "gap"
    short.write_text("a\nb\n", encoding="utf-8")
    gap.write_text("".join("\n" if i == 2 else "x\n" for i in range(40)), encoding="utf-8")
    out = ["--out", tmp_path / "m"]
    told = fails("train", "seq2seq", files.source, short, *out)
    assert "a.src has 40 lines" in told and "short has 2" in told and "line 3 of" in told
    assert "line 3: the target is empty" in fails("train", "seq2seq", files.source, gap, *out)
    assert "pairs are two files" in fails("train", "seq2seq", files.source, *out)
    assert "name the fields" in fails("train", "seq2seq", files.table, *out)
    assert "plain text has no fields" in fails("train", "seq2seq", files.source, short, "--field", "en", *out)
    assert "go together" in fails("evaluate", files.model, "--source", files.source)
    assert "no such file" in fails("translate", files.model, tmp_path / "nothing")


# -- comparisons ------------------------------------------------------------------------------------------


@pytest.fixture
def short_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries of a few steps."""
    settings = dict(setting.split("=") for setting in SMALL)
    entries = tuple(LadderEntry(f"gru, {name}", {**settings, "attention": name}) for name in ("none", "dot"))
    kind = replace(find_kind("seq2seq"), ladder=entries)
    monkeypatch.setattr("chainrule.seq2seq.training.KIND", kind)


@pytest.mark.usefixtures("short_ladder")
def test_translators_are_compared(run: Run, files: Files, tmp_path: Path, fails: Fails) -> None:
    out = tmp_path / "ladder"
    words = ["compare", "--task", "translation", files.source, files.target, "--tokenizer", "word", "--out", out]
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert "gru, none" in ran.out and "BLEU" in ran.out and "(best)" in ran.out
    found = read_comparison(out)
    assert found is not None and found.best is not None
    assert f"chainrule translate {out}/{found.best.folder}" in ran.out
    assert found.task == "translation" and found.is_finished
    assert found.frontier("tokens_per_second") and found.frontier("megabytes")
    # stopped before the last model: the same command goes on
    shutil.rmtree(out / "gru-dot")
    content = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    content["results"].pop()
    (out / "compare.json").write_text(json.dumps(content), encoding="utf-8")
    again = run(*words)
    assert again.code == 0, again.err
    assert "1 of 2 models are there from before" in again.err
    assert "compare it with --task translation" in fails(
        "compare", files.source, "--kind", "seq2seq", "--out", tmp_path / "n"
    )
