"""Continuations: tokenised with their context, cut where the context ends, and scored by the chain rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import DecodingError
from chainrule.interop.continuations import Part, score_continuations, split, write_until

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a cat saw the dog", "the dogs saw cats"] * 3
CHOICES: list[dict[str, Any]] = [
    {"tokenizer": "word"},
    {"tokenizer": "char"},
    {"tokenizer": "byte"},
    {"tokenizer": cr.TokenizerChoice("bpe", vocab_size=300)},
    {"tokenizer": cr.TokenizerChoice("wordpiece", vocab_size=560)},
    {"tokenizer": cr.TokenizerChoice("unigram", vocab_size=280)},
]


def trained(context: str = "line", **choice: Any) -> cr.LanguageModel:
    return cr.train(
        "ngram", TEXTS, order=3, smoothing="witten-bell", context=context, **{"tokenizer": "word", **choice}
    )


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: str(choice["tokenizer"]))
@pytest.mark.parametrize("context", ["line", "stream"])
def test_a_text_in_two_halves_is_as_likely_as_the_whole(choice: dict[str, Any], context: str) -> None:
    """ln p(a b) = ln p(a) + ln p(b | a), wherever a word ends."""
    lm = trained(context, **choice)
    whole = "the cat sat on the log"
    for before, after in (("", whole), ("the cat", " sat on the log"), ("the cat sat on the", " log")):
        (part,) = split(lm, before, after)
        assert [*part.context, *part.target] == lm.tokenizer.encode(whole).tolist()
        assert lm.tokenizer.decode(part.context) == before
        first, second = score_continuations(lm, [("", before), (before, after)])
        ids = lm.tokenizer.encode(whole)[None].astype(np.int64)
        assert first.log_prob + second.log_prob == pytest.approx(
            float(np.sum(cr.to_numpy(lm.score(ids)))), abs=1e-9
        )


def test_a_token_that_begins_in_the_context_belongs_to_the_continuation() -> None:
    lm = trained(tokenizer=cr.TokenizerChoice("bpe", vocab_size=300))
    whole = lm.tokenizer.encode("the cat sat").tolist()
    assert [lm.tokenizer.token(i) for i in whole][-1].endswith("sat")  # one token, with the space before it
    for before, after in (("the cat", " sat"), ("the cat ", "sat"), ("the cat s", "at")):
        assert split(lm, before, after) == [Part(whole[:-1], whole[-1:])]


def test_a_model_of_lines_reads_the_last_line_and_predicts_line_ends() -> None:
    lm = trained(tokenizer="word")
    encode, eos = lm.tokenizer.encode, lm.tokenizer.eos
    assert split(lm, "a cat\nthe dog", " sat\nthe cat") == [
        Part(encode("the dog").tolist(), [*encode("sat").tolist(), eos]),
        Part([], encode("the cat").tolist()),
    ]
    assert split(lm, "a cat\n", "the dog") == [Part([], encode("the dog").tolist())]
    stream = trained("stream", tokenizer="word")
    assert split(stream, "a cat\n", "the dog") == [
        Part([*encode("a cat").tolist(), eos], encode("the dog").tolist())
    ]


def test_what_greedy_decoding_writes_is_greedy() -> None:
    for context in ("line", "stream"):
        lm = trained(context, tokenizer="word")
        for prompt in ("the", "a cat", "the dogs saw"):
            text = cr.generate(lm, prompt, cr.Greedy(), max_tokens=3, heal=False)[len(prompt) :]
            other = " log log"
            found = score_continuations(lm, [(prompt, text), (prompt, text + other), (prompt, other)])
            assert [one.is_greedy for one in found] == [True, False, False]


def test_an_unknown_word_is_never_greedy() -> None:
    """Where every word of the context is unknown, <unk> itself is likely."""
    lm = cr.train("ngram", ["a a b", "c d b"], order=2, tokenizer=cr.TokenizerChoice("word", min_count=2))
    assert lm.tokenizer.unk is not None
    (found,) = score_continuations(lm, [("", "zebra")])
    assert math.isfinite(found.log_prob) and not found.is_greedy


def test_no_tokens_are_certain() -> None:
    lm = trained(tokenizer="word")
    assert score_continuations(lm, [("the cat", ""), ("the cat", " ")]) == [(0.0, True), (0.0, True)]
    assert score_continuations(lm, []) == []


def test_batches_change_nothing() -> None:
    lm = trained(tokenizer="char")
    pairs = [(text[:n], text[n:]) for text in TEXTS[:4] for n in (0, 3, 7, 11)]
    every = score_continuations(lm, pairs)
    for rows in (1, 3):
        for one, other in zip(score_continuations(lm, pairs, rows=rows), every, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9) and one.is_greedy == other.is_greedy


def test_writing_stops_before_the_first_stop_string() -> None:
    lm = trained("stream", tokenizer=cr.TokenizerChoice("bpe", vocab_size=300))
    prompts = ["the cat", "a", "the dogs"]
    free = write_until(lm, prompts, [], cr.Greedy(), max_tokens=30)
    plain = [g.continuation for g in cr.generate_many(lm, prompts, cr.Greedy(), max_tokens=30)]
    assert free == plain
    stops = ["saw", "\n"]
    for text, cut in zip(free, write_until(lm, prompts, stops, cr.Greedy(), max_tokens=30), strict=True):
        ends = [text.index(stop) for stop in stops if stop in text]
        assert ends and cut == text[: min(ends)]


def test_writing_by_a_model_of_lines_ends_with_the_line() -> None:
    lm = trained(tokenizer="word")
    (text,) = write_until(lm, ["a cat\nthe dogs"], ["\n\n"], cr.Greedy(), max_tokens=50)
    assert text == cr.generate(lm, "the dogs", cr.Greedy(), max_tokens=50).removeprefix("the dogs")
    assert write_until(lm, ["the"], [], cr.Greedy(), max_tokens=0) == [""]
    assert write_until(lm, [], [], cr.Greedy(), max_tokens=5) == []
    with pytest.raises(DecodingError, match="at least 0"):
        write_until(lm, ["the"], [], cr.Greedy(), max_tokens=-1)
