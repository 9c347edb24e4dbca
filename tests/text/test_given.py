"""The rule for text: strings are text, paths are files, and what is neither is an error that says what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import CorpusError
from chainrule.text.given import as_corpus


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_bytes(b"in a file\n")
    (tmp_path / "my corpus").write_bytes(b"in another\n")
    return tmp_path


def documents(given: Any) -> list[bytes]:
    return list(as_corpus(given).documents())


@pytest.mark.usefixtures("here")
def test_a_string_is_a_text_and_a_path_is_a_file() -> None:
    assert documents("i love cats\ni love dogs\n") == [b"i love cats\n", b"i love dogs\n"]
    assert documents(["i love cats", "i love\ndogs\n"]) == [b"i love cats\n", b"i love\ndogs\n"]
    assert documents(Path("corpus.txt")) == documents([Path("corpus.txt")]) == [b"in a file\n"]
    assert documents(Path(name) for name in ("corpus.txt", "my corpus")) == [b"in a file\n", b"in another\n"]
    corpus = cr.Corpus.from_text("x\n")
    assert as_corpus(corpus) is corpus


def test_any_iterable_of_strings_is_texts() -> None:
    for texts in (("a", "b"), iter(["a", "b"]), {"a": 1, "b": 2}.keys()):
        assert documents(texts) == [b"a\n", b"b\n"]


def test_texts_are_cleaned_as_a_file_is() -> None:
    assert documents(["\ufeffone\r\ntwo", ""]) == [b"one\ntwo\n", b"\n"]  # an empty text is an empty line
    with pytest.raises(CorpusError, match="text 1: character 4 is a lone surrogate"):
        documents(["good", "caf\udce9"])


def test_documents_and_blocks_of_texts_are_the_same_text() -> None:
    corpus = as_corpus(["a", "", "b\n", "c\n\n"])
    assert b"".join(corpus.documents()) == b"".join(corpus.blocks()) == b"a\n\nb\nc\n\n"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("corpus.txt", r"'corpus.txt' is text here; write Path\('corpus.txt'\) to read the file"),
        (["corpus.txt"], r"write Path\('corpus.txt'\)"),
        (["corpus.txt", "my corpus"], r"write \[Path\('corpus.txt'\), ...\] to read the files"),
        ("my corpus", r"write Path\('my corpus'\)"),
        ("*.txt", r"write Path\('\*.txt'\)"),
        ("corpsu.txt", r"write Path\('corpsu.txt'\)"),  # a slip of the pen is no text to train on
        ("shards/part-1.jsonl.gz", r"write Path\('shards/part-1.jsonl.gz'\)"),
        ("builtin:python", r"write Corpus.open\('builtin:python'\)"),
        ("", "the text is empty"),
        ([], "the list of texts is empty"),
        (["", ""], "the text is empty"),
        (b"bytes", r"found bytes: decode them first, such as data.decode\('utf-8'\)"),
        ([b"bytes"], "item 0 of the list: expected text .* found bytes: decode them first"),
        (["a text", 3.5], "item 1 of the list: expected text .* found float"),
        (["a text", Path("corpus.txt")], "not both"),
        ([Path("corpus.txt"), "a text"], "not both"),
        ({"text": "a"}, "found dict"),
        (7, "found int"),
        (None, "found NoneType"),
        (SimpleNamespace(columns=["text"]), r"a table: give its column of texts, such as frame\['text'\]"),
        (Path("nothing.txt"), "nothing.txt: no such file"),
    ],
)
def test_what_is_no_text_is_an_error_that_says_what_to_write(given: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        as_corpus(given)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("text", ["corpus.txt is a file", "x" * 5000, "a*b?", "what is corpus.txt\n", "words"])
def test_text_that_names_no_file_is_text(text: str) -> None:
    assert documents(text) == [text.encode()]


def _tuned(held_out: Any) -> cr.LanguageModel:
    return cr.train("ngram", ["a b", "b a"], valid=held_out, order=2, smoothing="jelinek-mercer", tokenizer="word")


USES: dict[str, Callable[[cr.LanguageModel, Any], Any]] = {
    "train": lambda lm, text: cr.train("ngram", text, order=2, smoothing="laplace", tokenizer="word").perplexity(
        "i love cats"
    ),
    "valid": lambda lm, text: _tuned(text).perplexity("a b"),
    "evaluate": lambda lm, text: cr.evaluate(lm, text).nats,
    "interpolate": lambda lm, text: cr.ngram.interpolate(lm, lm, text).perplexity("i love cats"),
    "mix": lambda lm, text: cr.mix([lm], text, cache=3).metrics["weights"],
    "train_tokenizer": lambda lm, text: cr.train_tokenizer("word", text).vocab_size,
    "score_lines": lambda lm, text: [line.log_prob for line in cr.evaluation.score_lines(lm, text)],
    "perplexity": lambda lm, text: lm.perplexity(text),
    "log_prob": lambda lm, text: lm.log_prob(text),
    "surprisals": lambda lm, text: lm.surprisals(text).tolist(),
}


@pytest.mark.parametrize("use", USES)
def test_every_function_that_takes_text_keeps_the_rule(use: str, tmp_path: Path) -> None:
    lines = ["i love cats", "i love dogs", "cats chase mice"]
    lm = cr.train("ngram", lines, order=2, smoothing="laplace", tokenizer="word")
    path = tmp_path / "text.txt"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    ways = [path, [path], lines, iter(lines), "\n".join(lines) + "\n", cr.Corpus.open(path)]
    found = [USES[use](lm, way) for way in ways]
    assert all(one == found[0] for one in found)
    for wrong in (b"bytes", [], [b"bytes"], 7):
        with pytest.raises(CorpusError):
            USES[use](lm, wrong)


def test_a_comparison_takes_texts_too(tmp_path: Path) -> None:
    texts = [
        f"{who} love {what}" for who in ("i", "you", "we", "they") for what in ("cats", "dogs", "mice", "bread")
    ]
    options: dict[str, Any] = {"kinds": ["anygram"], "tokenizer": cr.TokenizerChoice("word")}
    found = cr.compare(texts, tmp_path / "a", valid=texts[:3], test="we love tea\n", **options)
    assert found.parts["train"]["lines"] == 16 and found.parts["test"]["tokens"] == 4
