"""Beam search hypothesis by hypothesis: the slow, obvious reference for `chainrule.decode.beam`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from chainrule.arrays import Array, array_namespace, pad, to_numpy, without
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode.healing import Respelling
from chainrule.decode.sample import Continuation
from chainrule.decode.strategies import Beam
from chainrule.decode.top import top_k
from chainrule.errors import ModelError


def slow_beam_search(
    lm: LanguageModel,
    state: State,
    beam: Beam,
    *,
    max_tokens: int,
    end: int | None = None,
    forbid: Sequence[int] = (),
    best: int = 1,
    starts: Sequence[Sequence[Respelling]] | None = None,
) -> list[list[Continuation]]:
    """Return the `best` continuations of each row of a state, best first; fewer if fewer are possible.

    `end` is the token that ends a continuation, None if nothing does; `forbid` are tokens that none contains.
    `starts` are the respellings with which the hypotheses of each row begin, `width` at most.
    """
    if len(state) == 0:
        return []
    starts = starts or [[Respelling()]] * len(state)
    searches = [_Search(beam, best, max_tokens, respellings) for respellings in starts]
    going = np.arange(len(state))  # rows whose search is not over
    opened = pad([hypothesis.ids for search in searches for hypothesis in search.live])
    state = lm.extend(state.select(np.repeat(going, beam.width)), opened)
    for length in range(1, max_tokens + 1):
        so_far_PW = np.asarray([searches[p].live_log_probs() for p in going])
        total_PWV, ends_PW = _continuations(lm.next_log_probs(state), so_far_PW, end, forbid)
        size = total_PWV.shape[-1]
        values_PW, places_PW = map(to_numpy, top_k(total_PWV.reshape((len(going), -1)), beam.width))
        if np.isnan(values_PW).any() or np.isnan(ends_PW).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        for i, p in enumerate(going):
            if end is not None:
                searches[p].finish(_allowed_ends(beam, ends_PW[i], values_PW[i], places_PW[i], end, size), end)
            searches[p].go_on(places_PW[i] // size, places_PW[i] % size, values_PW[i])
        still = np.asarray([i for i, p in enumerate(going) if not searches[p].is_over()], dtype=np.int64)
        if len(still) == 0 or length == max_tokens:
            break
        parents_PW = places_PW[still] // size + still[:, None] * beam.width
        state = lm.extend(state.select(parents_PW.ravel()), (places_PW[still] % size).reshape(-1, 1))
        going = going[still]
    return [search.results() for search in searches]


def _continuations(
    log_probs: Array, so_far_PW: np.ndarray, end: int | None, forbid: Sequence[int]
) -> tuple[Array, np.ndarray]:
    """ln p of every hypothesis with every next token but `end`, [P, W, V], and with `end`, [P, W]."""
    xp = array_namespace(log_probs)
    wide = xp.astype(without(log_probs, forbid), xp.float64)
    total_PWV = wide.reshape((*so_far_PW.shape, -1)) + xp.asarray(so_far_PW, device=wide.device)[:, :, None]
    if end is None:
        return total_PWV, np.zeros(so_far_PW.shape)
    ends_PW = to_numpy(total_PWV[:, :, end])
    return without(total_PWV, [end]), ends_PW


def _allowed_ends(
    beam: Beam, ends_W: np.ndarray, best_W: np.ndarray, places_W: np.ndarray, end: int, size: int
) -> np.ndarray:
    """ln p of the hypotheses with `end`, -inf where the rule does not let them end.

    `best_W` are ln p of the best other continuations, and `places_W` their indices in the order of all.
    """
    if beam.ending == "any":
        return ends_W
    width = len(ends_W)
    values = np.concatenate([ends_W, best_W])
    places = np.concatenate([np.arange(width) * size + end, places_W])
    order = np.lexsort((places, -values))[: beam.width]  # the lowest index among equals
    return np.where(np.isin(np.arange(width), order), ends_W, -math.inf)


@dataclass(frozen=True)
class _Hypothesis:
    ids: tuple[int, ...]
    log_prob: float
    inside: int = 0
    finished: bool = False

    def then(self, token: int, log_prob: float, *, finished: bool = False) -> _Hypothesis:
        """Return this hypothesis with one more token, and ln p of both together."""
        return _Hypothesis((*self.ids, token), log_prob, self.inside, finished)

    @property
    def length(self) -> int:
        """The number of tokens that continue the prompt."""
        return len(self.ids) - self.inside


class _Search:
    """The hypotheses of one prompt."""

    def __init__(self, beam: Beam, best: int, max_tokens: int, respellings: Sequence[Respelling]) -> None:
        self.beam, self.best = beam, best
        self.steps_left = max_tokens
        self.finished = 0  # how many hypotheses were, whether they are kept or not
        self.done: list[_Hypothesis] = []
        # all rows of the batch that no respelling fills are impossible, so that no hypothesis is found twice
        self.live = [_Hypothesis(o.ids, o.log_prob, o.inside) for o in respellings]
        self.live += [_Hypothesis((), -math.inf)] * (beam.width - len(self.live))
        self.longest = max_tokens + max(hypothesis.length for hypothesis in self.live)

    def live_log_probs(self) -> list[float]:
        """ln p of the hypotheses that are not finished."""
        return [hypothesis.log_prob for hypothesis in self.live]

    def finish(self, log_probs: np.ndarray, end: int) -> None:
        """Finish a copy of every live hypothesis with the token `end`; only the best finished ones are kept."""
        for hypothesis, log_prob in zip(self.live, log_probs.tolist(), strict=True):
            if log_prob > -math.inf:
                self.done.append(hypothesis.then(end, log_prob, finished=True))
                self.finished += 1
        self.done.sort(key=self.rank, reverse=True)
        del self.done[self.best :]

    def go_on(self, parents: np.ndarray, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Replace the live hypotheses by their chosen continuations: a parent and a token each."""
        if not (log_probs > -math.inf).any() and not self.done:
            # no token can follow, and nothing is finished: the best live hypothesis is the result
            reached = max(self.live, key=self.rank)
            self.done = [replace(reached, finished=True)]
        chosen = zip(parents.tolist(), tokens.tolist(), log_probs.tolist(), strict=True)
        self.live = [self.live[parent].then(token, log_prob) for parent, token, log_prob in chosen]
        self.steps_left -= 1

    def rank(self, hypothesis: _Hypothesis) -> float:
        """ln p / length^power."""
        return hypothesis.log_prob / float(max(hypothesis.length, 1) ** self.beam.length_power)

    def is_over(self) -> bool:
        """Return True if no live hypothesis can become one of the best: ln p only falls, up to the greatest length.

        Or, by the usual rule, if as many as the beam is wide are finished, and no live one ranks higher than all.
        """
        is_usual = self.beam.ending == "best" and self.finished >= self.beam.width
        if is_usual and self.rank(self.live[0]) <= self.rank(self.done[0]):
            return True
        bound = max(self.live_log_probs()) / float(self.longest**self.beam.length_power)
        return bound == -math.inf or (len(self.done) == self.best and bound <= self.rank(self.done[-1]))

    def results(self) -> list[Continuation]:
        """The best hypotheses, finished or cut off at the greatest length."""
        cut_off = [h for h in self.live if h.log_prob > -math.inf and self.steps_left == 0]
        found = sorted(self.done + cut_off, key=self.rank, reverse=True)[: self.best]
        return [Continuation(h.ids, h.log_prob, h.finished, h.inside) for h in found]
