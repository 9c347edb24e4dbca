"""Beam search by the kernels gives the same results as the plain way over all probabilities, to the last bit."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.arrays import pad
from chainrule.contract.lm import ask
from chainrule.decode.beam import beam_search
from chainrule.decode.healing import Respelling
from chainrule.errors import ModelError
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.sampling import beam, workspace
from chainrule.ngram.sampling.sampler import NgramSampler
from chainrule.ngram.settings import SMOOTHINGS
from chainrule.system.parallel import Patience

BEAMS = [(1, 0.0, "best", True), (4, 1.0, "any", True), (5, 0.5, "best", True), (70, 1.0, "any", False)]


@cache
def model(smoothing: str = "modified-kneser-ney", tokenizer: str = "word", **options: object) -> NgramModel:
    text = b"".join(cr.Corpus.open("builtin:python").blocks())[:60_000].decode(errors="ignore")
    return ready(cr.train("ngram", text, order=4, smoothing=smoothing, tokenizer=tokenizer, **options))


def ready(lm: cr.LanguageModel) -> NgramModel:
    """A model that searches by kernels at once."""
    assert isinstance(lm, NgramModel)
    lm._patience.end()
    return lm


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NgramSampler, "is_ready", lambda *_: True)


def check(lm: NgramModel, beam: cr.Beam, rows: list[list[int]], end: int | None, **asked: Any) -> None:
    asked = {"max_tokens": 12, "best": beam.width, **asked}
    state = lm.extend(lm.start(len(rows)), pad(rows))
    expected = beam_search(lm, state, beam, end=end, **asked, way="plain")
    assert beam_search(lm, state, beam, end=end, **asked) == expected


def prompts(lm: NgramModel) -> list[list[int]]:
    texts = ["", "The", "If the value of", "a", "zzz qqq", "for x in range"]
    return [lm.tokenizer.encode(text).tolist() for text in texts]


FINITE = [name for name in SMOOTHINGS if name != "infinite"]
IN_PART = [name for name in FINITE if name != "katz"]
"""Those that can do without n-grams that occurred once."""


@pytest.mark.parametrize(
    ("smoothing", "prune"),
    [(name, None) for name in FINITE]
    + [
        pytest.param(name, "0,0,1", marks=[] if name in ("modified-kneser-ney", "mle") else [pytest.mark.slow])
        for name in IN_PART
    ],
)
def test_every_smoothing(smoothing: str, prune: str | None) -> None:
    lm = model(smoothing) if prune is None else model(smoothing, prune=prune)
    never = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    for width, power, ending, ends in BEAMS:
        end = lm.tokenizer.eos if ends else None
        check(lm, cr.Beam(width, power, ending), prompts(lm), end, forbid=never)


def test_the_model_searches_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def noted(*arguments: Any) -> Any:
        calls.append(ask(*arguments))
        return calls[-1]

    monkeypatch.setattr("chainrule.decode.beam.ask", noted)
    check(model(), cr.Beam(3), prompts(model()), None)
    assert len(calls) == 1 and calls[0] is not None
    lm = cr.train("ngram", "a b\n", order=2, tokenizer="word")
    assert isinstance(lm, NgramModel)
    monkeypatch.setattr(lm, "_patience", Patience(0.0))
    check(lm, cr.Beam(3), [[]], None)
    assert calls[1] is None, "a kernel takes longer to load than a few steps the plain way"


def test_a_greatest_length_that_is_never_reached_takes_no_memory() -> None:
    lm = model()
    check(lm, cr.Beam(2, 0.0), [[]], lm.tokenizer.eos, max_tokens=10**12)


TEXTS = st.lists(st.text("ab ", min_size=1, max_size=6), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(
    texts=TEXTS,
    beam=st.builds(
        cr.Beam,
        width=st.integers(1, 7),
        length_power=st.sampled_from([0.0, 0.6, 1.0, 1.5]),
        ending=st.sampled_from(["any", "best"]),
    ),
    smoothing=st.sampled_from(["mle", "laplace", "witten-bell"]),
    order=st.integers(1, 4),
    best=st.integers(1, 4),
    max_tokens=st.integers(0, 8),
    ends=st.booleans(),
    never=st.sampled_from([(), (0,), (3, 4)]),
    opened=st.booleans(),
)
def test_tiny_texts_have_many_equal_and_impossible_hypotheses(
    texts: list[str],
    beam: cr.Beam,
    smoothing: str,
    order: int,
    best: int,
    max_tokens: int,
    ends: bool,
    never: tuple[int, ...],
    opened: bool,
) -> None:
    lm = ready(cr.train("ngram", "\n".join(texts) + "\n", order=order, smoothing=smoothing, tokenizer="char"))
    size = lm.tokenizer.vocab_size
    every = [Respelling((size - 1,), -0.5, True), Respelling((size - 1, 3), -1.0), Respelling((2,), -2.0, True)]
    starts = [every[: min(beam.width, 1 + row)] for row in range(3)] if opened else None
    asked: Any = {
        "max_tokens": max_tokens,
        "best": best,
        "starts": starts,
        "forbid": [i for i in never if i < size],
    }
    check(lm, beam, [[], [size - 1], [2, size - 1]], lm.tokenizer.eos if ends else None, **asked)


def test_nearly_equal_tokens_are_ranked_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[int] = []
    slowly = beam._Search._rank_slowly

    def noted(self: Any, row: int) -> None:
        ranked.append(row)
        slowly(self, row)

    monkeypatch.setattr(beam._Search, "_rank_slowly", noted)
    lm = ready(cr.train("ngram", "a b c\nb c a\nc c b a\n", order=3, tokenizer="char"))
    values, backoffs = lm.automaton.log_prob.plain, lm.automaton.log_backoff.plain
    values[values > -math.inf], backoffs[:] = -2.0, -1e-10  # differences that vanish beside ln p of a hypothesis
    check(lm, cr.Beam(3), [[], [5]], None, max_tokens=30)
    assert ranked


def test_lists_are_discarded_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_FIRST_PAIRS", 1)
    monkeypatch.setattr(workspace, "_MOST_PAIRS", 1)
    monkeypatch.setattr(beam, "_PIECE", 8)
    lm = model()
    monkeypatch.delitem(vars(lm), "_sampler", raising=False)
    check(lm, cr.Beam(4), prompts(lm), None, max_tokens=40)
    monkeypatch.delitem(vars(lm), "_sampler", raising=False)


def test_a_model_with_a_nan_is_an_error() -> None:
    lm = ready(cr.train("ngram", "a b c\nb c a\n" * 9, order=2, tokenizer="char"))
    lm.automaton.log_prob.plain[-1] = np.nan
    with pytest.raises(ModelError, match="NaN"):
        beam_search(lm, lm.start(2), cr.Beam(8), max_tokens=20)
