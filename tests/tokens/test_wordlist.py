"""Vocabularies that are given as lists of words."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.errors import EncodingError, SettingsError, TokenizerError
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.tokenizer import WordTokenizer


def test_the_words_of_a_list_are_known_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff<s>\r\nzebra\r\ncafé\r\n<unk>\r\n</s>\r\nant".encode())
    tokenizer = WordTokenizer.from_file(path)
    assert tokenizer.words == ["zebra", "café", "ant"]
    assert tokenizer.encode("ant café bee\n").tolist() == [5, 4, 0, 2]
    assert tokenizer.encode("<s>").tolist() == [0]  # text like any other, and not in the list
    packed = tmp_path / "words.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert WordTokenizer.from_file(packed).words == tokenizer.words


@pytest.mark.parametrize(
    ("text", "splitting", "message"),
    [
        ("a\nb\na\n", "whitespace", "line 3: expected one new word, but 'a' is on line 1 already"),
        ("a\n\nb\n", "whitespace", "line 2: expected one new word, but '' is empty"),
        ("a\nnew york\n", "whitespace", "line 2: expected one new word, but 'new york' has white space in it"),
        ("a \n", "whitespace", "line 1: expected one new word, but 'a ' has white space in it"),
        ("a\u00a0b\n", "unicode", r"line 1: .* has white space in it"),
        ("a\ndon't\n", "unicode", 'line 2: .* splits it into "don \' t"'),
        ("<unk>\n", "whitespace", "there is no word in it"),
        ("", "whitespace", "there is no word in it"),
    ],
)
def test_what_is_no_list_of_words_is_refused(text: str, splitting: Splitting, message: str, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TokenizerError, match=message) as caught:
        WordTokenizer.from_file(path, splitting)
    assert str(caught.value).startswith(str(path))


def test_marks_are_words_where_the_splitting_finds_them(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("don\n'\nsnake_case\ne\u0301\na\u00a0b\n", encoding="utf-8")
    assert len(WordTokenizer.from_file(tmp_path / "words.txt").words) == 5  # U+00A0 is no space to whitespace
    (tmp_path / "words.txt").write_text("don\n'\nsnake_case\ne\u0301\n", encoding="utf-8")
    assert len(WordTokenizer.from_file(tmp_path / "words.txt", "unicode").words) == 4


def test_a_list_that_is_not_utf8_says_where(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"a\ncaf\xe9\n")
    with pytest.raises(EncodingError, match="line 2, byte 4"):
        WordTokenizer.from_file(tmp_path / "words.txt")


def test_a_model_trained_with_a_list_knows_words_its_text_lacks(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("dogs\ncats\nlove\n")
    choice = cr.TokenizerChoice("word", vocabulary=tmp_path / "words.txt")
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), tokenizer=choice, smoothing="laplace")
    assert [lm.tokenizer.token(i) for i in range(6)] == ["<unk>", "<s>", "</s>", "dogs", "cats", "love"]
    assert lm.perplexity("love dogs") < 100


def test_a_setting_of_the_tokenizer_is_named_as_such() -> None:
    with pytest.raises(SettingsError, match="vocab_size belongs to the tokenizer"):
        cr.train("ngram", cr.Corpus.from_text("i love cats\n"), vocab_size=10, tokenizer="word")
