"""Tests of decoding from a state other than the start: that of a model which has read a source."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.chain import PrefixState
from chainrule.decode.beam import beam_search
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Continuation, sample
from chainrule.decode.strategies import Strategy
from chainrule.testing import LAWS
from toy_models import OverPrefixes

TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text("a b\nc\n"))
A, B, C = (TOKENIZER.encode(word).tolist()[0] for word in "abc")
SOURCES = [[A, B, C], [C], [], [B, B, A, C, A]]
RIGHT = 0.7


class Copier(OverPrefixes):
    """Copies its source token by token, each with probability 0.7, then </s>; other tokens are equally likely.

    What a row has read begins with its source and </s>.
    """

    def start_from(self, sources: Sequence[Sequence[int]]) -> PrefixState:
        """Return the state after reading the sources, before the first token of the target."""
        return PrefixState(tuple((*source, TOKENIZER.eos) for source in sources))

    def start(self, batch_size: int) -> PrefixState:
        return self.start_from([[]] * batch_size)

    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        words = ids.index(TOKENIZER.eos)
        done = len(ids) - words - 1
        log_probs_V = np.full(TOKENIZER.vocab_size, math.log((1 - RIGHT) / (TOKENIZER.vocab_size - 2)))
        log_probs_V[ids[done] if done < words else TOKENIZER.eos] = math.log(RIGHT)
        log_probs_V[TOKENIZER.bos] = -math.inf
        return log_probs_V


COPIER = Copier(TOKENIZER)


def sampled(sources: Sequence[Sequence[int]], strategy: Strategy, seed: int = 0) -> list[Continuation]:
    state, uniforms = COPIER.start_from(sources), Uniforms(seed, sources)
    return sample(COPIER, state, strategy, uniforms, max_tokens=9, end=TOKENIZER.eos)


def own_log_prob(source: Sequence[int], ids: Sequence[int]) -> float:
    return float(COPIER.score(np.asarray([ids]), COPIER.start_from([source])).sum())


@pytest.mark.parametrize("law", [name for name in LAWS if name != "save_and_load_is_bit_equal"])
def test_the_model_keeps_the_laws(law: str) -> None:
    LAWS[law](COPIER)


def test_greedy_copies_the_source() -> None:
    for source, found in zip(SOURCES, sampled(SOURCES, cr.Greedy()), strict=True):
        assert (found.ids, found.finished) == ((*source, TOKENIZER.eos), True)
        assert math.isclose(found.log_prob, len(found.ids) * math.log(RIGHT))


def test_samples_follow_the_distribution_of_their_source() -> None:
    source, size = [A, B, C], 4000
    found = sampled([source] * size, cr.Sample())
    counts = Counter(continuation.ids for continuation in found)
    for ids in ((*source, TOKENIZER.eos), (A, B, TOKENIZER.eos), (TOKENIZER.eos,)):
        p = math.exp(own_log_prob(source, ids))
        # a count is binomial; five standard deviations are exceeded once in three million
        assert abs(counts[ids] - size * p) <= 5 * math.sqrt(size * p * (1 - p)), ids
    for continuation in found[:50]:
        assert math.isclose(continuation.log_prob, own_log_prob(source, continuation.ids))


@pytest.mark.parametrize("strategy", [cr.Sample(), cr.Temperature(1.5) | cr.TopK(3), cr.RepetitionPenalty(1.5)])
def test_a_batch_of_sources_is_its_rows_one_by_one(strategy: Strategy) -> None:
    for seed in range(5):
        together = sampled(SOURCES, strategy, seed)
        assert together == [sampled([source], strategy, seed)[0] for source in SOURCES]
        assert len({continuation.ids for continuation in together}) > 1


def test_a_beam_finds_the_source() -> None:
    found = beam_search(COPIER, COPIER.start_from(SOURCES), cr.Beam(3), max_tokens=9, end=TOKENIZER.eos, best=2)
    for source, (best, second) in zip(SOURCES, found, strict=True):
        assert (best.ids, best.finished) == ((*source, TOKENIZER.eos), True)
        assert math.isclose(best.log_prob, len(best.ids) * math.log(RIGHT))
        assert math.isclose(second.log_prob, own_log_prob(source, second.ids))
        assert best.log_prob / len(best.ids) > second.log_prob / len(second.ids)


def test_an_exhaustive_beam_is_exact_from_a_source() -> None:
    source, longest, end = [B, A], 3, TOKENIZER.eos
    words = [i for i in range(TOKENIZER.vocab_size) if i not in (TOKENIZER.bos, end)]
    every = [(*ids, end) for n in range(longest) for ids in itertools.product(words, repeat=n)]
    every += itertools.product(words, repeat=longest)
    assert math.isclose(sum(math.exp(own_log_prob(source, ids)) for ids in every), 1.0)
    ranked = sorted((own_log_prob(source, ids) for ids in every), reverse=True)
    beam = cr.Beam(len(every), length_power=0.0)
    found = beam_search(COPIER, COPIER.start_from([source]), beam, max_tokens=longest, end=end, best=5)[0]
    np.testing.assert_allclose([continuation.log_prob for continuation in found], ranked[:5])
    assert found[0].ids == (*source, end)
