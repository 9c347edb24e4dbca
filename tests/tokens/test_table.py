"""Tables of words: the compiled one numbers and counts as the obvious one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.tokens.words.kernels import CHUNK
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.table import SlowTable, WordTable

examples = settings(max_examples=60, deadline=None, derandomize=True)
both_splittings = pytest.mark.parametrize("splitting", ["whitespace", "unicode"])

# words on both sides of 7, 8 and 16 bytes, where the kernel changes its ways, and such as differ in NULs only
odd = [" ", "\n", "\n\n", "\t", "\x0b", "\u00a0", "don't", "é", "漢字", "\U00020000", "🙂"]
near = ["\x00", "a", "a\x00", "a\x07", "seven77", "eight888", "eight88\x08", "eight888\x00", "nine99999"]
pieces = st.sampled_from([*odd, *near, "sixteen161616161", "sixteen1616161617"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)
texts = st.lists(st.lists(pieces, max_size=40).map("".join), max_size=4)


def assert_same(table: WordTable, expected: SlowTable) -> None:
    assert table.words() == expected.words()
    np.testing.assert_array_equal(table.counts(), expected.counts())


def both(blocks: list[bytes], splitting: Splitting = "whitespace") -> WordTable:
    """The compiled table of some blocks, held equal to the slow one."""
    fast, slow = WordTable(splitting), SlowTable(splitting)
    for block in blocks:
        np.testing.assert_array_equal(fast.learn(block), slow.learn(block))
    assert_same(fast, slow)
    return fast


def test_numbers_of_a_worked_example() -> None:
    """The line end is 1; the, cat, dog are 2, 3, 4."""
    for table in (SlowTable("whitespace"), WordTable("whitespace")):
        assert table.learn(b"the cat\n\nthe dog").tolist() == [2, 3, 1, 1, 2, 4, 1]
        assert table.words() == [b"\n", b"the", b"cat", b"dog"]
        assert table.counts().tolist() == [3, 2, 1, 1]


@both_splittings
@given(texts=texts)
@example(texts=[""])
@example(texts=["\n"])
@example(texts=["the"])
@examples
def test_the_kernel_learns_as_the_obvious_loop_does(splitting: Splitting, texts: list[str]) -> None:
    both([text.encode() for text in texts], splitting)


@both_splittings
@pytest.mark.parametrize("shift", range(6))
def test_words_and_characters_across_the_ends_of_chunks(splitting: Splitting, shift: int) -> None:
    unit = "né 漢字🙂 \u00a0don't\n".encode()
    both([b"x" * shift + unit * (3 * CHUNK // len(unit))], splitting)


def test_words_longer_than_any_buffer() -> None:
    long = b"x" * 300_000
    both([b" ".join([long, long + b"y", long, b"z" * 600_000]) + b"\n"])


def test_a_megabyte_of_white_space_has_no_words() -> None:
    assert both([b" \n" * (1 << 19)]).words() == [b"\n"]


def test_the_table_grows() -> None:
    """It begins with 65,536 slots, half of which may be taken: 50,000 distinct words make it grow."""
    distinct = [b"word-%d" % (i * 7919 % 50_000) for i in range(50_000)]
    block = b" ".join(distinct * 2 + distinct[:10_000] * 2) + b"\n"
    table = both([block[:100_000], b"\n", block[100_000:], block])
    assert len(table._slots) > 1 << 16


@both_splittings
@given(first=texts, second=texts)
@examples
def test_merged_tables_are_the_table_of_all_the_text(
    splitting: Splitting, first: list[str], second: list[str]
) -> None:
    for kind in (WordTable, SlowTable):
        merged, whole = WordTable(splitting), SlowTable(splitting)
        other: WordTable | SlowTable = kind(splitting)
        for text in first:
            merged.learn(text.encode())
        numbers = [other.learn(text.encode()) for text in second]
        if isinstance(other, WordTable):
            into = merged.merge(other)
        else:
            into = merged.merge_words(other.words(), other.counts())
        for text in first:
            whole.learn(text.encode())
        for text, found in zip(second, numbers, strict=True):
            np.testing.assert_array_equal(into[found], whole.learn(text.encode()))
        assert_same(merged, whole)


def test_a_merge_can_make_the_table_grow() -> None:
    first, second = WordTable("whitespace"), WordTable("whitespace")
    block = b" ".join(b"%d" % i for i in range(60_000))
    second.learn(block)
    into = first.merge(second)
    assert len(first) == 60_001
    np.testing.assert_array_equal(first.look_up(block), into[second.look_up(block)])
    assert first.counts().sum() == second.counts().sum()


def test_given_words_are_numbered_in_order_and_what_is_not_there_is_0() -> None:
    table = WordTable("whitespace", [b"cats", b"and-some-long-word", b"dogs"])
    assert table.look_up(b"dogs emus cats\nand-some-long-word and-some").tolist() == [4, 0, 2, 1, 3, 0, 1]
    assert table.put([b"emus", b"cats"]).tolist() == [5, 2]


@given(words=st.lists(pieces.filter(lambda piece: piece and "\n" not in piece), unique=True, max_size=30))
@examples
def test_words_are_found_between_given_places(words: list[str]) -> None:
    """Every other word is in the table; they lie in the block back to back, so only the places part them."""
    spelled = [word.encode() for word in words]
    table = WordTable("whitespace", spelled[::2])
    ends = np.cumsum([len(word) for word in spelled], dtype=np.int64)
    found = table.find(b"".join(spelled), np.concatenate([[0], ends[:-1]])[: len(ends)], ends)
    assert found.tolist() == [0 if place % 2 else place // 2 + 2 for place in range(len(words))]
    assert len(table) == 1 + len(spelled[::2]), "looking up learns nothing"
