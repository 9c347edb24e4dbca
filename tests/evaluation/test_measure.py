"""A model measured on a text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule import arrays
from chainrule.contract import lm as contract
from chainrule.evaluation import measure as measuring
from chainrule.evaluation.measure import evaluate
from chainrule.evaluation.surprisal import score_lines
from listening import Listening

TEXT = "i love cats\n\ni love dogs\ncats chase mice\nzebras love\n"


@pytest.fixture(params=["line", "stream"])
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    toy = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    return cr.train("ngram", toy, order=3, smoothing="laplace", context=request.param, tokenizer="word")


def test_the_figures_agree_with_each_other_and_with_the_text(lm: cr.LanguageModel) -> None:
    m = evaluate(lm, cr.Corpus.from_text(TEXT))
    assert m.tokens == 3 + 3 + 3 + 2 + 5  # words and five line ends
    assert m.bytes == len(TEXT.encode())
    assert m.oov == 1 / 16
    assert math.isclose(m.perplexity, math.exp(m.nats))
    assert math.isclose(m.perplexity, 2**m.bits)
    assert math.isclose(m.bits_per_byte, m.bits * m.tokens / m.bytes)
    assert math.isclose(m.nats * m.tokens, -lm.log_prob(TEXT))
    assert math.isclose(m.perplexity, lm.perplexity(TEXT))


def test_a_text_without_a_final_line_end_has_two_perplexities(lm: cr.LanguageModel, tmp_path: Path) -> None:
    """One with the end of its last line, which every line has here, and one of the tokens that it has."""
    text = TEXT.removesuffix("\n")
    (tmp_path / "text").write_text(text, encoding="utf-8")
    for source in (text, tmp_path / "text"):
        m = evaluate(lm, source)
        assert m.perplexity == pytest.approx(lm.perplexity(text))
        assert m.perplexity_without_end == pytest.approx(math.exp(lm.surprisals(text)[:-1].mean()))
        assert str(m).endswith(f"without the one that is counted, perplexity {m.perplexity_without_end:.4g}")
    for ended in (TEXT, ["zebras love"]):
        assert evaluate(lm, ended).perplexity_without_end is None
        assert "line end" not in str(evaluate(lm, ended))


def test_a_perplexity_without_an_end_that_is_impossible() -> None:
    lm = cr.train("ngram", "i love cats\n", order=3, smoothing="mle", tokenizer="word")
    assert evaluate(lm, "i love").perplexity == math.inf
    assert evaluate(lm, "i love").perplexity_without_end == 1
    assert evaluate(lm, "love i").perplexity_without_end == math.inf


def test_pieces_and_batches_change_nothing(lm: cr.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(lm, cr.Corpus.from_text(TEXT))
    monkeypatch.setattr(measuring, "TOKENS_AT_ONCE", 4)
    monkeypatch.setattr("chainrule.arrays.TOKENS_AT_ONCE", 4)
    monkeypatch.setattr(contract, "_MOST_AT_ONCE", 4)
    assert math.isclose(evaluate(lm, cr.Corpus.from_text(TEXT)).nats, whole.nats)


def test_lines_scored_one_by_one_sum_to_the_whole(lm: cr.LanguageModel) -> None:
    lines = list(score_lines(lm, cr.Corpus.from_text(TEXT)))
    assert [line.text for line in lines] == TEXT.splitlines()
    assert [len(line.ids) for line in lines] == [4, 1, 4, 4, 3]
    assert math.isclose(sum(line.log_prob for line in lines), lm.log_prob(TEXT))
    np.testing.assert_allclose([-p for line in lines for p in line.log_probs], lm.surprisals(TEXT))


def test_the_impossible_is_counted_and_infinite() -> None:
    toy = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    lm = cr.train("ngram", toy, order=3, smoothing="mle", tokenizer="word")
    m = evaluate(lm, cr.Corpus.from_text("i love mice\n"))
    assert (m.perplexity, m.nats, m.bits_per_byte, m.impossible) == (math.inf, math.inf, math.inf, 1)
    (line,) = score_lines(lm, cr.Corpus.from_text("i love mice\n"))
    assert (line.log_prob, line.perplexity) == (-math.inf, math.inf)


def test_context_flows_across_lines_only_in_a_stream(lm: cr.LanguageModel) -> None:
    one_by_one = lm.log_prob("i love dogs\n") + lm.log_prob("cats chase mice\n")
    together = lm.log_prob("i love dogs\ncats chase mice\n")
    assert math.isclose(one_by_one, together) == (lm.context == "line")


def test_a_missing_last_line_end_is_no_byte_but_an_event(lm: cr.LanguageModel) -> None:
    with_end, without = (evaluate(lm, cr.Corpus.from_text(t)) for t in ("i love cats\n", "i love cats"))
    assert with_end.tokens == without.tokens == 4
    assert (with_end.bytes, without.bytes) == (12, 11)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 300))
def test_batches_hold_every_row_once_and_are_not_too_large(lengths: list[int], most: int) -> None:
    every = np.asarray(lengths)
    batches = list(arrays.batches(every, most))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(every)))
    assert all(len(batch) == 1 or len(batch) * every[batch].max() <= most for batch in batches)


def test_little_of_a_batch_is_padding() -> None:
    lengths = np.arange(1, 2000)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in arrays.batches(lengths, 1 << 14))
    assert padded < 1.25 * lengths.sum()


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize(("kind", "size"), [("ngram", "_MOST_AT_ONCE"), ("elman", "_MOST_AT_ONCE")])
def test_the_bar_moves_as_often_as_the_model_says(
    kind: str, size: str, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many tokens of a model that scores sequences in bulk, after fewer of another."""
    small = {"order": 2} if kind == "ngram" else {"engine": "tape", "steps": 1, "hidden": 4, "embedding": 4}
    lm = cr.train(kind, cr.Corpus.from_text("i love cats\n" * 3), context=context, **small, tokenizer="word")
    monkeypatch.setattr(contract, size, 20)
    progress, advances = Listening(), list[float]()
    monkeypatch.setattr(progress, "advance", advances.append)
    m = evaluate(lm, cr.Corpus.from_text("i love cats\n" * 250), progress=progress)
    assert m.tokens == 1000 and advances[-50:] == [20] * 50  # what comes before is encoding


def test_the_note_on_a_lower_bound_names_case_where_it_is_ignored() -> None:
    lines = ["To be", "or not"] * 5
    words = cr.train("ngram", lines, order=1, tokenizer="word")
    lowered = cr.train("ngram", lines, order=1, tokenizer=cr.TokenizerChoice("word", lowercase=True))
    assert str(cr.evaluate(words, lines)).endswith("are not counted")
    assert str(cr.evaluate(lowered, lines)).endswith("are not counted, nor is case")
