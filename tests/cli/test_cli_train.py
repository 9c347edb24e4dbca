"""`chainrule train`: a corpus in, a model folder out."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.tokens.registry import NAMES
from stopping import stopping

from .running import TRAIN_NGRAM, Fails, Run, sets


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return content


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_model_folder_is_written_and_reported(run: Run, corpus: Path, tmp_path: Path) -> None:
    ran = run(*TRAIN_NGRAM, corpus, "--set", "smoothing=witten-bell", "--out", tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    assert str(tmp_path / "m") in ran.out
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "metrics.json",
        "README.md",
    }
    assert cr.load(tmp_path / "m").perplexity("i love cats") < 20


def test_json_says_what_was_made(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    report = run(*TRAIN_NGRAM, corpus, "--set", "smoothing=mle", "--out", out, "--json").json
    assert report["folder"] == str(out)
    words = corpus.read_text(encoding="utf-8")
    assert report["tokens"] == len(words.split()) + words.count("\n")
    assert report["seconds"] >= 0
    assert report["megabytes"] == sum(file.stat().st_size for file in out.iterdir()) / 1e6


@pytest.mark.parametrize("name", NAMES)
def test_every_tokenizer_can_be_named(run: Run, corpus: Path, tmp_path: Path, name: str) -> None:
    ran = run("train", "ngram", corpus, "--tokenizer", name, "--set", "order=2", "--out", tmp_path / "m")
    assert ran.code == 0, ran.err
    described = run("inspect", tmp_path / "m", "--json").json
    assert described["tokenizer"] == name
    tokenizer = cr.load(tmp_path / "m").tokenizer
    assert tokenizer.decode(tokenizer.encode("we love the café")) == "we love the café"


def test_a_folder_stands_for_the_tokenizer_in_it(
    run: Run, corpus: Path, toy: Path, model: Path, tmp_path: Path
) -> None:
    assert run("tokenize", corpus, "--tokenizer", "char", "--out", tmp_path / "characters").code == 0
    for folder in (tmp_path / "characters", model):
        out = tmp_path / f"from-{folder.name}"
        assert run("train", "ngram", toy, "--tokenizer", folder, "--out", out).code == 0
        ours, theirs = (json.loads((place / "tokenizer.json").read_text()) for place in (out, folder))
        assert ours == {key: value for key, value in theirs.items() if key != "checksum"}


@pytest.mark.parametrize(
    ("option", "known"),
    [
        (["--vocab-size", "2"], {"i", "love"}),
        (["--vocab-size", "50%"], {"i", "love", "cats"}),
        (["--min-count", "2"], {"i", "love", "cats"}),
        (["--min-count", "2", "--vocab-size", "1"], {"i"}),
    ],
)
def test_the_vocabulary_can_be_bounded(run: Run, tmp_path: Path, option: list[str], known: set[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("i i i i love love love cats cats mice dogs the\n", encoding="utf-8")
    ran = run(*TRAIN_NGRAM, text, "--set", "smoothing=mle", "--out", tmp_path / "m", *option)
    assert ran.code == 0, ran.err
    tokenizer = cr.load(tmp_path / "m").tokenizer
    special = {tokenizer.bos, tokenizer.eos, tokenizer.unk}
    assert {tokenizer.token(i) for i in range(tokenizer.vocab_size) if i not in special} == known


def test_held_out_text_can_be_named(run: Run, corpus: Path, held_out: Path, tmp_path: Path) -> None:
    assert run(*TRAIN_NGRAM, corpus, "--held-out", held_out, "--out", tmp_path / "m").code == 0
    provenance = manifest(tmp_path / "m")["provenance"]
    assert provenance["corpus_sha256"] == sha256(corpus)
    assert provenance["held_out_sha256"] == sha256(held_out)


def test_context_can_flow_across_lines(run: Run, corpus: Path, tmp_path: Path) -> None:
    assert run(*TRAIN_NGRAM, corpus, "--context", "stream", "--out", tmp_path / "m").code == 0
    assert manifest(tmp_path / "m")["context"] == "stream"
    written = run("generate", tmp_path / "m", "--max-tokens", "40", "--json").json[0]
    assert written["tokens"] == 40
    assert "\n" in written["text"]


def test_settings_reach_the_model(run: Run, corpus: Path, tmp_path: Path) -> None:
    settings = ["--set", "order=2", "--set", "smoothing=add-k", "--set", "k=0.25"]
    assert run(*TRAIN_NGRAM, corpus, *settings, "--out", tmp_path / "m").code == 0
    config = manifest(tmp_path / "m")["config"]
    assert (config["order"], config["smoothing"], config["k"]) == (2, "add-k", 0.25)


def test_the_seed_decides_what_is_held_out(run: Run, corpus: Path, tmp_path: Path) -> None:
    tuned = ("--set", "smoothing=jelinek-mercer")

    def held_out(seed: int, name: str) -> str:
        assert run(*TRAIN_NGRAM, corpus, *tuned, "--seed", seed, "--out", tmp_path / name).code == 0
        provenance = manifest(tmp_path / name)["provenance"]
        assert provenance["seed"] == seed
        fingerprint: str = provenance["held_out_sha256"]
        return fingerprint

    first = held_out(1, "a")
    assert held_out(1, "b") == first
    assert held_out(2, "c") != first


def test_overwrite_replaces_a_model(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert run(*TRAIN_NGRAM, corpus, "--set", "order=2", "--out", out).code == 0
    assert run(*TRAIN_NGRAM, corpus, "--set", "order=1", "--out", out, "--overwrite").code == 0
    assert manifest(out)["config"]["order"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_an_empty_folder_may_become_the_model(run: Run, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert run(*TRAIN_NGRAM, corpus, "--out", tmp_path / "m").code == 0
    assert cr.load(tmp_path / "m").tokenizer.vocab_size > 3


def test_several_files_and_patterns_are_one_corpus(run: Run, tmp_path: Path) -> None:
    for name, line in (("a.txt", "i love cats\n"), ("b.txt", "i love dogs\n"), ("c.text", "cats chase mice\n")):
        (tmp_path / name).write_text(line, encoding="utf-8")
    options = ["--set", "smoothing=mle", "--json", "--out", tmp_path / "m"]
    assert run(*TRAIN_NGRAM, tmp_path / "*.txt", tmp_path / "c.text", *options).json["tokens"] == 12


@pytest.mark.parametrize("smoothing", ["jelinek-mercer", "mle"])
def test_replaced_bytes_are_counted_whatever_the_smoothing(run: Run, tmp_path: Path, smoothing: str) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"i love \xff cats\ni love dogs\ncats \xfe mice\n")
    options = ["--encoding-errors", "replace", "--set", f"smoothing={smoothing}", "--out", tmp_path / "m"]
    ran = run(*TRAIN_NGRAM, text, *options)
    assert ran.code == 0
    (said,) = (line for line in ran.err.splitlines() if "U+FFFD" in line)
    assert said.endswith("replaced by U+FFFD: 2")


def test_a_text_with_nothing_to_hold_out_is_noted(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one line\n", encoding="utf-8")
    ran = run(*TRAIN_NGRAM, text, "--set", "smoothing=jelinek-mercer", "--out", tmp_path / "m")
    assert ran.code == 0
    assert "held-out" in ran.err


def test_discounts_that_a_text_is_too_small_for_are_noted(run: Run, toy: Path, tmp_path: Path) -> None:
    ran = run(*TRAIN_NGRAM, toy, "--set", "order=2", "--out", tmp_path / "m")
    assert ran.code == 0
    assert ran.err == (
        "note: bigram, modified-kneser-ney: the counts of 1- and 2-grams give no valid discount; "
        "falling back to 0.5, 1, 1.5, as is usual for short or repetitive text\n"
    )


def test_a_folder_name_is_printed_as_it_is(run: Run, corpus: Path, tmp_path: Path) -> None:
    """Square brackets mean something to the library that prints."""
    out = tmp_path / "[bold]m"
    ran = run(*TRAIN_NGRAM, corpus, "--out", out)
    assert ran.code == 0, ran.err
    assert str(out) in ran.out


def test_standard_input_is_a_corpus_and_a_text(
    run_alone: Run, corpus: Path, held_out: Path, tmp_path: Path
) -> None:
    options = ["--set", "smoothing=witten-bell", "--out", tmp_path / "m"]
    trained = run_alone(*TRAIN_NGRAM, "-", *options, stdin=corpus.read_bytes())
    assert (trained.code, trained.err) == (0, "")
    piped = run_alone("evaluate", tmp_path / "m", "-", "--json", stdin=held_out.read_bytes())
    named = run_alone("evaluate", tmp_path / "m", held_out, "--json")
    assert (piped.code, piped.err) == (0, "")
    same = ("perplexity", "nats", "bits", "bits_per_byte", "tokens", "bytes", "oov")
    assert [piped.json[key] for key in same] == [named.json[key] for key in same]


TAPE = ["--set", "engine=tape", "--set", "steps=6", "--set", "hidden=8", "--set", "validate_every=2"]


@pytest.mark.parametrize("option", [[], ["--run", "own"]], ids=["default", "own"])
def test_the_tape_keeps_a_run(
    run: Run, fails: Fails, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    """In the default folder, or in one that is asked for; stopped by Ctrl-C, it goes on to the same model."""
    monkeypatch.chdir(tmp_path)
    words, folder = (
        ["train", "feedforward", "--tokenizer", "word", corpus, *TAPE, *option],
        Path(option[1] if option else "m.run"),
    )
    assert run("train", "feedforward", "--tokenizer", "word", corpus, *TAPE, "--out", "whole").code == 0
    assert sorted(path.name for path in Path("whole.run").iterdir()) == ["last", "metrics.jsonl", "run.json"]
    with monkeypatch.context() as patched:
        stopping(patched, 3)
        stopped = run(*words, "--out", "m")
    assert stopped.code == 130
    assert (
        f"stopped after step 3 of 6; go on with: chainrule resume {folder} (in Python, resume('{folder}'))"
        in stopped.err
    )
    assert not Path("m").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "metrics.jsonl", "run.json"]
    assert "can be resumed" in fails(*words, "--out", "m")
    assert run(*words, "--out", "m", "--resume").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["last", "metrics.jsonl", "run.json"]
    for one, other in ((Path("m"), Path("whole")), (folder / "last", Path("whole.run/last"))):
        assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_where_there_is_no_checkpoint_training_begins_anew(run: Run, corpus: Path, tmp_path: Path) -> None:
    ran = run("train", "feedforward", "--tokenizer", "word", corpus, *TAPE, "--out", tmp_path / "m", "--resume")
    assert ran.code == 0
    assert f"note: {tmp_path / 'm'}.run: there is no checkpoint: training begins anew" in ran.err


SMALL = ["--set", "steps=4", "--set", "hidden=4", "--set", "embedding=4"]


def test_what_was_learned_is_said(run: Run, corpus: Path, held_out: Path, tmp_path: Path) -> None:
    words = ["train", "feedforward", "--tokenizer", "word", corpus, "--held-out", held_out, *SMALL]
    said = run(*words, "--out", tmp_path / "m")
    nats = cr.load(tmp_path / "m").metrics["validation_nats"]
    assert " s and 4 steps (" in said.out and f"; perplexity {math.exp(nats):#.4g} on " in said.out
    seen = cr.load(tmp_path / "m").metrics["tokens_seen"]
    assert f"trained on {seen:,} tokens (" in said.out
    figures = run(*words, "--out", tmp_path / "n", "--json").json
    assert (figures["steps"], figures["validation_nats"]) == (4, nats)


def test_a_training_that_is_finished_is_not_resumed(run: Run, corpus: Path, tmp_path: Path) -> None:
    words = ["train", "feedforward", "--tokenizer", "word", corpus, *SMALL, "--out", tmp_path / "m"]
    assert run(*words).code == 0
    again = run(*words, "--resume")
    assert again.code == 2 and "its training has finished, and nothing is left to resume" in again.err


def test_where_there_is_no_terminal_training_says_a_line_now_and_then(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "feedforward", "--tokenizer", "word", corpus, *SMALL, "--set", "validate_every=2"]
    assert "training" not in run(*words, "--out", tmp_path / "m").err
    monkeypatch.setattr("chainrule.system.progress.bars.LOG_SECONDS", 0.0)
    said = run(*words, "--out", tmp_path / "n").err.splitlines()
    lines = [line for line in said if not line.startswith("note: ")]
    assert [line.partition("  ")[0] for line in lines] == ["training: 2/4 steps", "training: 4/4 steps"]
    assert all("loss " in line for line in lines)


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(
    fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the superuser may write anywhere
    said = fails(*TRAIN_NGRAM, tmp_path / "not looked at", "--out", tmp_path / "m")
    assert f"nothing can be written into {tmp_path}; choose another --out" in said


def test_a_wrong_device_costs_no_checkpoints(run: Run, fails: Fails, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    words = ("train", "elman", "--tokenizer", "word", corpus, "--out", out, *sets("steps=2", "hidden=8"), "--keep")
    assert run(*words).code == 0
    kept = sorted((tmp_path / "m.run" / "checkpoints").iterdir())
    assert kept
    for wrong in (("--device", "nowhere"), ("--vocab-size", "many"), ("--tokenizer", "none-such")):
        fails(*words, "--overwrite", *wrong)
    assert sorted((tmp_path / "m.run" / "checkpoints").iterdir()) == kept


def test_a_first_line_longer_than_the_sample_can_be_quantised(run: Run, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("ab" * 110_000 + "\n")
    ran = run(
        *("train", "ngram", tmp_path / "long.txt", "--tokenizer", "char", "--set", "order=3", "--set", "bits=8"),
        *("--out", tmp_path / "m"),
    )
    assert ran.code == 0, ran.err


def test_what_was_trained_is_told_in_words_that_fit(run: Run, corpus: Path, tmp_path: Path) -> None:
    """One token and several, held out or not."""
    ran = run("train", "anygram", "--tokenizer", "word", corpus, "--out", tmp_path / "tuned")
    assert re.search(r" s of it to prepare the text\), tuned on [\d,]+ held out; vocabulary ", ran.out), ran.out
    one = tmp_path / "one.txt"
    one.write_text("\n", encoding="utf-8")
    ran = run("train", "feedforward", "--tokenizer", "word", one, *sets("steps=1"), "--out", tmp_path / "one")
    assert "trained on 1 token (1 epoch) in " in ran.out
    assert " and 1 step (" in ran.out


def test_columns_of_words_and_tags_are_told_to_be_no_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n" * 3, encoding="utf-8")
    ran = run("train", "ngram", tmp_path / "a.conllu", "--tokenizer", "word", "--out", tmp_path / "m")
    assert "a.conllu is CoNLL-U, which taggers read: ngram learns its columns as text" in ran.err
