"""Lower-cased text: the ids, the folder, and what a model of it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.errors import ModelError, SettingsError
from chainrule.ngram.mix import interpolate
from chainrule.tokens.lowercase import LowercaseTokenizer, lowered
from chainrule.tokens.registry import NAMES, dump_tokenizer, parse_tokenizer, train_tokenizer
from chainrule.tokens.vocabulary import Limit

TEXT = "Henry is giving a Lecture\nThe CAFÉ is closed\nthe café\n"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text(max_size=3))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_each_byte_keeps_its_place(text: str, after: str) -> None:
    block = text.encode()
    assert len(lowered(block)) == len(block)
    assert lowered(lowered(block)) == lowered(block)
    assert lowered((text + "ΑΣ").encode()) == lowered(block) + "ασ".encode()  # whatever follows


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_text_in_lower_case(name: str) -> None:
    limit = Limit(top=600) if name in ("bpe", "wordpiece", "unigram") else Limit()
    tokenizer = train_tokenizer(name, TEXT, limit, lowercase=True)
    same = train_tokenizer(name, TEXT.lower(), limit)
    assert tokenizer.encode(TEXT).tolist() == same.encode(TEXT.lower()).tolist()
    assert tokenizer.encode(TEXT).tolist() == tokenizer.encode(TEXT.upper()).tolist()
    assert tokenizer.vocab_size == same.vocab_size
    again = parse_tokenizer(dump_tokenizer(tokenizer), "here")
    assert dump_tokenizer(again) == dump_tokenizer(tokenizer)
    np.testing.assert_array_equal(again.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize("name", ["word", "char", "bpe"])
def test_the_model_folder_keeps_it(tmp_path: Path, name: str) -> None:
    lm = cr.train("ngram", TEXT, order=2, tokenizer=cr.TokenizerChoice(name, lowercase=True))
    lm.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    assert (
        loaded.perplexity("HENRY IS GIVING")
        == loaded.perplexity("henry is giving")
        == lm.perplexity("Henry is giving")
    )
    assert not cr.evaluate(loaded, TEXT).lossless


def test_a_prompt_may_be_in_upper_case_and_stop_inside_a_word() -> None:
    for name in ("word", "bpe"):
        lm = cr.train("ngram", TEXT * 5, order=3, tokenizer=cr.TokenizerChoice(name, lowercase=True))
        assert cr.generate(lm, "HENRY IS GIV", cr.Greedy(), max_tokens=30) == "HENRY IS GIVing a lecture"


def test_models_of_two_cases_are_not_merged() -> None:
    low, plain = (
        cr.train("ngram", TEXT, order=2, tokenizer=cr.TokenizerChoice("word", lowercase=one))
        for one in (True, False)
    )
    with pytest.raises(ModelError, match="different tokenizers"):
        interpolate(low, plain, weight=0.5)


def test_a_tokenizer_of_a_folder_is_as_it_is(tmp_path: Path) -> None:
    cr.train("ngram", TEXT, order=2, tokenizer="word").save(tmp_path / "model")
    with pytest.raises(SettingsError, match="leave out lowercase"):
        cr.TokenizerChoice(str(tmp_path / "model"), lowercase=True).check()


def test_words_of_a_list_are_found_in_any_case(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("henry\nis\n", encoding="utf-8")
    tokenizer = cr.TokenizerChoice("word", vocabulary=words, lowercase=True).make(cr.Corpus.from_text(TEXT))
    assert isinstance(tokenizer, LowercaseTokenizer)
    assert tokenizer.encode("HENRY Is here").tolist() == [3, 4, 0]
