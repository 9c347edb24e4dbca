"""Beam search from any state: keep the best few hypotheses at every length.

Works on any model: hypotheses are rows of one batch, and `State.select` reorders them. The W best continuations of
each hypothesis are found on the model's device; only they come back, and the W best of all are among them. A model
that offers `search` does it by itself, with the same result; one that offers `search_steps` goes on by itself, and
is followed here. With a beam as wide as there are
hypotheses it is an exhaustive search, and exact.

When a hypothesis ends is one of two rules (`Beam.ending`):

    any     every hypothesis is finished at every step, beside being continued: the finished ones compete by their
            rank, and the beam always holds the `width` best unfinished ones. A beam of width 1 is not greedy, since
            it compares the ends of all beginnings of its one hypothesis.
    best    a hypothesis is finished only if its end is among the `width` best of all continuations, and the search
            is over when `width` hypotheses are finished and the best unfinished one ranks no higher than the best
            of them: the usual rule. A beam of width 1 is greedy.

With a length power of 1, `any` finds texts of higher mean ln p. With a power below 1 it mostly finds empty lines,
which are what that ranks highest: `best` should be taken there (benchmarks/results/suggestions.md has figures).

Hypotheses are kept as arrays of tokens and of parents, one for each step, and read backwards at the end: a step
costs the same for one prompt and for a thousand.

Axes: P prompts that are not done, W beam width, V vocabulary, R results of a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from chainrule.arrays import array_namespace, pad, refuse_nan, to_numpy, without
from chainrule.contract.capabilities import Found, SearchRules
from chainrule.contract.lm import LanguageModel, State, ask
from chainrule.decode.healing import Respelling
from chainrule.decode.sample import Continuation
from chainrule.decode.strategies import Beam
from chainrule.decode.top import top_k

_ENDED, _STUCK, _CUT_OFF = range(3)
"""Why a hypothesis does not go on: the end token follows, no token can, or it has its greatest length."""
_LONGEST = 1 << 20  # tokens; for more the arrays of a model's own search could be too large


def beam_search(
    lm: LanguageModel,
    state: State,
    beam: Beam,
    *,
    max_tokens: int | np.ndarray,
    end: int | None = None,
    forbid: Sequence[int] = (),
    best: int = 1,
    starts: Sequence[Sequence[Respelling]] | None = None,
    way: Literal["any", "fast", "plain"] = "any",
) -> list[list[Continuation]]:
    """The `best` continuations of each row of a state, best first; fewer where fewer are possible.

    `max_tokens` is the greatest length of a continuation, or that of each row, which is then 1 at least. `end` is
    the token that ends a continuation, None if nothing does; `forbid` are tokens that none contains.
    `starts` are the respellings with which the hypotheses of each row begin, `width` at most; tokens inside
    the prompt do not count. `way` chooses between the model's own search and the plain one, its reference, for
    tests: with "fast", the result is None where the model does not search by itself.

    With one result, hypotheses that the model cannot tell apart are recombined: all but the best are dropped.
    """
    if len(state) == 0:
        return []
    beginnings = starts or [[Respelling()]] * len(state)
    search = _Search.of(beam, best, max_tokens, beginnings)
    copies = beam.width  # of a prompt with one hypothesis, its state stands for all of its rows at first
    if starts is not None:
        opened = pad([respelling.ids for respelling in search.respellings])
        state, copies = lm.extend(state.select(np.repeat(np.arange(len(state)), copies)), opened), 1
    if way != "plain":
        found = search.by_the_model(lm, state, end, forbid)
        if found is None and search.by_steps_of_the_model(lm, state, end, forbid):
            found = search.results(end)
        if found is not None or way == "fast":
            return found  # type: ignore[return-value]
        search = _Search.of(beam, best, max_tokens, beginnings)  # the model may have begun to search
    for _ in range(int(search.limits.max())):
        values, tokens, ends = _best_tokens(lm, state, beam.width, forbid, end)
        if copies > 1:
            values, tokens = np.repeat(values, copies, axis=0), np.repeat(tokens, copies, axis=0)
            ends = None if ends is None else np.repeat(ends, copies)
        rows = search.advance(values, tokens, ends, end)
        if len(rows) == 0:
            break
        state, copies = lm.extend(state.select(rows // copies), search.last_tokens()[:, None]), 1
        if best == 1:
            search.recombine(state.keys())
    return search.results(end)


def _best_tokens(
    lm: LanguageModel, state: State, width: int, forbid: Sequence[int], end: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The best next tokens of each row but `forbid` and `end`: ln p and token, [B, W]; and ln p of `end`, [B].

    No more than W of the W best continuations can continue the same hypothesis.
    """
    log_probs = lm.next_log_probs(state)
    never, asked = _never(end, forbid)
    refuse_nan(float(array_namespace(log_probs).sum(log_probs)))
    values, tokens = map(to_numpy, top_k(without(log_probs, never), width))
    return values.astype(np.float64), tokens, None if asked is None else to_numpy(log_probs[:, asked])


def _never(end: int | None, forbid: Sequence[int]) -> tuple[Sequence[int], int | None]:
    """The tokens with which no hypothesis goes on, and the token of which ln p is needed; None: of none."""
    return (forbid, None) if end is None else ([*forbid, end], None if end in forbid else end)


@dataclass
class _Search:
    """The hypotheses of all prompts, as arrays."""

    beam: Beam
    limits: np.ndarray
    """The most steps of each prompt."""
    respellings: list[Respelling]
    """The first tokens of each hypothesis, W for each prompt."""
    longest: np.ndarray
    """The greatest length of a continuation of each prompt."""
    active: np.ndarray
    """The numbers of the prompts that are not done, P of them."""
    live_PW: np.ndarray
    """ln p of the hypotheses that are not finished; -inf for rows of the batch that hold none."""
    lengths_PW: np.ndarray
    """The tokens by which each continues its prompt."""
    done: _Done
    levels: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """The hypotheses after each step: the last token of each, and its parent in the level before."""
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The places of the hypotheses that went on, among those of the last level."""

    @classmethod
    def of(
        cls, beam: Beam, best: int, max_tokens: int | np.ndarray, starts: Sequence[Sequence[Respelling]]
    ) -> _Search:
        # rows of the batch that no respelling fills are impossible, so that no hypothesis is found twice
        nothing = Respelling(log_prob=-math.inf)
        rows = [[*respellings, *[nothing] * (beam.width - len(respellings))] for respellings in starts]
        lengths_PW = np.asarray([[len(one.ids) - one.inside for one in row] for row in rows])
        longest = max_tokens + lengths_PW.max(axis=1)
        return cls(
            beam=beam,
            limits=np.broadcast_to(np.asarray(max_tokens), len(rows)),
            respellings=[respelling for row in rows for respelling in row],
            longest=longest,
            active=np.arange(len(rows)),
            live_PW=np.asarray([[one.log_prob for one in row] for row in rows]),
            lengths_PW=lengths_PW,
            done=_Done.empty(len(rows), best),
            kept=np.arange(len(rows) * beam.width),
        )

    def by_the_model(
        self, lm: LanguageModel, state: State, end: int | None, forbid: Sequence[int]
    ) -> list[list[Continuation]] | None:
        """All that this search finds, by a fast path of the model; None if it has none, or for very long texts."""
        best, longest = self.done.ranks_PR.shape[1], int(self.longest.max())
        if longest > _LONGEST:
            return None
        divisors = self._divisors(np.arange(longest + 1))
        rules = SearchRules(self.beam.ending, best, end, tuple(forbid), self.limits, divisors)
        found: list[list[Found]] | None = ask(lm, "search", state, rules, self.live_PW, self.lengths_PW)
        if found is None:
            return None
        continued: list[list[Continuation]] = [[] for _ in found]
        for p, one in ((p, one) for p, results in enumerate(found) for one in results):
            start = self.respellings[p * self.beam.width + one.beginning]
            ids = (*start.ids, *one.ids)
            continued[p].append(Continuation(ids, one.log_prob, one.finished, start.inside))
        return continued

    def by_steps_of_the_model(
        self, lm: LanguageModel, state: State, end: int | None, forbid: Sequence[int]
    ) -> bool:
        """Search as the plain way does, where a model goes on by itself and is followed; False if it does not."""
        W = self.beam.width
        never, asked = _never(end, forbid)

        def take(values: np.ndarray, tokens: np.ndarray, ends: np.ndarray) -> bool:
            rows = (self.active[:, None] * W + np.arange(W)).ravel()
            return len(self.advance(values[rows], tokens[rows], None if asked is None else ends[rows], end)) > 0

        return bool(ask(lm, "search_steps", state, never, asked, self.live_PW, int(self.limits.max()), take))

    def advance(
        self, values: np.ndarray, tokens: np.ndarray, ends: np.ndarray | None, end: int | None
    ) -> np.ndarray:
        """Finish hypotheses, and continue the best; returns the rows of the batch that those continue.

        `values` and `tokens` are ln p of the best next tokens of each row, [PW, W], and `ends` those of the end.
        """
        P, W = self.live_PW.shape
        total_PN = (self.live_PW[:, :, None] + values.reshape(P, W, -1)).reshape(P, -1)
        # stable: among equals the first hypothesis, and of one hypothesis the lowest token
        chosen_PW = np.argsort(-total_PN, axis=1, kind="stable")[:, :W]
        if chosen_PW.shape[1] < W:
            raise ValueError("the vocabulary is empty")
        best_PW = np.take_along_axis(total_PN, chosen_PW, axis=1)
        parents_PW = chosen_PW // values.shape[1]
        tokens_PW = np.take_along_axis(tokens.reshape(P, -1), chosen_PW, axis=1)
        if ends is not None and end is not None:
            ends_PW = self.live_PW + ends.reshape(P, W)
            allowed_PW = self._allowed(ends_PW, best_PW, parents_PW, tokens_PW, end)
            self._end(np.arange(P), allowed_PW, self.lengths_PW + 1, _ENDED)
        self._end_where_stuck(best_PW)
        rows_PW = np.arange(P)[:, None] * W + parents_PW
        self.levels.append((tokens_PW.ravel(), self.kept[rows_PW.ravel()]))
        self.lengths_PW = np.take_along_axis(self.lengths_PW, parents_PW, axis=1) + 1
        self.live_PW = best_PW
        self.kept = np.arange(P * W)
        is_over_P = self.limits[self.active] == len(self.levels)
        if is_over_P.any():
            self._end(np.flatnonzero(is_over_P), best_PW[is_over_P], self.lengths_PW[is_over_P], _CUT_OFF)
        still = np.flatnonzero(~self._is_done() & ~is_over_P)
        self.kept = self.kept.reshape(P, W)[still].ravel()
        self.active, self.live_PW, self.lengths_PW = (
            array[still] for array in (self.active, self.live_PW, self.lengths_PW)
        )
        continued: np.ndarray = rows_PW[still].ravel()
        return continued

    def recombine(self, keys: list[Hashable] | None) -> None:
        """Drop a hypothesis if the model cannot tell it apart from a better one of its prompt and length."""
        if keys is None:
            return
        P, W = self.live_PW.shape
        for p in range(P):
            seen = set()
            for w in range(W):  # the best come first
                key = keys[p * W + w], int(self.lengths_PW[p, w])
                if key in seen:
                    self.live_PW[p, w] = -math.inf
                seen.add(key)

    def last_tokens(self) -> np.ndarray:
        """The last token of each hypothesis that goes on."""
        tokens: np.ndarray = self.levels[-1][0][self.kept]
        return tokens

    def _allowed(
        self, ends_PW: np.ndarray, best_PW: np.ndarray, parents_PW: np.ndarray, tokens_PW: np.ndarray, end: int
    ) -> np.ndarray:
        """Return ln p of the hypotheses with `end`; -inf where the rule does not let them end."""
        if self.beam.ending == "any":
            return ends_PW
        W = ends_PW.shape[1]
        values = np.concatenate([ends_PW, best_PW], axis=1)
        # among equals the first hypothesis, and of one hypothesis the lowest token
        hypotheses = np.concatenate([np.broadcast_to(np.arange(W), ends_PW.shape), parents_PW], axis=1)
        tokens = np.concatenate([np.full_like(tokens_PW, end), tokens_PW], axis=1)
        order = np.lexsort((tokens, hypotheses, -values), axis=-1)[:, :W]
        is_allowed = (order[:, :, None] == np.arange(W)).any(axis=1)
        allowed_PW: np.ndarray = np.where(is_allowed, ends_PW, -math.inf)
        return allowed_PW

    def _end_where_stuck(self, best_PW: np.ndarray) -> None:
        """Finish the best live hypothesis of a prompt if no token can follow and nothing is finished."""
        stuck = np.flatnonzero((best_PW == -math.inf).all(axis=1) & (self.done.count[self.active] == 0))
        if len(stuck):
            live_PW, lengths_PW = self.live_PW[stuck], self.lengths_PW[stuck]
            first_P1 = (live_PW / self._divisors(lengths_PW)).argmax(axis=1)[:, None]
            is_first_PW = np.arange(live_PW.shape[1]) == first_P1
            self._end(stuck, np.where(is_first_PW, live_PW, -math.inf), lengths_PW, _STUCK)

    def _end(self, at: np.ndarray, log_probs_PW: np.ndarray, lengths_PW: np.ndarray, why: int) -> None:
        """Keep the best of the hypotheses that do not go on, of the prompts at these places; -inf marks none."""
        ranks_PW = log_probs_PW / self._divisors(lengths_PW)
        places_PW = self.kept.reshape(self.live_PW.shape)[at]
        self.done.add(self.active[at], ranks_PW, log_probs_PW, len(self.levels), places_PW, why)

    def _divisors(self, lengths: np.ndarray) -> np.ndarray:
        """length^power: hypotheses are ranked by ln p divided by it."""
        divisors: np.ndarray = np.maximum(lengths, 1) ** float(self.beam.length_power)
        return divisors

    def _is_done(self) -> np.ndarray:
        """Return True for each prompt of which no live hypothesis can get among the best: ln p only falls.

        By the usual rule a prompt is also done when as many hypotheses as the beam is wide are finished, unless an
        unfinished one ranks higher than all of them: in a small vocabulary, poor ends are soon among the best.
        """
        best_P = self.live_PW.max(axis=1)
        bound_P = best_P / self._divisors(self.longest[self.active])
        is_full_P = self.done.count[self.active] >= self.done.ranks_PR.shape[1]
        is_done_P: np.ndarray = (bound_P == -math.inf) | (
            is_full_P & (bound_P <= self.done.ranks_PR[self.active, -1])
        )
        if self.beam.ending == "best":
            rank_P = self.live_PW[:, 0] / self._divisors(self.lengths_PW[:, 0])
            is_behind_P = rank_P <= self.done.ranks_PR[self.active, 0]
            is_done_P |= (self.done.count[self.active] >= self.beam.width) & is_behind_P
        return is_done_P

    def results(self, end: int | None) -> list[list[Continuation]]:
        """The best hypotheses of each prompt, finished or cut off at the greatest length."""
        if not self.levels:
            self._end(self.active, self.live_PW, self.lengths_PW, _CUT_OFF)
        done = self.done
        found: list[list[Continuation]] = [[] for _ in done.count]
        for p, r in zip(*np.nonzero(done.ranks_PR > -math.inf), strict=True):
            ids, inside = self._ids(int(done.levels_PR[p, r]), int(done.places_PR[p, r]))
            if done.why_PR[p, r] == _ENDED:
                assert end is not None
                ids = (*ids, end)
            is_finished = bool(done.why_PR[p, r] != _CUT_OFF)
            found[p].append(Continuation(ids, float(done.log_probs_PR[p, r]), is_finished, inside))
        return found

    def _ids(self, level: int, place: int) -> tuple[tuple[int, ...], int]:
        """The tokens of a hypothesis, and how many of the first add nothing to the prompt."""
        tokens = []
        for last_tokens, parents in reversed(self.levels[:level]):
            tokens.append(int(last_tokens[place]))
            place = int(parents[place])
        respelling = self.respellings[place]
        return (*respelling.ids, *reversed(tokens)), respelling.inside


@dataclass
class _Done:
    """The hypotheses of each prompt that do not go on, the R best of them, best first."""

    ranks_PR: np.ndarray
    log_probs_PR: np.ndarray
    levels_PR: np.ndarray
    places_PR: np.ndarray
    """Where a hypothesis stands: the number of its tokens so far, and its place among those of that length."""
    why_PR: np.ndarray
    """Why it does not go on: one of _ENDED, _STUCK and _CUT_OFF."""
    count: np.ndarray
    """How many there were of each prompt, whether they are kept or not."""

    @classmethod
    def empty(cls, prompts: int, best: int) -> _Done:
        nothing, zeros = np.full((prompts, best), -math.inf), np.zeros((prompts, best), np.int64)
        return cls(nothing, nothing.copy(), zeros, zeros.copy(), zeros.copy(), np.zeros(prompts, np.int64))

    def add(
        self,
        prompts: np.ndarray,
        ranks: np.ndarray,
        log_probs: np.ndarray,
        level: int,
        places: np.ndarray,
        why: int,
    ) -> None:
        """Take hypotheses of these prompts, [P, N] each, that finish at a level; -inf marks none."""
        best = self.ranks_PR.shape[1]
        news = (ranks, log_probs, np.full_like(places, level), places, np.full_like(places, why))
        arrays = (self.ranks_PR, self.log_probs_PR, self.levels_PR, self.places_PR, self.why_PR)
        joined = [np.concatenate([old[prompts], new], axis=1) for old, new in zip(arrays, news, strict=True)]
        # stable: among equals what was finished first
        order = np.argsort(-joined[0], axis=1, kind="stable")[:, :best]
        for array, every in zip(arrays, joined, strict=True):
            array[prompts] = np.take_along_axis(every, order, axis=1)
        self.count[prompts] += (log_probs > -math.inf).sum(axis=1)
