"""The fast BPE encoder gives the library's ids, and is not used where it does not."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.tokens.base import Ids
from chainrule.tokens.subwords.fast_encoder import FastEncoder, fast_encoder
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit

examples = settings(max_examples=50, deadline=None, derandomize=True)

TRAINING = ("i love cats and cats love me\n  don't we'll 2024 naïve\n" * 30 + "हिन्दी 漢字 🙂\n" * 5).encode()
BLOCK = b"i love cats\n\n  dogs, too\n" * 4_000  # 100 KB: large enough for the fast encoder


def trained() -> SubwordTokenizer:
    """A new one each time: it keeps its encoder."""
    return SubwordTokenizer.train(iter([TRAINING]), "bpe", Limit(top=500))


@cache
def reference() -> SubwordTokenizer:
    return trained()


@cache
def encoder() -> FastEncoder:
    return FastEncoder(reference().definition, reference().eos, by_library)


def by_library(block: bytes) -> Ids:
    return reference().encode_lines_by_library(block)


def broken(self: FastEncoder, block: bytes) -> Ids:
    return np.zeros(7, dtype=np.uint32)


# -- it is identical --------------------------------------------------------------------------------------

texts = st.lists(
    st.sampled_from(
        [
            *("\n", "\n\n", " ", "  ", "\t", "\r", "\x0b", "\u00a0", "\u2028", "\x00"),
            *("'s", "'ll", "don't", "cats", "love", "aaaaaaaaaaaaaaaa", "1²½", "...", "<|endoftext|>", "<s>"),
            *("é", "e\u0301", "漢字", "हिन्दी", "👩\u200d👧"),
        ]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    max_size=40,
).map("".join)


@given(text=texts)
@example(text="")
@example(text="\n")
@example(text="\n\n\n")
@example(text="\n\ncats\n\n\nlove\n\n")
@example(text="cats")
@example(text=" \n  \n\t\n")
@examples
def test_it_gives_the_ids_of_the_library(text: str) -> None:
    np.testing.assert_array_equal(encoder()._encode(text.encode()), by_library(text.encode()))


@given(texts=st.lists(texts, min_size=5, max_size=10))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_it_gives_the_ids_of_the_library_on_large_blocks(texts: list[str]) -> None:
    block = ("\n".join(texts) + "\nlove\n").encode()
    block *= 1 + (1 << 16) // len(block)
    assert len(block) > 1 << 16
    ids = encoder().encode_lines(block)
    assert ids is not None
    np.testing.assert_array_equal(ids, by_library(block))


@pytest.mark.parametrize("block", [b"cats " * 20_000, b"x" * 100_000, b" " * 100_000 + b"x\n", b"\n" * 100_000])
def test_it_gives_the_ids_of_the_library_on_long_lines_and_on_none(block: bytes) -> None:
    ids = encoder().encode_lines(block)
    assert ids is not None
    np.testing.assert_array_equal(ids, by_library(block))


def test_large_blocks_take_it_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    encode_lines = FastEncoder.encode_lines

    def spy(self: FastEncoder, block: bytes) -> Ids | None:
        asked.append(len(block))
        return encode_lines(self, block)

    monkeypatch.setattr(FastEncoder, "encode_lines", spy)
    tokenizer = trained()
    for block in (BLOCK[: 1 << 10], BLOCK):
        np.testing.assert_array_equal(tokenizer.encode_lines(block), by_library(block))
    assert asked == [len(BLOCK)]


# -- it is not trusted ------------------------------------------------------------------------------------


def test_an_encoder_that_is_wrong_from_the_start_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastEncoder, "_encode", broken)
    tokenizer = trained()
    assert fast_encoder(tokenizer.definition, tokenizer.eos, tokenizer.encode_lines_by_library) is None
    np.testing.assert_array_equal(tokenizer.encode_lines(BLOCK), by_library(BLOCK))


@pytest.mark.parametrize("block", [BLOCK, b"i love cats " * 10_000 + b"\n"], ids=["short lines", "one long line"])
def test_an_encoder_that_turns_out_wrong_is_used_no_longer(block: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained()
    np.testing.assert_array_equal(tokenizer.encode_lines(BLOCK), by_library(BLOCK))
    with monkeypatch.context() as patch:
        patch.setattr(FastEncoder, "_encode", broken)
        np.testing.assert_array_equal(tokenizer.encode_lines(block), by_library(block))
    assert tokenizer._fast is not None
    assert tokenizer._fast.encode_lines(BLOCK) is None  # also where it would be right again


def test_an_encoder_that_fails_on_a_block_leaves_it_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained()
    np.testing.assert_array_equal(tokenizer.encode_lines(BLOCK), by_library(BLOCK))

    def fail(self: FastEncoder, block: bytes) -> Ids:
        raise ValueError("shape mismatch: more lines than offsets")

    monkeypatch.setattr(FastEncoder, "_encode", fail)
    np.testing.assert_array_equal(tokenizer.encode_lines(BLOCK), by_library(BLOCK))


def test_without_gigatoken_the_library_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    tokenizer = trained()
    assert fast_encoder(tokenizer.definition, tokenizer.eos, tokenizer.encode_lines_by_library) is None
    np.testing.assert_array_equal(tokenizer.encode_lines(BLOCK), by_library(BLOCK))
