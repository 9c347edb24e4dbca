"""`chainrule inspect`, `kinds` and `completion`: what there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.contract import kinds
from chainrule.errors import ModelError
from chainrule.explanation.neighbours import neighbours

from .running import TRAIN_NGRAM, Fails, Run


def test_json_describes_the_folder(run: Run, model: Path) -> None:
    described = run("inspect", model, "--json").json
    assert described["kind"] == "ngram"
    config = described["config"]
    assert (config["order"], config["smoothing"], config["k"]) == (3, "add-k", 0.1)
    assert (described["context"], described["tokenizer"]) == ("line", "word")
    assert described["vocab_size"] == cr.load(model).tokenizer.vocab_size
    assert described["megabytes"] == sum(file.stat().st_size for file in model.iterdir()) / 1e6
    assert described["arrays"]["log_prob"]["dtype"].startswith("float")
    assert described["metrics"].keys() == {"training_seconds", "seconds", "ngrams"}
    assert described["provenance"]["chainrule"] == cr.__version__
    assert "next" not in described


def test_people_see_the_same(run: Run, model: Path) -> None:
    ran = run("inspect", model)
    assert (ran.code, ran.err) == (0, "")
    for shown in ("every checksum is right", "add-k", "vocab size", "corpus_sha256", "array: log_prob"):
        assert shown in ran.out


def test_the_next_tokens_are_the_likeliest_first(run: Run, mle_model: Path) -> None:
    described = run("inspect", mle_model, "--prompt", "i love", "--json").json
    assert {entry["token"]: entry["probability"] for entry in described["next"]} == pytest.approx(
        {"cats": 0.5, "dogs": 0.5}, rel=1e-6
    )
    after_nothing = run("inspect", mle_model, "--prompt", "", "--top", "1", "--json").json["next"]
    assert [entry["token"] for entry in after_nothing] == ["i"]
    assert "'dogs'" in run("inspect", mle_model, "--prompt", "i love").out


@pytest.mark.parametrize("verb", ["inspect", "generate"])
def test_a_prompt_that_the_model_does_not_know_is_noted(run: Run, model: Path, verb: str) -> None:
    assert "note" not in run(verb, model, "--prompt", "i love").err
    assert "note: some of the prompt is unknown to the model" in run(verb, model, "--prompt", "i xyzzy").err


def test_a_token_is_shown_as_it_is(run: Run, tmp_path: Path) -> None:
    """Square brackets and names between colons mean something to the library that prints."""
    text = tmp_path / "text.txt"
    text.write_text("see [red]\nsee [/b]\nsee :cat:\n", encoding="utf-8")
    assert run(*TRAIN_NGRAM, text, "--set", "smoothing=mle", "--out", tmp_path / "m").code == 0
    ran = run("inspect", tmp_path / "m", "--prompt", "see")
    assert ran.code == 0, ran.err
    assert "'[red]'" in ran.out
    assert "'[/b]'" in ran.out
    assert "':cat:'" in ran.out


def test_special_tokens_are_told_from_text(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("see <unk>\nsee me\n" * 3, encoding="utf-8")
    assert run(*TRAIN_NGRAM, text, "--set", "smoothing=laplace", "--out", tmp_path / "m").code == 0
    listed = run("inspect", tmp_path / "m", "--prompt", "see", "--json").json["next"]
    assert sorted(entry["special"] for entry in listed if entry["token"] == "<unk>") == [False, True]
    shown = run("inspect", tmp_path / "m", "--prompt", "see").out.partition("next token")[2]
    firsts = [line.split()[0] for line in shown.partition("\n\n")[0].splitlines()[2:]]
    assert firsts.count("'<unk>'") == firsts.count("<unk>") == 1


def test_infinite_figures_are_shown(run: Run, mle_model: Path, tmp_path: Path) -> None:
    lm = cr.load(mle_model)
    lm.metrics = {"perplexity": float("inf"), "unknown": float("nan")}
    lm.save(tmp_path / "m")
    assert run("inspect", tmp_path / "m", "--json").json["metrics"] == {"perplexity": float("inf"), "unknown": None}
    assert "∞" in run("inspect", tmp_path / "m").out


def test_every_kind_is_listed_with_its_settings(run: Run) -> None:
    listed = {kind["name"]: kind for kind in run("kinds", "--json").json}
    assert list(listed) == kinds.kind_names()
    order = listed["ngram"]["settings"][0]
    assert (order["name"], order["type"], order["default"]) == ("order", "a whole number", 5)
    shown = run("kinds")
    assert shown.code == 0
    assert [line.partition(":")[0] for line in shown.out.splitlines()[: len(listed)]] == kinds.kind_names()
    assert order["help"] not in shown.out
    shown = run("kinds", "ngram")
    for word in ("ngram", "smoothing", "modified-kneser-ney | kneser-ney", order["help"]):
        assert word in shown.out
    assert "tied=true  (true or false)" in run("kinds", "lstm").out
    assert run("kinds", "oracle").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(run: Run, shell: str) -> None:
    ran = run("completion", shell)
    assert ran.code == 0
    assert f"_CHAINRULE_COMPLETE={shell}_complete" in ran.out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("chainrule tr", {"train", "translate"}),
        ("chainrule train ng", {"ngram"}),
        ("chainrule train ngram text --tokenizer wo", {"word", "word:unicode", "wordpiece"}),
        ("chainrule generate m --strategy b", {"beam"}),
    ],
)
def test_the_shell_completes_verbs_kinds_and_values(typed: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_CHAINRULE_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "chainrule"], env=os.environ | words, capture_output=True, text=True, check=True
    )
    assert {line.removeprefix("plain,") for line in done.stdout.split()} == offered


def test_counts_of_what_begins_with_a_prompt(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("i love cats\ni love dogs\ncats chase mice\ni love cats\n", encoding="utf-8")
    settings = ["--set", "order=2", "--set", "smoothing=mle", "--out", tmp_path / "m"]
    assert run(*TRAIN_NGRAM, text, "--set", "counts=true", *settings).code == 0
    described = run("inspect", tmp_path / "m", "--counts", "--prompt", "i love", "--json").json
    assert described["ngrams"]["context"] == ["love"] and described["ngrams"]["all"] == 2
    rows = [(row["token"], row["count"], round(row["probability"], 4)) for row in described["ngrams"]["rows"]]
    assert rows == [("cats", 2, 0.6667), ("dogs", 1, 0.3333)]
    assert described["bigrams"]["rows"] == ["<s>", "i", "love"]
    assert described["bigrams"]["columns"] == ["i", "love", "</s>"]
    assert described["bigrams"]["counts"] == [[3, 0, 0], [0, 3, 0], [0, 0, 0]]
    likeliest = run("inspect", tmp_path / "m", "--counts", "--top", "2", "--json").json["bigrams"]
    assert likeliest["rows"] == ["<s>", "cats", "i"] and likeliest["columns"] == ["cats", "i", "</s>"]
    assert likeliest["counts"] == [[1, 3, 0], [0, 0, 2], [0, 0, 0]]
    shown = run("inspect", tmp_path / "m", "--counts", "--prompt", "i love", "--top", "1").out
    for expected in ("tokens after 'love': 2, the first 1", "counts: c(row column)", "p(column | row)"):
        assert expected in shown
    assert (
        "no n-gram of the model goes on after" in run("inspect", tmp_path / "m", "--counts", "--prompt", "xyz").out
    )


def test_without_counts_the_table_says_how_to_have_them(run: Run, model: Path) -> None:
    ran = run("inspect", model, "--counts", "--prompt", "i", "--json")
    assert "this model keeps no counts: train it with counts=true" in ran.err
    assert all("count" not in row and row["probability"] > 0 for row in ran.json["ngrams"]["rows"])
    assert "bigrams" not in ran.json


def test_a_context_of_subwords_is_shown_as_its_text(run: Run, bpe_model: Path) -> None:
    """Its tokens are "i", " love" and so on: one space stands between words, not two."""
    shown = run("inspect", bpe_model, "--counts", "--prompt", "i love").out
    assert "after 'i love'" in shown or "after ' love'" in shown


def test_counts_are_for_ngram_models(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("i love cats\ni love dogs\n", encoding="utf-8")
    assert run("train", "anygram", "--tokenizer", "word", text, "--out", tmp_path / "m").code == 0
    ran = run("inspect", tmp_path / "m", "--counts")
    assert ran.code == 2
    assert "--counts is for models of the kind ngram, not anygram; chainrule train ngram --set" in ran.err


def test_the_table_of_all_contexts(run: Run, fails: Fails, tmp_path: Path, toy: Path) -> None:
    lm = cr.train("ngram", toy, order=3, smoothing="mle", counts=True, tokenizer="word")
    lm.save(tmp_path / "m")
    rows = run("inspect", tmp_path / "m", "--table", "--json").json
    (row,) = (row for row in rows if row["context"] == ["i", "love"] and row["token"] == "cats")
    assert (row["count"], row["total"], row["probability"]) == (1, 2, pytest.approx(0.5))
    shown = run("inspect", tmp_path / "m", "--table").out.splitlines()
    assert shown[0].split() == ["context", "next", "count", "sum", "p"]
    assert shown[2].split() == ["<s>", "<s>", "i", "2", "3", "0.6667"] and len(shown) == 2 + len(rows)
    short = run("inspect", tmp_path / "m", "--table", "--first", 3).out.splitlines()
    assert len(short) == 6 and short[-1] == "the first 3 rows; --first N shows more, --json all"
    cr.train("anygram", toy, tokenizer="word").save(tmp_path / "any")
    assert "--table is for models that are tables of contexts" in fails("inspect", tmp_path / "any", "--table")


def test_a_table_of_probabilities_is_a_model_in_one_file(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{"unseen": "uniform", "for all the": {"fish": 0.7, "love": 0.04, "fun": "1/100"}}')
    described = run("inspect", table, "--json").json
    assert (described["kind"], described["metrics"]["left for <unk>"]) == ("table", {"for all the": 0.25})
    assert "a file, which has no checksums" in " ".join(run("inspect", table).out.split())
    first, second, *_ = run("inspect", table, "--prompt", "for all the ", "--json").json["next"]
    assert (first["token"], first["probability"], second["token"]) == ("fish", pytest.approx(0.7), "<unk>")
    shown = [line.split() for line in run("inspect", table, "--table").out.splitlines()]
    assert ["for", "all", "the", "fish", "0.7000"] in shown
    assert run("evaluate", table, "for all the fish", "--json").json["tokens"] == 5
    assert run("generate", table, "--prompt", "for all the", "--max-tokens", 1, "--seed", 1).code == 0
    assert run("score", table, "for all the fish", "--per-token").out.splitlines()[0] == "ln_p\ttoken"


@pytest.fixture(scope="module")
def elman(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> Path:
    folder = tmp_path_factory.mktemp("elman") / "elman"
    how: Any = {"tokenizer": "word", "engine": "tape", "hidden": 4, "steps": 1}
    cr.train("elman", toy, valid=toy, **how).save(folder)
    return folder


def test_the_nearest_tokens_are_those_of_the_table(run: Run, elman: Path) -> None:
    found = run("inspect", elman, "--near", "cats", "--top", "3", "--json").json["near"]
    token, nearest = neighbours(cr.load(elman), "cats", 3)
    assert found["token"] == token.token == "cats"
    assert [one["token"] for one in found["tokens"]] == [one.token for one in nearest]
    shown = run("inspect", elman, "--near", "cats", "--top", "3").out
    assert f"{nearest[0].similarity:.3f}" in shown
    assert "checksum" not in shown


def test_a_model_without_a_table_has_no_near_tokens(fails: Fails, model: Path, elman: Path) -> None:
    assert "has no embedding table" in fails("inspect", model, "--near", "cats")
    assert "'zebra' is unknown to the model" in fails("inspect", elman, "--near", "zebra")


def test_vectors_that_are_no_numbers_have_no_neighbours(elman: Path) -> None:
    lm: Any = cr.load(elman)
    vectors_VD = lm.token_vectors()
    lm.token_vectors = lambda: vectors_VD * float("nan")
    with pytest.raises(ModelError, match="NaN"):
        neighbours(lm, "cats", 3)


def test_a_batch_has_the_targets_under_the_inputs(run: Run, elman: Path, toy: Path) -> None:
    found = run("inspect", elman, "--first-batch", toy, "--json").json["batch"]
    assert ["<s>", "cats", "chase", "mice"] in found["inputs"]
    assert ["cats", "chase", "mice", "</s>"] in found["targets"]
    shown = run("inspect", elman, "--first-batch", toy, "--top", "1").out.splitlines()
    assert shown[0] == "the first of 1 steps: 3 rows of 4, 0.0% padding"
    assert shown[3].split()[:3] == ["1", "input", "<s>"]
    assert shown[3].split()[3:] == shown[4].split()[2:5]  # shifted by one
    assert shown[-1] == "--top 3 shows all rows"
