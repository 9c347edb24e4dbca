"""Byte-level BPE, WordPiece and Unigram: every text can be spelled, and peers give the same ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import TokenizerError
from chainrule.text.builtin import builtin_documents
from chainrule.tokens.subwords.fast_encoder import FastEncoder
from chainrule.tokens.subwords.library import Algorithm, byte_characters, byte_level
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer, readable
from chainrule.tokens.vocabulary import Limit

examples = settings(max_examples=50, deadline=None, derandomize=True)
every_algorithm = pytest.mark.parametrize("algorithm", ["bpe", "wordpiece", "unigram"])

DATA = Path(__file__).parents[3] / "shared" / "data"
GPT2, SHAKESPEARE = DATA / "gpt2-vocab", DATA / "tinyshakespeare" / "input.txt"
needs_gpt2 = pytest.mark.skipif(not GPT2.is_dir(), reason=f"no published GPT-2 merges at {GPT2}")
needs_shakespeare = pytest.mark.skipif(not SHAKESPEARE.is_file(), reason=f"no text at {SHAKESPEARE}")
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

SMALLEST = {"bpe": 256, "wordpiece": 513, "unigram": 257}
"""Every byte; WordPiece has each twice, and <unk>; the library's Unigram stops where it has more than the bytes."""

REFERENCE = b"".join(builtin_documents("builtin:python"))[:50_000]
TRAINING = ("i love cats and cats love me\n  don't we'll 2024 naïve\n" * 30 + "हिन्दी 漢字 🙂\n" * 5).encode()


def trained(algorithm: Algorithm, top: int = 600, text: bytes = TRAINING) -> SubwordTokenizer:
    return SubwordTokenizer.train(iter([text]), algorithm, Limit(top=top))


# -- pieces -----------------------------------------------------------------------------------------------


def test_bytes_have_256_visible_characters() -> None:
    """As in GPT-2: visible ones stand for themselves, the space is Ġ and the line end Ċ."""
    characters = byte_characters()
    assert sorted(characters) == list(range(256))
    assert len(set(characters.values())) == 256
    assert (characters[ord("a")], characters[ord(" ")], characters[ord("\n")]) == ("a", "Ġ", "Ċ")
    assert not any(character.isspace() for character in characters.values())


@needs_gpt2
def test_the_characters_of_bytes_are_those_of_gpt2() -> None:
    published = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    assert {character for character, number in published.items() if number < 256} == set(byte_characters().values())


def test_a_piece_is_shown_as_text_or_as_bytes() -> None:
    assert readable("né".encode()) == "né"
    assert readable(b"\xc3") == "<0xC3>"
    assert readable(b"a\xe6\xbc") == "<0x61><0xE6><0xBC>"


@every_algorithm
def test_the_vocabulary_is_as_large_as_asked_at_most(algorithm: Algorithm) -> None:
    """And <s> and </s> come on top."""
    smallest = SMALLEST[algorithm]
    for top in (smallest, smallest + 20):
        tokenizer = trained(algorithm, top, REFERENCE)
        assert smallest + 2 <= tokenizer.vocab_size <= top + 2
        assert (tokenizer.bos, tokenizer.eos) == (tokenizer.vocab_size - 2, tokenizer.vocab_size - 1)


@every_algorithm
def test_more_pieces_make_shorter_sequences(algorithm: Algorithm) -> None:
    smallest = SMALLEST[algorithm]
    few, many = (trained(algorithm, top, REFERENCE) for top in (smallest + 100, smallest + 500))
    assert few.vocab_size < many.vocab_size
    assert len(few.encode_lines(REFERENCE)) > len(many.encode_lines(REFERENCE))


@every_algorithm
def test_too_small_a_vocabulary_is_an_error(algorithm: Algorithm) -> None:
    smallest = SMALLEST[algorithm]
    with pytest.raises(TokenizerError, match=f"{algorithm} needs a vocabulary of at least {smallest}"):
        trained(algorithm, smallest - 1)


@every_algorithm
def test_a_share_of_words_is_no_size_for_subwords(algorithm: Algorithm) -> None:
    with pytest.raises(TokenizerError, match="give a number"):
        SubwordTokenizer.train(iter([TRAINING]), algorithm, Limit(percent=90))


@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
def test_a_minimum_count_of_pairs(algorithm: Algorithm) -> None:
    """ab occurs five times, cd three times; only ab is worth a piece where four are asked for."""
    text = b"ab\n" * 5 + b"cd\n" * 3
    tokenizer = SubwordTokenizer.train(iter([text]), algorithm, Limit(min_count=4, top=600))
    assert len(tokenizer.encode("ab")) == 1
    assert len(tokenizer.encode("cd")) == 2


@every_algorithm
def test_no_token_reaches_over_a_line_end(algorithm: Algorithm) -> None:
    tokenizer = trained(algorithm, text=b"a\n" * 100)
    assert tokenizer.encode("a\na\n").tolist() == [*tokenizer.encode("a"), tokenizer.eos] * 2


@every_algorithm
def test_every_byte_can_be_spelled_though_never_seen(algorithm: Algorithm) -> None:
    tokenizer = trained(algorithm, text=b"a\n" * 9)
    text = "".join(map(chr, range(1, 0x250))).replace("\n", "") + "漢字 🙂\U0010ffff"
    for character in text:
        assert tokenizer.decode(tokenizer.encode(f"a{character}b")) == f"a{character}b"


def test_wordpiece_does_not_know_words_of_more_than_100_bytes() -> None:
    tokenizer = trained("wordpiece")
    assert tokenizer.unk not in tokenizer.encode("x" * 100)
    assert tokenizer.encode("x" * 101).tolist() == [tokenizer.unk]
    assert tokenizer.unk not in tokenizer.encode("é" * 50)
    assert tokenizer.encode("é" * 51).tolist() == [tokenizer.unk]  # 51 x 2 bytes
    assert tokenizer.encode("a " + "x" * 100).tolist() == [*tokenizer.encode("a"), tokenizer.unk]  # with its space


def test_wordpiece_shows_pieces_inside_words_by_two_hashes() -> None:
    tokenizer = SubwordTokenizer.train(iter([b"ab\n"]), "wordpiece", Limit(top=513))
    assert [tokenizer.token(int(i)) for i in tokenizer.encode("xy")] == ["x", "##y"]


@pytest.mark.parametrize("text", ["##", "###", "##!", "####", "a ###", "## heading", "#!#", "##\u00b2##"])
def test_wordpiece_does_not_take_hashes_in_text_for_its_own(text: str) -> None:
    tokenizer = trained("wordpiece", text=TRAINING + b"## ### ##! ####\n" * 10)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@every_algorithm
def test_a_text_too_short_to_learn_from_still_gives_every_byte(algorithm: Algorithm) -> None:
    tokenizer = trained(algorithm, text=b"a")
    assert tokenizer.decode(tokenizer.encode("naïve\ncats")) == "naïve\ncats"


@every_algorithm
def test_a_text_without_words_gives_every_byte_or_an_error_that_says_so(algorithm: Algorithm) -> None:
    try:
        tokenizer = trained(algorithm, text=b"\n\n")
    except TokenizerError as error:
        assert "text" in str(error)  # not something the library says of its file
    else:
        assert tokenizer.decode(tokenizer.encode("naïve\ncats")) == "naïve\ncats"


# -- peers ------------------------------------------------------------------------------------------------


def tiktoken_twin(tokenizer: SubwordTokenizer) -> tiktoken.Encoding:
    """tiktoken with the same pieces; a piece's id is its rank, since merges are numbered in order."""
    byte_of = {character: byte for byte, character in byte_characters().items()}
    ranks = {
        bytes(byte_of[character] for character in piece): number
        for piece, number in tokenizer.reference.get_vocab().items()
        if piece != "<|endoftext|>"
    }
    return tiktoken.Encoding("twin", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})


@cache
def bpe_and_twin() -> tuple[SubwordTokenizer, tiktoken.Encoding]:
    tokenizer = trained("bpe", 500)
    return tokenizer, tiktoken_twin(tokenizer)


lines = st.lists(
    st.sampled_from(
        [" ", "  ", "\t", "\r", "\u00a0", "'s", "'ll", "'S", "cats", "love", "12", "½", "é", "漢", "🙂"]
    )
    | st.text(st.characters(max_codepoint=0x2FFF, exclude_characters="\n"), max_size=4),
    max_size=25,
).map("".join)


@given(line=lines)
@examples
def test_bpe_gives_the_ids_of_tiktoken(line: str) -> None:
    tokenizer, twin = bpe_and_twin()
    assert tokenizer.encode_line(line.encode()) == twin.encode_ordinary(line)


@cache
def gpt2() -> SubwordTokenizer:
    merges = (GPT2 / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    vocabulary = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges if merge)]
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs))
    library.pre_tokenizer = byte_level()
    return SubwordTokenizer("bpe", library.to_str())


@needs_gpt2
def test_the_published_gpt2_vocabulary() -> None:
    """50,257 pieces; "Hello world" is 15496 995, as GPT-2 has it; its <|endoftext|> is text here."""
    tokenizer = gpt2()
    assert tokenizer.vocab_size == 50_257 + 2
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert tokenizer.encode("<|endoftext|>").tolist() == [27, 91, 437, 1659, 5239, 91, 29]


@needs_gpt2
@needs_shakespeare
def test_gpt2_on_shakespeare_by_library_by_fast_encoder_and_by_tiktoken() -> None:
    tokenizer = gpt2()
    block = SHAKESPEARE.read_bytes()
    by_library = tokenizer.encode_lines_by_library(block).tolist()
    assert (
        FastEncoder(tokenizer.definition, tokenizer.eos, tokenizer.encode_lines_by_library)._encode(block).tolist()
        == by_library
    )
    twin = tiktoken_twin(tokenizer)
    text_lines = block.decode().removesuffix("\n").split("\n")
    by_tiktoken = [i for line in text_lines for i in [*twin.encode_ordinary(line), tokenizer.eos]]
    assert by_tiktoken == by_library


# -- definitions from a file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["added_tokens"].append(
            {"id": 65, "content": "love", "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        ),
        lambda d: d["model"]["vocab"].update({"漢": len(d["model"]["vocab"])}),
        lambda d: d["model"]["vocab"].update({"ab": 70_000}),
        lambda d: d.update(normalizer={"type": "Lowercase"}),
        lambda d: d.update(pre_tokenizer=None),
        lambda d: d.update(pre_tokenizer={"type": "Whitespace"}),
    ],
)
def test_a_definition_that_is_none_of_ours_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    """A file could turn text into special tokens, or give ids that are not in the vocabulary."""
    definition = json.loads(trained("bpe").definition)
    change(definition)
    with pytest.raises(TokenizerError, match=r"expected byte-level pieces|cannot read this tokenizer"):
        SubwordTokenizer("bpe", json.dumps(definition))


@pytest.mark.slow
def test_every_id_of_a_real_text_is_the_library_s() -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "simplewiki" / "valid.txt"
    if not path.exists():
        pytest.skip("simplewiki is not here")
    text = path.read_bytes()
    tokenizer = trained("bpe", 8000, text)
    fast = tokenizer._fast
    assert fast is not None
    np.testing.assert_array_equal(fast.encode_lines(text), tokenizer.encode_lines_by_library(text))
