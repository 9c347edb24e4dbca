"""`chainrule tokenize`: text as tokens, shown, counted and written down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.tokens.registry import NAMES

from .running import TEXT, TRAIN_NGRAM, Fails, Run


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_are_those_of_the_ids(run: Run, corpus: Path, tmp_path: Path, name: str) -> None:
    ids, out = tmp_path / "text.ids", tmp_path / "tokenizer"
    figures = run("tokenize", corpus, "--tokenizer", name, "--ids", ids, "--out", out, "--json").json
    written = np.fromfile(ids, dtype=figures["id_type"])
    tokenizer = cr.load_tokenizer(out)
    assert figures["tokens"] == len(written)
    assert figures["lines"] == TEXT.count("\n") == np.count_nonzero(written == tokenizer.eos)
    assert figures["bytes"] == len(TEXT.encode())
    assert figures["bytes_per_token"] == figures["bytes"] / figures["tokens"]
    assert figures["vocab_size"] == tokenizer.vocab_size
    assert figures["oov"] == 0
    assert tokenizer.decode(written) == TEXT


def test_figures_are_shown_to_people_too(run: Run, corpus: Path) -> None:
    ran = run("tokenize", corpus)
    assert (ran.code, ran.err) == (0, "")
    assert "bytes per token" in ran.out
    assert f"{len(TEXT.encode()):,}" in ran.out


def test_a_folder_gives_its_tokenizer(run: Run, corpus: Path, held_out: Path, model: Path) -> None:
    figures = run("tokenize", held_out, "--tokenizer", model, "--json").json
    assert figures["vocab_size"] == cr.load(model).tokenizer.vocab_size
    assert figures["oov"] == 1 / figures["tokens"]


def test_tokens_are_shown_with_bars_between_them(run: Run, toy: Path) -> None:
    ran = run("tokenize", toy, "--tokenizer", "word", "--show", "--lines", "2")
    assert ran.out == "i|love|cats\ni|love|dogs\n"


def test_shown_tokens_are_the_text_as_it_is(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a [bold] [/b] c" + " and so on" * 40 + "\n", encoding="utf-8")
    ran = run("tokenize", text, "--tokenizer", "char", "--show")
    assert ran.out.replace("|", "") == text.read_text(encoding="utf-8")


def test_merges_are_shown_as_they_are_learned(run: Run, toy: Path) -> None:
    merges = run("tokenize", toy, "--merges", "--json", "--lines", "3").json
    assert merges[0] == {"left": "a", "right": "t", "count": 2}
    assert len(merges) == 3
    table = run("tokenize", toy, "--merges", "--lines", "3").out
    assert [line.split()[0] for line in table.splitlines() if "'" in line] == ["'at'", "'cat'", "'lo'"]
    assert "'at'" in table


def test_merged_brackets_are_shown_as_they_are(run: Run, tmp_path: Path) -> None:
    """Square brackets mean something to the library that prints."""
    text = tmp_path / "text.txt"
    text.write_text("x[/] x[/] x[/]\n", encoding="utf-8")
    found = run("tokenize", text, "--merges", "--json").json
    assert "[/]" in [merge["left"] + merge["right"] for merge in found]
    ran = run("tokenize", text, "--merges")
    assert ran.code == 0, ran.err
    assert "'[/]'" in ran.out


def test_only_bpe_has_merges(run: Run, toy: Path) -> None:
    ran = run("tokenize", toy, "--tokenizer", "word", "--merges")
    assert ran.code == 2
    assert "--tokenizer bpe" in ran.err


@pytest.mark.parametrize(
    "options", [["--vocab-size", "50%"], ["--min-count", "0"], ["--vocab-size", "many"], ["--vocab-size", "100"]]
)
def test_merges_refuse_what_training_refuses(fails: Fails, toy: Path, options: list[str]) -> None:
    trained = fails("tokenize", toy, *options)
    assert fails("tokenize", toy, "--merges", *options) == trained


def test_a_model_keeps_its_tokenizer(fails: Fails, run: Run, toy: Path, held_out: Path, tmp_path: Path) -> None:
    """A tokenizer written over a model's own would leave a model that cannot be loaded."""
    assert run(*TRAIN_NGRAM, toy, "--out", tmp_path / "m").code == 0
    assert "--out" in fails("tokenize", held_out, "--out", tmp_path / "m")
    assert run("evaluate", tmp_path / "m", held_out).code == 0


@pytest.mark.parametrize("options", [[], ["--show"], ["--merges"]])
def test_an_empty_text_is_an_error(fails: Fails, tmp_path: Path, options: list[str]) -> None:
    text = tmp_path / "text.txt"
    text.touch()
    assert "empty" in fails("tokenize", text, *options)


def test_ids_that_are_asked_for_are_written_or_refused(run: Run, toy: Path, tmp_path: Path) -> None:
    ran = run("tokenize", toy, "--tokenizer", "word", "--show", "--ids", tmp_path / "ids")
    assert (ran.code == 0) == (tmp_path / "ids").exists()


def test_ids_never_overwrite_the_text(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("years of work\n")
    words = ("tokenize", tmp_path / "mine.txt", "--tokenizer", "byte", "--ids", tmp_path / "mine.txt")
    assert "mine.txt exists" in fails(*words)
    assert "overwrite the text itself" in fails(*words, "--overwrite")
    assert (tmp_path / "mine.txt").read_text() == "years of work\n"


def test_a_tokenizer_that_is_there_is_kept(run: Run, fails: Fails, toy: Path, tmp_path: Path) -> None:
    assert run("tokenize", toy, "--tokenizer", "char", "--out", tmp_path / "t").code == 0
    assert "has a tokenizer already" in fails("tokenize", toy, "--tokenizer", "byte", "--out", tmp_path / "t")


def test_where_a_tokenizer_cannot_be_written_is_said_before_it_is_learned(
    fails: Fails, toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert "file is a file, not a folder; choose another --out" in fails(
        "tokenize", toy, "--out", tmp_path / "file"
    )
    assert "leave out --out" in fails("tokenize", toy, "--merges", "--out", tmp_path / "t")


def test_a_list_of_words_is_the_vocabulary(run: Run, fails: Fails, toy: Path, tmp_path: Path) -> None:
    """Four words, of which the text has i and cats: three times two tokens and three line ends of 12 are known."""
    listed = tmp_path / "words.txt"
    listed.write_text("zebras\ncats\n<unk>\ni\nemus\n")
    words = ["--tokenizer", "word", "--vocabulary", listed]
    assert run("tokenize", toy, *words, "--json").json["vocab_size"] == 3 + 4
    assert run("tokenize", toy, *words, "--show", "--json").json[0] == ["i", "<unk>", "cats"]
    assert run(*TRAIN_NGRAM, toy, *words[2:], "--set", "smoothing=laplace", "--out", tmp_path / "m").code == 0
    assert cr.load(tmp_path / "m").tokenizer.words == ["zebras", "cats", "i", "emus"]
    for more in (["--vocab-size", "5"], ["--min-count", "2"]):
        assert "leave out the vocabulary size" in fails("tokenize", toy, *words, *more)
    assert "not for bpe" in fails("tokenize", toy, "--vocabulary", listed)
    assert "No such file" in fails("tokenize", toy, *words[:3], tmp_path / "none.txt")
    assert "--tokenizer bpe" in run("tokenize", toy, "--merges", "--vocabulary", listed).err


def test_a_trace_begins_with_characters(run: Run) -> None:
    first, second, *_ = run("tokenize", "love love cats", "--trace", "3", "--json").json
    assert first["tokens"] == [*"acelostv"]
    assert second["merged"] == {"left": "l", "right": "o", "count": 2}
    assert len(second["pairs"]) == 6
    assert second["text"] == [["lo", "v", "e"], ["lo", "v", "e"], ["c", "a", "t", "s"]]
    shown = run("tokenize", "love love cats", "--trace", "9").out
    assert "V_0: 8 characters: a c e l o s t v\ntext: l|o|v|e l|o|v|e c|a|t|s\n" in shown
    assert "merge lo + ve -> love (2 times); V_3: 11 tokens\ntext: love love c|a|t|s\n" in shown
    assert shown.endswith("no pair occurs 2 times any more\n")


def test_tokenizers_are_compared_in_one_table(run: Run, tmp_path: Path) -> None:
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_text("Henry is giving a lecture\n" * 3, encoding="utf-8")
    test.write_text("henry is givin' a lecture\n", encoding="utf-8")
    options = [train, "--compare", "word,char,bpe:260,byte", "--held-out", test]
    rows = {one["tokenizer"]: one for one in run("tokenize", *options, "--json").json}
    assert rows["word"]["unknown"] == 2  # henry and givin'
    assert (rows["word"]["tokens"], rows["word"]["tokens_per_word"], rows["word"]["oov"]) == (5, 1, 2 / 5)
    assert rows["char"]["tokens"] == rows["byte"]["tokens"] == len("henry is givin' a lecture")
    assert rows["char"]["unknown"] == 2  # h and the apostrophe
    assert rows["bpe:260"]["vocab_size"] == 262
    assert rows["byte"]["bytes_per_token"] == 26 / 25
    lowered = {one["tokenizer"]: one for one in run("tokenize", *options, "--lowercase", "--json").json}
    assert lowered["word"]["unknown"] == 1
    table = run("tokenize", *options).out
    assert "of 5 words" in table and "40.00%" in table


def test_ways_to_show_tokens_exclude_each_other(fails: Fails, toy: Path, tmp_path: Path) -> None:
    assert "choose one of --show and --trace" in fails("tokenize", toy, "--show", "--trace", "2")
    assert "--trace goes with --tokenizer bpe" in fails("tokenize", toy, "--trace", "2", "--tokenizer", "char")
    assert "--compare writes no tokenizer" in fails("tokenize", toy, "--compare", "word", "--out", tmp_path / "a")
    assert "--held-out goes with --compare" in fails("tokenize", toy, "--held-out", toy)
