"""Beam search: keep the best few hypotheses at every length.

Works on any model: hypotheses are rows of one batch, and `State.select` moves them about. Choosing among all
W · V continuations happens on the model's device; only the W chosen ones come back. With a beam as wide as there
are hypotheses it is an exhaustive search, and exact.

Axes: P prompts, W beam width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import Array, pad, to_numpy, without
from chainrule.decode.sample import Continuation
from chainrule.decode.strategies import Beam
from chainrule.decode.top import top_k
from chainrule.lm import LanguageModel


def beam_search(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    beam: Beam,
    *,
    max_tokens: int,
    end: int | None = None,
    forbid: Sequence[int] = (),
    best: int = 1,
) -> list[list[Continuation]]:
    """The `best` continuations of each prompt, best first; fewer where fewer are possible, but one at least."""
    searches = [_Search(beam, best, max_tokens) for _ in prompts]
    going = np.arange(len(prompts))  # prompts whose search is not over
    state = lm.extend(lm.start(len(prompts)), pad(prompts)).select(np.repeat(going, beam.width))
    for length in range(1, max_tokens + 1):
        so_far_PW = np.asarray([searches[p].live_log_probs() for p in going])
        total_PWV, ends_PW = _continuations(lm.next_log_probs(state), so_far_PW, end, forbid)
        size = total_PWV.shape[-1]
        values_PW, places_PW = map(to_numpy, top_k(total_PWV.reshape((len(going), -1)), beam.width))
        for i, p in enumerate(going):
            if end is not None:
                searches[p].finish(ends_PW[i], end)
            searches[p].go_on(places_PW[i] // size, places_PW[i] % size, values_PW[i])
        still = np.asarray([i for i, p in enumerate(going) if not searches[p].settled()], dtype=np.int64)
        if len(still) == 0 or length == max_tokens:
            break
        parents_PW = places_PW[still] // size + still[:, None] * beam.width
        state = lm.extend(state.select(parents_PW.ravel()), (places_PW[still] % size).reshape(-1, 1))
        going = going[still]
    return [search.results() for search in searches]


def _continuations(
    log_probs: Array, so_far_PW: np.ndarray, end: int | None, forbid: Sequence[int]
) -> tuple[Array, np.ndarray]:
    """ln p of every hypothesis with every next token, and those of them that `end` finishes, taken out."""
    xp = array_namespace(log_probs)
    wide = xp.astype(without(log_probs, forbid), xp.float64)
    total_PWV = wide.reshape((*so_far_PW.shape, -1)) + xp.asarray(so_far_PW, device=wide.device)[:, :, None]
    if end is None:
        return total_PWV, np.zeros(so_far_PW.shape)
    ends_PW = to_numpy(total_PWV[:, :, end])
    return without(total_PWV, [end]), ends_PW


@dataclass(frozen=True)
class _Hypothesis:
    ids: tuple[int, ...]
    log_prob: float
    finished: bool = False


class _Search:
    """The hypotheses of one prompt."""

    def __init__(self, beam: Beam, best: int, max_tokens: int) -> None:
        self.beam, self.best, self.max_tokens = beam, best, max_tokens
        # All rows of the batch begin alike; all but one are impossible, so that none is found twice.
        self.live = [_Hypothesis((), 0.0)] + [_Hypothesis((), -math.inf)] * (beam.width - 1)
        self.done: list[_Hypothesis] = []

    def live_log_probs(self) -> list[float]:
        """ln p of the hypotheses that go on."""
        return [hypothesis.log_prob for hypothesis in self.live]

    def finish(self, log_probs: np.ndarray, end: int) -> None:
        """Every live hypothesis, finished; the best finished ones are kept."""
        for hypothesis, log_prob in zip(self.live, log_probs.tolist(), strict=True):
            if log_prob > -math.inf:
                self.done.append(_Hypothesis((*hypothesis.ids, end), log_prob, True))
        self.done.sort(key=self.rank, reverse=True)
        del self.done[self.best :]

    def go_on(self, parents: np.ndarray, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """The next live hypotheses."""
        if not (log_probs > -math.inf).any() and not self.done:
            # nothing can follow: what there is, is all there is
            reached = max(self.live, key=self.rank)
            self.done = [_Hypothesis(reached.ids, reached.log_prob, True)]
        chosen = zip(parents.tolist(), tokens.tolist(), log_probs.tolist(), strict=True)
        self.live = [_Hypothesis((*self.live[parent].ids, token), log_prob) for parent, token, log_prob in chosen]

    def rank(self, hypothesis: _Hypothesis) -> float:
        """ln p / length^power."""
        return hypothesis.log_prob / float(max(len(hypothesis.ids), 1) ** self.beam.length_power)

    def settled(self) -> bool:
        """Whether no live hypothesis can still come among the best: ln p only falls, and no text is longer."""
        bound = max(self.live_log_probs()) / float(self.max_tokens**self.beam.length_power)
        return bound == -math.inf or (len(self.done) == self.best and bound <= self.rank(self.done[-1]))

    def results(self) -> list[Continuation]:
        """The best, finished or cut off at the greatest length."""
        cut_off = [h for h in self.live if h.log_prob > -math.inf and len(h.ids) == self.max_tokens]
        found = sorted(self.done + cut_off, key=self.rank, reverse=True)[: self.best]
        return [Continuation(h.ids, h.log_prob, h.finished) for h in found]
