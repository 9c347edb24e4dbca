"""Tokenizers by name and by file; a damaged file is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chainrule.errors import TokenizerError
from chainrule.text.corpus import Corpus
from chainrule.tokens.registry import NAMES, dump_tokenizer, load_tokenizer, parse_tokenizer, train_tokenizer
from chainrule.tokens.vocabulary import Limit

CORPUS = Corpus.from_text("don't stop\n" * 5)
HEADER = {"format": "chainrule-tokenizer", "version": 1}
GOOD = {**HEADER, "kind": "word", "splitting": "whitespace", "words": ["a", "b"]}


@pytest.mark.parametrize(
    ("name", "kind", "tokens"),
    [
        ("word", "word", ["don't"]),
        ("word:unicode", "word", ["don", "'", "t"]),
        ("char", "char", ["d", "o", "n", "'", "t"]),
        ("byte", "byte", ["d", "o", "n", "'", "t"]),
        ("bpe", "subword", ["don", "'t"]),  # GPT-2's splitter keeps 't together
        ("wordpiece", "subword", ["don", "'t"]),
    ],
)
def test_a_name_makes_its_tokenizer(name: str, kind: str, tokens: list[str]) -> None:
    tokenizer = train_tokenizer(name, CORPUS, Limit(top=600))
    assert tokenizer.kind == kind
    assert [tokenizer.token(int(i)) for i in tokenizer.encode("don't")] == tokens


@pytest.mark.parametrize("name", ["words", "word:ascii", "", "BPE"])
def test_an_unknown_name_is_an_error_that_lists_the_names(name: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        train_tokenizer(name, CORPUS)
    assert repr(name) in str(caught.value)
    assert all(known in str(caught.value) for known in NAMES)


def test_a_tokenizer_is_loaded_from_its_folder_or_its_file(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("word", CORPUS)
    file = tmp_path / "tokenizer.json"
    file.write_text(dump_tokenizer(tokenizer), encoding="utf-8")
    for path in (tmp_path, file, str(tmp_path)):
        assert dump_tokenizer(load_tokenizer(path)) == dump_tokenizer(tokenizer)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'tokenizer.json'}: no such file")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'tokenizer.json'}: cannot be read")


def test_the_good_file_that_the_damaged_ones_are_made_from() -> None:
    assert parse_tokenizer(json.dumps(GOOD), "here").encode("a b c").tolist() == [3, 4, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (json.dumps(GOOD)[:-9], "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a tokenizer of chainrule"),
        ("null", "not a tokenizer of chainrule"),
        ('{"model": {"type": "BPE"}}', "not a tokenizer of chainrule"),
    ],
)
def test_a_file_that_is_something_else(content: str, message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        parse_tokenizer(content, "here/tokenizer.json")
    assert str(caught.value).startswith(f"here/tokenizer.json: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; this chainrule reads version 1"),
        ({"version": None}, "version None"),
        ({"kind": "syllable"}, "unknown kind of tokenizer 'syllable'"),
        ({"kind": None}, "unknown kind of tokenizer None"),
        ({"kind": ["word"]}, "unknown kind of tokenizer ['word']"),
        ({"kind": "char"}, "damaged: KeyError: 'characters'"),
        ({"kind": "char", "characters": 7}, "damaged"),
        ({"kind": "char", "characters": "aa"}, "damaged"),
        ({"kind": "subword"}, "damaged: KeyError: 'algorithm'"),
        ({"kind": "subword", "algorithm": "bpe"}, "damaged: KeyError: 'tokenizers'"),
        ({"kind": "subword", "algorithm": "bpe", "tokenizers": {}}, ""),
        ({"words": [1, 2]}, "damaged"),
        ({"words": 7}, "damaged"),
        ({"words": ["a", "a"]}, ""),
        ({"splitting": "syllables"}, ""),
    ],
)
def test_a_damaged_file_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        parse_tokenizer(json.dumps(GOOD | change), "here/tokenizer.json")
    assert str(caught.value).startswith(f"here/tokenizer.json: {message}")


@pytest.mark.parametrize("key", ["format", "version", "kind", "splitting", "words"])
def test_a_missing_key_is_an_error_that_names_the_file(key: str) -> None:
    content = json.dumps({k: v for k, v in GOOD.items() if k != key})
    with pytest.raises(TokenizerError, match=r"^here/tokenizer\.json: "):
        parse_tokenizer(content, "here/tokenizer.json")


def test_an_unknown_subword_algorithm_is_an_error() -> None:
    data = json.loads(dump_tokenizer(train_tokenizer("bpe", CORPUS, Limit(top=300))))
    with pytest.raises(TokenizerError, match=r"^here: "):
        parse_tokenizer(json.dumps(data | {"algorithm": "syllables"}), "here")
