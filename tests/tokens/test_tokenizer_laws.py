"""Laws that every tokenizer keeps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.text.corpus import Corpus
from chainrule.tokens import base
from chainrule.tokens.base import Tokenizer, encode_in_parallel, encode_lines_slowly
from chainrule.tokens.registry import NAMES, dump_tokenizer, parse_tokenizer, train_tokenizer
from chainrule.tokens.vocabulary import Limit

examples = settings(max_examples=50, deadline=None, derandomize=True)
every_tokenizer = pytest.mark.parametrize("name", NAMES)

SPECIAL = ["<s>", "</s>", "<unk>", "[UNK]", "<unk> ", "<|endoftext|>", "<pad>", "[CLS]", "##"]
TRAINING = "i love cats\ni love dogs, don't you?\nnaïve café 漢字 ## #\n\n" * 20 + " ".join(SPECIAL) + "\n"


@cache
def tokenizer_of(name: str, text: str = TRAINING) -> Tokenizer:
    subword = name in ("bpe", "wordpiece", "unigram")
    return train_tokenizer(name, Corpus.from_text(text), Limit(top=600) if subword else Limit())


texts = st.lists(
    st.sampled_from(
        ["i love", " cats", "don't", "é", "漢字", "\n", "\n\n", " ", "  ", "\t", "#", "!", "\x00", *SPECIAL]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    max_size=30,
).map("".join)


@every_tokenizer
@given(text=texts)
@example(text="")
@example(text="\n")
@example(text="\n\n a\n\n")
@examples
def test_encoding_a_block_is_encoding_its_lines(name: str, text: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode_lines(text.encode())
    np.testing.assert_array_equal(ids, encode_lines_slowly(tokenizer, text.encode()))
    assert ids.dtype == np.uint32
    assert ids.max() < tokenizer.vocab_size
    assert ids[-1] == tokenizer.eos


@every_tokenizer
@pytest.mark.parametrize(
    "text", ["", "\n", "a", "\n\n\n", "i love cats\n" * 9, "cats " * 40 + "\ni\n\nlove", TRAINING]
)
def test_many_threads_encode_as_one(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(base, "cores", lambda: 3)
    ids = encode_in_parallel(tokenizer_of(name), text.encode())
    np.testing.assert_array_equal(ids, encode_lines_slowly(tokenizer_of(name), text.encode()))


@every_tokenizer
@given(text=texts)
@examples
def test_every_line_end_is_eos_and_no_text_is_bos(name: str, text: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode(text)
    assert np.count_nonzero(ids == tokenizer.eos) == text.count("\n")
    assert tokenizer.bos not in ids


@every_tokenizer
def test_a_line_end_inside_a_text_is_eos(name: str) -> None:
    tokenizer = tokenizer_of(name)
    love, cats = tokenizer.encode("love").tolist(), tokenizer.encode("cats").tolist()
    assert tokenizer.encode("love\ncats").tolist() == [*love, tokenizer.eos, *cats]
    assert tokenizer.encode("love\ncats\n").tolist() == [*love, tokenizer.eos, *cats, tokenizer.eos]
    assert tokenizer.encode("").tolist() == []


@pytest.mark.parametrize("name", ["byte", "bpe", "wordpiece", "unigram"])
@given(text=texts)
@example(text="###")  # WordPiece writes ## before a piece inside a word; here it is the text itself
@examples
def test_decoding_gives_back_the_text(name: str, text: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode(text)
    if tokenizer.unk is None or tokenizer.unk not in ids:
        assert tokenizer.decode(ids) == text


@given(text=texts)
@examples
def test_decoding_gives_back_the_text_where_all_characters_are_known(text: str) -> None:
    tokenizer = train_tokenizer("char", Corpus(texts=(text.encode(),)))
    ids = tokenizer.encode(text)
    assert tokenizer.unk not in ids
    assert tokenizer.decode(ids) == text


@every_tokenizer
@pytest.mark.parametrize("trained", [TRAINING, "other words altogether\n" * 9])
@pytest.mark.parametrize("string", SPECIAL)
def test_no_text_becomes_a_special_token(name: str, trained: str, string: str) -> None:
    """Whether the strings were in the training text or not; <unk> only where the letters are unknown."""
    tokenizer = tokenizer_of(name, trained)
    for text in (string, f"a {string} b", f"x{string}", string * 2):
        ids = tokenizer.encode(text)
        assert tokenizer.bos not in ids
        assert tokenizer.eos not in ids
        spelled = name in ("byte", "bpe", "wordpiece", "unigram")
        if spelled or (trained == TRAINING and text == string):
            assert tokenizer.unk is None or tokenizer.unk not in ids
        if name in ("byte", "bpe", "unigram"):
            assert tokenizer.decode(ids) == text


@every_tokenizer
def test_special_tokens_have_names_and_other_tokens_have_none(name: str) -> None:
    tokenizer = tokenizer_of(name)
    named = {tokenizer.bos: "<s>", tokenizer.eos: "</s>"}
    if tokenizer.unk is not None:
        named[tokenizer.unk] = "<unk>"
    for i in range(tokenizer.vocab_size):
        assert tokenizer.special(i) == named.get(i)
    for i, special in named.items():
        assert tokenizer.token(i) == special


@every_tokenizer
def test_bos_decodes_to_nothing_and_eos_to_a_line_end(name: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode("love").tolist()
    assert tokenizer.decode([tokenizer.bos, *ids, tokenizer.eos, tokenizer.bos, *ids]) == "love\nlove"


@every_tokenizer
def test_a_saved_tokenizer_is_the_same(name: str) -> None:
    tokenizer = tokenizer_of(name)
    content = dump_tokenizer(tokenizer)
    again = parse_tokenizer(content, "tokenizer.json")
    text = TRAINING + "new wörds ###\n\n\x00\t 漢 🙂 " + " ".join(SPECIAL)
    np.testing.assert_array_equal(again.encode(text), tokenizer.encode(text))
    assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    for attribute in ("kind", "vocab_size", "bos", "eos", "unk"):
        assert getattr(again, attribute) == getattr(tokenizer, attribute)
    assert dump_tokenizer(again) == content


@every_tokenizer
def test_training_twice_gives_the_same_tokenizer(name: str) -> None:
    limit = Limit(top=600)
    first, second = (train_tokenizer(name, Corpus.from_text(TRAINING), limit) for _ in range(2))
    assert dump_tokenizer(first) == dump_tokenizer(second)
