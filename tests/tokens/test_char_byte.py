"""Characters and bytes as tokens: worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from chainrule.tokens.char import ByteTokenizer, CharTokenizer
from chainrule.tokens.vocabulary import Limit

# -- characters -------------------------------------------------------------------------------------------


def test_characters_are_ranked_by_count_then_code_point() -> None:
    """b 3, a 2, é 2, space 1; a line end is </s> and no character."""
    tokenizer = CharTokenizer.train(iter(["bab é\n".encode(), "baé".encode()]), Limit())
    assert tokenizer.characters == "baé "
    assert tokenizer.vocab_size == 3 + 4
    assert tokenizer.encode("é a\nx").tolist() == [5, 6, 4, 2, 0]
    assert tokenizer.decode([1, 5, 6, 4, 2, 0]) == "é a\n<unk>"
    assert [tokenizer.token(i) for i in range(7)] == ["<unk>", "<s>", "</s>", "b", "a", "é", " "]


def test_a_limit_makes_rare_characters_unknown() -> None:
    text = b"aaabbc"
    assert CharTokenizer.train(iter([text]), Limit(min_count=2)).characters == "ab"
    assert CharTokenizer.train(iter([text]), Limit(top=1)).characters == "a"
    assert CharTokenizer.train(iter([text]), Limit(percent=67)).characters == "ab"  # 67 % of three are two


def test_every_code_point_can_be_a_character() -> None:
    text = "\x00\x7f\x80\u07ff\u0800\ufeff\uffff\U00010000\U0010ffff"
    tokenizer = CharTokenizer.train(iter([text.encode()]), Limit())
    assert tokenizer.characters == text  # all once: in order of code point
    assert tokenizer.encode(text).tolist() == list(range(3, 3 + len(text)))


def test_a_text_of_line_ends_has_no_characters() -> None:
    tokenizer = CharTokenizer.train(iter([b"\n\n"]), Limit())
    assert tokenizer.vocab_size == 3
    assert tokenizer.encode("a\n").tolist() == [tokenizer.unk, tokenizer.eos]


# -- bytes ------------------------------------------------------------------------------------------------


def test_a_byte_is_its_value() -> None:
    """é is C3 A9, a line end is 10 and </s>; <s> is 256."""
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("é\na\x00").tolist() == [0xC3, 0xA9, 10, 97, 0]
    assert tokenizer.decode([256, 0xC3, 0xA9, 10, 97]) == "é\na"
    assert (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (257, 256, 10, None)


def test_half_a_character_is_decoded_as_a_replacement() -> None:
    assert ByteTokenizer().decode([97, 0xC3]) == "a\ufffd"


@pytest.mark.parametrize(
    ("byte", "shown"), [(97, "a"), (32, " "), (126, "~"), (0, "<0x00>"), (127, "<0x7F>"), (0xC3, "<0xC3>")]
)
def test_bytes_are_shown_as_ascii_or_by_value(byte: int, shown: str) -> None:
    assert ByteTokenizer().token(byte) == shown


def test_special_bytes_are_shown_by_name() -> None:
    assert [ByteTokenizer().token(i) for i in (256, 10)] == ["<s>", "</s>"]


def test_every_byte_id_is_within_the_vocabulary() -> None:
    ids = ByteTokenizer().encode_lines(bytes(range(128)))
    np.testing.assert_array_equal(ids, [*range(128), 10])
