"""Tests that beam search by arrays finds the same texts as beam search hypothesis by hypothesis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_beam import slow_beam_search

import chainrule as cr
from chainrule.contract.chain import PrefixState
from chainrule.decode.beam import beam_search
from chainrule.decode.healing import Respelling
from chainrule.decode.strategies import Beam
from toy_models import OverPrefixes

SIZE, END = 5, 2


class Drawn(OverPrefixes):
    """A model whose ln p has few values, drawn for each prefix: many hypotheses tie, and some are impossible."""

    def __init__(self, seed: int, values: list[float]) -> None:
        super().__init__(cr.train("ngram", "a b", order=1, tokenizer="word").tokenizer)
        self.seed, self.values = seed, values

    def start(self, batch_size: int) -> PrefixState:
        return PrefixState(tuple((row,) for row in range(batch_size)))

    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([self.seed, *ids]).choice(self.values, SIZE)


BEAMS = st.builds(
    Beam,
    width=st.integers(1, 7),
    length_power=st.sampled_from([0.0, 0.6, 1.0, 1.5]),
    ending=st.sampled_from(["any", "best"]),
)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=BEAMS,
    values=st.sampled_from([[-1.0, -2.0], [-0.5, -1.0, -1.5, -4.0], [-1.0, -math.inf], [-math.inf]]),
    prompts=st.integers(1, 4),
    best=st.integers(1, 4),
    max_tokens=st.integers(1, 6),
    end=st.sampled_from([END, None]),
    forbid=st.sampled_from([(), (0,), (0, 3)]),
    respellings=st.booleans(),
)
def test_arrays_find_the_same_texts_as_the_reference(
    seed: int,
    beam: Beam,
    values: list[float],
    prompts: int,
    best: int,
    max_tokens: int,
    end: int | None,
    forbid: tuple[int, ...],
    respellings: bool,
) -> None:
    lm = Drawn(seed, values)
    starts = None
    if respellings:
        every = [Respelling((1,), -0.5, True), Respelling((1, 3), -1.0), Respelling((4,), -2.0, True)][: beam.width]
        starts = [every[: 1 + prompt % len(every)] for prompt in range(prompts)]
    asked: Any = {"max_tokens": max_tokens, "end": end, "forbid": forbid, "best": best, "starts": starts}
    expected = slow_beam_search(lm, lm.start(prompts), beam, **asked)
    assert beam_search(lm, lm.start(prompts), beam, **asked) == expected


class Counting(Drawn):
    """A model that writes three tokens almost surely; at each step an end, too early, is the second choice."""

    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        p = np.full(SIZE, 0.001)
        p[END] = 0.01
        p[END if len(ids) > 3 else len(ids) % 2] = 0.98
        return np.log(p)


def test_many_poor_ends_do_not_end_the_search() -> None:
    """Hypotheses that ended too early fill the beam, before the one that is right has ended."""
    lm = Counting(0, [0.0])
    beam, rules = Beam(width=3, ending="best"), {"max_tokens": 10, "end": END}
    (found,) = beam_search(lm, lm.start(1), beam, **rules)
    assert found[0].ids == slow_beam_search(lm, lm.start(1), beam, **rules)[0][0].ids == (1, 0, 1, END)
