"""Tests of decoding from a state other than the start: that of a model which has read a source."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD, Array, check_ids, pad, to_numpy
from chainrule.contract.lm import LanguageModel, State, check_rows
from chainrule.decode.beam import beam_search
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Continuation, sample
from chainrule.decode.strategies import Strategy
from chainrule.testing import LAWS

TOKENIZER = cr.train_tokenizer("word", cr.Corpus.from_text("a b\nc\n"))
A, B, C = (TOKENIZER.encode(word).tolist()[0] for word in "abc")
SOURCES = [[A, B, C], [C], [], [B, B, A, C, A]]
RIGHT = 0.7


@dataclass(frozen=True)
class Copied(State):
    """The source of each row, and the number of its tokens that were copied."""

    sources_BS: np.ndarray
    done_B: np.ndarray

    def __len__(self) -> int:
        return len(self.done_B)

    def select(self, rows: Array) -> Copied:
        rows = to_numpy(rows)
        return Copied(self.sources_BS[rows], self.done_B[rows])

    def join(self, other: Copied) -> Copied:
        sources = pad([row[row != PAD] for state in (self, other) for row in state.sources_BS])
        return Copied(sources, np.concatenate([self.done_B, other.done_B]))


class Copier(LanguageModel):
    """Copies its source token by token, each with probability 0.7, then </s>; other tokens are equally likely."""

    kind, settings, tokenizer, context = "copier", None, TOKENIZER, "line"

    def start_from(self, sources: Sequence[Sequence[int]]) -> Copied:
        """Return the state after reading the sources, before the first token of the target."""
        return Copied(pad(sources), np.zeros(len(sources), dtype=np.int64))

    def start(self, batch_size: int) -> Copied:
        return self.start_from([[]] * batch_size)

    def extend(self, state: State, ids_BT: Array) -> Copied:
        assert isinstance(state, Copied)
        check_rows(state, ids_BT)
        check_ids(ids_BT, TOKENIZER.vocab_size)
        return replace(state, done_B=state.done_B + (to_numpy(ids_BT) != PAD).sum(axis=1))

    def next_log_probs(self, state: State) -> np.ndarray:
        assert isinstance(state, Copied)
        ended_BS = np.pad(state.sources_BS, ((0, 0), (0, 1)), constant_values=PAD)
        at_B = np.minimum(state.done_B, ended_BS.shape[1] - 1)
        right_B = ended_BS[np.arange(len(at_B)), at_B]
        right_B = np.where(right_B == PAD, TOKENIZER.eos, right_B)
        size = TOKENIZER.vocab_size
        log_probs_BV = np.full((len(at_B), size), math.log((1 - RIGHT) / (size - 2)))
        log_probs_BV[np.arange(len(at_B)), right_B] = math.log(RIGHT)
        log_probs_BV[:, TOKENIZER.bos] = -math.inf
        return log_probs_BV

    def score(self, ids_BT: Array, state: State | None = None) -> np.ndarray:
        ids_BT = to_numpy(ids_BT)
        check_ids(ids_BT, TOKENIZER.vocab_size)
        state = self.start(len(ids_BT)) if state is None else state
        check_rows(state, ids_BT)
        scores_BT = np.zeros(ids_BT.shape)
        for t, ids_B in enumerate(ids_BT.T):
            picked_B = np.take_along_axis(self.next_log_probs(state), np.maximum(ids_B, 0)[:, None], axis=1)[:, 0]
            scores_BT[:, t] = np.where(ids_B == PAD, 0.0, picked_B)
            state = self.extend(state, ids_B[:, None])
        return scores_BT

    def tensors(self) -> Mapping[str, np.ndarray]:
        return {}

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        return self


COPIER = Copier()


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
