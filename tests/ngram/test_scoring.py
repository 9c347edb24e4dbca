"""Scoring at speed gives what scoring slowly gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import to_numpy
from chainrule.contract.lm import score_rows
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.store import automaton
from chainrule.system import parallel
from chainrule.tokens import base


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    """Zipf's law in numbers, so that long n-grams occur again."""
    return np.random.default_rng(0).zipf(1.3, 30_000) % 500


@pytest.mark.parametrize("settings", [{}, {"index": "hash"}, {"bits": 8}, {"smoothing": "mle"}, {"order": 1}])
def test_the_kernel_scores_as_the_arrays_do(settings: dict[str, object], words: np.ndarray) -> None:
    text = "\n".join(" ".join(map(str, line)) for line in np.split(words[:20_000], 2_000))
    lm = cr.train("ngram", cr.Corpus.from_text(text), **{"order": 4, **settings}, tokenizer="word")
    assert isinstance(lm, NgramModel)
    ids = (words[20_000:] % lm.tokenizer.vocab_size).astype(np.int64)
    slow = lm.automaton.score_slowly(ids)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(lm.automaton._score_fast(ids, threads), slow)


def test_a_long_text_is_scored_by_lines_on_every_core(monkeypatch: pytest.MonkeyPatch, words: np.ndarray) -> None:
    monkeypatch.setattr(base, "_WORTH_A_THREAD", 1 << 12)
    monkeypatch.setattr(base, "cores", lambda: 3)
    text = "\n".join(" ".join(map(str, line)) for line in np.split(words, 3_000))
    lm = cr.train("ngram", cr.Corpus.from_text(text), order=3, tokenizer="word")
    assert len(base.cut_lines(text.encode())) == 3
    rows = score_rows(lm, lm.sequences(text))
    np.testing.assert_array_equal(-lm.surprisals(text), np.concatenate(rows))
    np.testing.assert_allclose(rows[7], to_numpy(lm.score(lm.sequences(text)[7][None]))[0])


def test_many_short_texts_are_worth_the_kernel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 8 * 1024)
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), order=2, tokenizer="word")
    assert isinstance(lm, NgramModel)
    took: list[str] = []
    monkeypatch.setattr(
        automaton.Automaton, "_score_fast", lambda self, text, threads: took.append("fast") or np.zeros(4)
    )
    monkeypatch.setattr(automaton.Automaton, "score_slowly", lambda self, text: took.append("slow") or np.zeros(4))
    for _ in range(4):
        lm.automaton.score(np.asarray([1, 3, 4, 5]))
    assert took == ["slow", "fast", "fast", "fast"]
