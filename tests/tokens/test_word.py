"""Words: how a line is split, how the compiled path equals the obvious one, and which words are known."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import TokenizerError
from chainrule.system.parallel import worth_a_kernel
from chainrule.tokens.base import encode_lines_slowly, lines_of
from chainrule.tokens.vocabulary import Limit, choose
from chainrule.tokens.words.learning import NANOSECONDS
from chainrule.tokens.words.splitting import Splitting, split_words
from chainrule.tokens.words.tokenizer import WordTokenizer

examples = settings(max_examples=50, deadline=None, derandomize=True)
both_splittings = pytest.mark.parametrize("splitting", ["whitespace", "unicode"])


def words(line: str, splitting: Splitting) -> list[str]:
    return [word.decode() for word in split_words(line.encode(), splitting)]


def counted_slowly(blocks: list[bytes], splitting: Splitting) -> Counter[bytes]:
    return Counter(word for block in blocks for line in lines_of(block) for word in split_words(line, splitting))


# -- splitting --------------------------------------------------------------------------------------------


def test_whitespace_is_the_six_ascii_characters() -> None:
    assert words("a b\tc\rd\x0be\x0cf", "whitespace") == ["a", "b", "c", "d", "e", "f"]
    assert WordTokenizer([b"a", b"b"]).encode_line(b"a b") == [3, 4]


@pytest.mark.parametrize("character", ["\u00a0", "\u2028", "\u3000", "\x85", "\x1c", "\x00", "\u200b", "\ufeff"])
def test_no_other_character_is_white_space(character: str) -> None:
    assert words(f"new{character}york", "whitespace") == [f"new{character}york"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("don't!", ["don", "'", "t", "!"]),
        ("  snake_case, x2=3.14 ", ["snake_case", ",", "x2", "=", "3", ".", "14"]),
        ("...", [".", ".", "."]),
        ("हिन्दी में लिखना", ["हिन्दी", "में", "लिखना"]),  # vowel signs and viramas belong to their word
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),  # accents that follow their letter
        ("我爱猫。你好", ["我爱猫", "。", "你好"]),
        ("かな、カナ", ["かな", "、", "カナ"]),
        ("a\u00a0b\u3000c\u2028d", ["a", "b", "c", "d"]),  # all Unicode white space separates
        ("🙂🙂 ok", ["🙂", "🙂", "ok"]),
        ("<s>", ["<", "s", ">"]),
        ("", []),
    ],
)
def test_unicode_words_and_marks(line: str, expected: list[str]) -> None:
    assert words(line, "unicode") == expected


# -- the compiled path ------------------------------------------------------------------------------------

text = st.lists(
    st.sampled_from(
        [" ", "\n", "\n\n", "\t", "\x0b", "\u00a0", "the", "cat", "don't", "é", "漢字", "\U00020000", "\x00"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    max_size=40,
).map("".join)


def unicode_heavy(seed: int, size: int) -> bytes:
    """Random words over several scripts, marks and kinds of space."""
    draw = random.Random(seed)
    alphabet = "abcdeféßжщ漢字ひह\u093f\u094dن한ก🙂\U00020000_'.-\u0301\u00a0\u2028\x1c\x00"
    pieces: list[str] = []
    length = 0
    while length < size:
        piece = "".join(draw.choices(alphabet, k=draw.randint(1, 6))) + draw.choice(" \t\r\v\f\n  ")
        pieces.append(piece)
        length += len(piece.encode())
    return "".join(pieces).encode()


@both_splittings
@given(text=text)
@example(text="")
@example(text="\n")
@example(text="the")
@example(text="\n\nthe  \n \n")
@examples
def test_the_kernel_encodes_as_the_obvious_loop_does(splitting: Splitting, text: str) -> None:
    block = text.encode()
    known = list(counted_slowly([block], splitting))[::2]  # every other word is unknown
    tokenizer = WordTokenizer(known, splitting)
    assert tokenizer._table is not None  # once it is made, short blocks go through it too
    compiled = tokenizer.encode_lines(block)
    np.testing.assert_array_equal(compiled, encode_lines_slowly(tokenizer, block))
    assert compiled.dtype == np.uint32


@both_splittings
def test_blocks_above_a_megabyte_take_the_kernel_and_give_the_same(splitting: Splitting) -> None:
    block = unicode_heavy(seed=1, size=1_100_000)
    assert worth_a_kernel(len(block), NANOSECONDS)
    tokenizer = WordTokenizer.train(iter([block]), Limit(min_count=2), splitting)
    assert tokenizer.spellings == choose(counted_slowly([block], splitting), Limit(min_count=2))
    expected = encode_lines_slowly(tokenizer, block)
    assert 0.1 < np.mean(expected == tokenizer.unk) < 0.9
    np.testing.assert_array_equal(tokenizer.encode_lines(block), expected)


# -- the tokenizer ----------------------------------------------------------------------------------------

ZOO = b"the cat sat\nthe dog sat\nthe emu\n"  # the 3, sat 2, cat 1, dog 1, emu 1


@pytest.mark.parametrize(
    ("limit", "vocabulary"),
    [
        (Limit(), [b"the", b"sat", b"cat", b"dog", b"emu"]),
        (Limit(min_count=2), [b"the", b"sat"]),
        (Limit(top=3), [b"the", b"sat", b"cat"]),
        (Limit(percent=80), [b"the", b"sat", b"cat", b"dog"]),  # 80 % of five
    ],
)
def test_the_vocabulary_is_what_the_limit_lets_in(limit: Limit, vocabulary: list[bytes]) -> None:
    tokenizer = WordTokenizer.train(iter([ZOO]), limit)
    assert tokenizer.spellings == vocabulary
    assert tokenizer.vocab_size == 3 + len(vocabulary)


def test_ids_of_a_worked_example() -> None:
    """<unk> <s> </s> the sat cat dog are 0 to 6."""
    tokenizer = WordTokenizer.train(iter([ZOO]), Limit(top=4))
    assert tokenizer.encode("the emu sat\n\ndog").tolist() == [3, 0, 4, 2, 2, 6]
    assert tokenizer.decode([1, 3, 0, 4, 2, 2, 6]) == "the <unk> sat\n\ndog"
    assert [tokenizer.token(i) for i in range(7)] == ["<unk>", "<s>", "</s>", "the", "sat", "cat", "dog"]


def test_decoding_joins_words_with_single_spaces() -> None:
    tokenizer = WordTokenizer.train(iter([ZOO]), Limit())
    assert tokenizer.decode(tokenizer.encode("  the \t cat\n sat ")) == "the cat\nsat"


def test_a_text_without_words_has_an_empty_vocabulary() -> None:
    tokenizer = WordTokenizer.train(iter([b"\n \n"]), Limit())
    assert tokenizer.vocab_size == 3
    assert tokenizer.encode("a\n").tolist() == [tokenizer.unk, tokenizer.eos]


@pytest.mark.parametrize(
    ("words", "fault"), [(["a", "b", "a"], "lists a word twice"), (["a\nb"], "a word with a line end in it")]
)
def test_a_vocabulary_that_cannot_be_is_refused(words: list[str], fault: str) -> None:
    with pytest.raises(TokenizerError, match=fault):
        WordTokenizer.from_json({"kind": "word", "splitting": "whitespace", "words": words})


def test_any_words_come_back_from_json() -> None:
    for words in ([], [b"a"], [b"a", "é\u2028\x00".encode(), b"\x1c"]):
        assert WordTokenizer.from_json(WordTokenizer(words).to_json()).spellings == words
