"""`chainrule mix`: several models in one."""

from __future__ import annotations

from pathlib import Path

import pytest

import chainrule as cr

from .running import TRAIN_NGRAM, Fails, Run


@pytest.fixture
def bag(run: Run, corpus: Path, held_out: Path, animals: Path, tmp_path: Path) -> Path:
    """A small network over the same vocabulary."""
    settings = ["--set", "steps=30", "--set", "embedding=8", "--set", "hidden=8", "--set", "engine=tape"]
    tokenizer = ["--tokenizer", animals, "--held-out", held_out]
    assert (
        run("train", "gru", "--tokenizer", "word", corpus, "--out", tmp_path / "gru", *tokenizer, *settings).code
        == 0
    )
    return tmp_path / "gru"


def test_models_of_any_kind_become_one(run: Run, animals: Path, bag: Path, held_out: Path, tmp_path: Path) -> None:
    out = tmp_path / "both"
    report = run("mix", animals, bag, "--held-out", held_out, "--out", out, "--cache", "20", "--json").json
    assert report["names"] == ["ngram", "gru", "unigram cache of 20"]
    assert sum(report["weights"]) == pytest.approx(1)
    mixed, *single = (f["perplexity"] for f in run("evaluate", out, animals, bag, held_out, "--json").json)
    assert mixed == pytest.approx(report["held_out_perplexity"])
    assert single == pytest.approx(report["held_out_perplexities"][:2])
    assert mixed <= min(single)
    assert run("generate", out, "--prompt", "cats", "--max-tokens", "5").code == 0
    inspected = run("inspect", out, "--json").json
    assert (inspected["kind"], inspected["config"]["cache"]) == ("mixture", 20)


def test_what_was_found_is_printed(run: Run, animals: Path, bag: Path, held_out: Path, tmp_path: Path) -> None:
    ran = run("mix", animals, bag, "--valid", held_out, "--out", tmp_path / "m", "--by", "match")
    assert (ran.code, ran.err) == (0, "")
    assert "mean weight" in ran.out
    assert "held-out perplexity" in ran.out
    assert "than that of the best model" in ran.out
    lines = [line for line in ran.out.splitlines() if line.startswith(str(tmp_path))]
    assert len(lines) == 4  # two models, the mixture, and what it is


def test_unknown_words_are_told(run: Run, animals: Path, tmp_path: Path) -> None:
    """A cache makes <unk> likelier, and the perplexity of a text full of it lower; nothing was learned by that."""
    strange = tmp_path / "strange.txt"
    strange.write_text("i love zebras\nyou chase gnus\n")  # 2 of 8 tokens
    words = ("mix", animals, "--cache", 20, "--held-out", strange, "--out", tmp_path / "m", "--overwrite")
    assert "25.0% of the tokens held out are <unk>" in " ".join(run(*words).out.split())
    assert run(*words, "--json").json["held_out_oov"] == 0.25
    strange.write_text("i love cats\n")
    assert "<unk>" not in run(*words).out


def test_weights_can_be_given(run: Run, animals: Path, bag: Path, tmp_path: Path) -> None:
    ran = run("mix", animals, bag, "--weight", "0.25", "--out", tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    assert "25.0%" in ran.out
    three = ["--weight", "2", "--weight", "1", "--weight", "1"]
    assert run("mix", animals, bag, animals, *three, "--out", tmp_path / "n", "--json").json["weights"][0] == 0.5


def test_networks_learn_while_they_score(
    run: Run, bag: Path, animals: Path, held_out: Path, tmp_path: Path
) -> None:
    still, moving = (
        run("evaluate", bag, held_out, "--json", *options).json["perplexity"]
        for options in ([], ["--dynamic", "0.01", "--dynamic-set", "method=sgd", "--dynamic-set", "segment=4"])
    )
    assert moving != still
    tuned = ["--dynamic", "0.01", "--held-out", held_out]
    assert run("mix", animals, bag, *tuned, "--out", tmp_path / "m", "--json").json["dynamic"]["rate"] == 0.01


def test_what_cannot_be_mixed_is_refused(
    run: Run, fails: Fails, animals: Path, toy: Path, bpe_model: Path, held_out: Path, tmp_path: Path
) -> None:
    stream, out = tmp_path / "stream", ["--out", tmp_path / "m"]
    assert run(*TRAIN_NGRAM, toy, "--context", "stream", "--set", "order=2", "--out", stream).code == 0
    assert "choose one of --held-out and --weight" in fails("mix", animals, animals, *out)
    both = ["--weight", "0.5", "--held-out", held_out]
    assert "choose one of --held-out and --weight" in fails("mix", animals, animals, *out, *both)
    assert "between 0 and 1" in fails("mix", animals, animals, "--weight", "1.5", *out)
    assert "one model is no mixture" in fails("mix", animals, "--held-out", held_out, *out)
    assert "same context" in fails("mix", animals, stream, "--weight", "0.5", *out)
    different = fails("mix", animals, bpe_model, "--weight", "0.5", *out)
    assert "the first has 14 word tokens, number 2 has 277 bpe tokens" in different
    assert "no such model folder" in fails("mix", animals, tmp_path / "none", "--weight", "0.5", *out)
    assert "--overwrite" in fails("mix", animals, animals, "--weight", "0.5", "--out", animals)
    assert "is no network" not in fails("mix", animals, "--continuous-cache", "9", "--held-out", held_out, *out)
    (tmp_path / "empty.txt").write_text("")
    assert "empty" in fails("mix", animals, animals, "--held-out", tmp_path / "empty.txt", *out)
    assert "--dynamic-set goes with --dynamic" in fails("evaluate", animals, held_out, "--dynamic-set", "decay=1")
    assert "here is none" in fails("evaluate", animals, held_out, "--dynamic", "0.1")
    assert "chainrule mix" in fails("train", "mixture", toy, *out)
    assert not (tmp_path / "m").exists()


# -- merging ----------------------------------------------------------------------------------------------


def test_a_merged_model_is_better_than_either(
    run: Run, animals: Path, toy: Path, held_out: Path, tmp_path: Path
) -> None:
    other, out = tmp_path / "other", tmp_path / "both"
    settings = ["--set", "smoothing=laplace", "--set", "order=2"]
    assert run(*TRAIN_NGRAM, toy, "--out", other, *settings).code == 0
    report = run("mix", animals, other, "--merge", "--held-out", held_out, "--out", out, "--json").json
    assert report["folder"] == str(out)
    assert 0 < report["weights"][0] < 1
    assert sum(report["weights"]) == pytest.approx(1)
    figures = run("evaluate", out, animals, other, held_out, "--json").json
    mixed, *single = (figure["perplexity"] for figure in figures)
    assert mixed < min(single)
    assert cr.load(out).kind == "ngram"


def test_the_weight_of_a_merged_model_can_be_given(run: Run, animals: Path, tmp_path: Path) -> None:
    ran = run("mix", animals, animals, "--merge", "--weight", "0.25", "--out", tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    assert "25.0%" in ran.out
    inspected = run("inspect", tmp_path / "m", "--json").json
    assert inspected["metrics"]["weights"] == [0.25, 0.75]
    assert inspected["config"]["smoothing"] == "mixed"


def test_what_cannot_be_merged_is_refused(fails: Fails, animals: Path, bpe_model: Path, tmp_path: Path) -> None:
    out = ["--merge", "--weight", "0.5", "--out", tmp_path / "m"]
    assert "different tokenizers" in fails("mix", animals, bpe_model, *out)
    assert "takes two models, not 3" in fails("mix", animals, animals, animals, *out)
    assert "--cache is for mixtures" in fails("mix", animals, animals, *out, "--cache", "5")
    assert "takes one --weight" in fails("mix", animals, animals, *out, "--weight", "0.5")
    assert not (tmp_path / "m").exists()
