"""Speculative decoding: drafted tokens are read at once, and those are kept that the model would have written.

Reading a few tokens takes a Transformer little more time than reading one, because its weights come out of memory
once for all of them. So a cheap guesser proposes x_1 ... x_K, and one reading gives p_0 ... p_K, the distributions
of the strategy before each of them and after the last. Tokens are accepted one after the other; at the first that
is not, another is chosen in its place, and the rest is dropped. The text is distributed as it is without drafts:

    guesses    A token t_i is drawn from p_i, as without drafts, and x_i is accepted if it is that token. The random
               numbers are those of plain sampling, so that a seed gives the same text as without drafts.
    drawn      x_i is drawn from the draft's own q_i. It is accepted with probability min(1, p_i(x) / q_i(x)), else
               a token is drawn from max(p_i - q_i, 0), normalised: min(p, q) + max(p - q, 0) = p.
               (Leviathan et al. 2023; Chen et al. 2023)

One row at a time: rows of a batch would accept different numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, Array, inverse_transform, placed_like, refuse_nan, to_numpy
from chainrule.contract.capabilities import Drafted, DraftRules
from chainrule.contract.lm import LanguageModel, State, ask, read_ahead
from chainrule.decode.drafts import CONTEXT, Draft, Guesser
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Choice, Continuation, takes_logits, write_steps
from chainrule.decode.strategies import Strategy, normalised

Floats = NDArray[np.float64]

_MOST_AT_ONCE = 256
"""The most tokens that a model that writes by itself is asked for at once."""


@dataclass(frozen=True)
class Accepted:
    """The tokens of a step, or of several: drafted ones that were accepted, and what was chosen after them."""

    tokens: list[int]
    log_probs: list[float]
    """ln p of each under the model itself."""
    drafted: int
    """How many tokens had been drafted."""
    goes_on: bool
    steps: int = 1
    """In how many steps of the model the tokens were written: several, where the model writes by itself."""


def speculate(
    lm: LanguageModel,
    state: State,
    draft: Draft,
    strategy: Strategy,
    uniforms: Uniforms,
    row: int,
    *,
    max_tokens: int,
    end: int | None,
    read: Sequence[int],
) -> Iterator[Accepted]:
    """A continuation of a state of one row, step by step; `read` is what it has read, <s> not included.

    Reading ahead gives ln p. So nothing is drafted for a strategy that is applied to logits.
    """
    if takes_logits(lm, strategy):
        written = list(read)
        for _ in range(max_tokens):
            numbers, read_BT = uniforms.draw(np.asarray([row]), 1), np.asarray([written], dtype=np.int64)
            state, tokens_BT, scores_BT = write_steps(lm, state, strategy, read_BT, numbers, end)
            step = _accepted(to_numpy(tokens_BT)[0].tolist(), to_numpy(scores_BT)[0].tolist(), 0, end)
            yield step
            written += step.tokens
            if not step.goes_on:
                return
        return
    decide = (_Drawn if draft.sampled else _Guessed)(lm, draft, strategy, uniforms, row, end)
    if max_tokens < 1:
        return
    step, ids, left = decide.first(state, list(read)), list(read), max_tokens
    while True:
        left -= len(step.tokens)
        yield step
        ids += step.tokens
        if not step.goes_on or left == 0:
            return
        # the last token is chosen, but not read yet: it is read before the drafted ones
        step, state = decide.many(state, step.tokens, left) or decide.next(
            state, ids, step.tokens, min(draft.tokens, left - 1)
        )


def speculated(steps: Iterator[Accepted]) -> Continuation:
    """The whole continuation."""
    ids: list[int] = []
    total, count, drafted, goes_on = 0.0, 0, 0, True
    for step in steps:
        ids += step.tokens
        total += sum(step.log_probs)
        count, drafted, goes_on = count + step.steps, drafted + step.drafted, step.goes_on
    return Continuation(tuple(ids), total, not goes_on, steps=count, drafted=drafted)


@dataclass
class _Steps:
    """The part that both ways share: reading ahead, and what each choice has read."""

    lm: LanguageModel
    draft: Draft
    strategy: Strategy
    uniforms: Uniforms
    row: int
    end: int | None

    def draw(self, count: int) -> Floats:
        """The next random numbers of the row."""
        (numbers,) = self.uniforms.draw(np.asarray([self.row]), count)
        return np.asarray(numbers)

    def read(self, state: State, pending: int, drafted: Sequence[int]) -> tuple[Array, Array]:
        """ln p after the pending token and after each of the drafted ones, [K+1, V]; the function to the state."""
        log_probs_1TV, after = read_ahead(self.lm, state, np.asarray([[pending, *drafted]]))
        return log_probs_1TV[0], after

    def many(self, state: State, new: list[int], left: int) -> tuple[Accepted, State] | None:
        """Several steps by the model itself; None: take one by `next`."""
        return None

    def reading(self, ids: Sequence[int], drafted: Sequence[int]) -> NDArray[np.int64]:
        """What has been read before each choice, [K+1, T], for strategies that look back."""
        rows = np.full((len(drafted) + 1, len(ids) + len(drafted)), PAD, dtype=np.int64)
        rows[:, : len(ids)] = ids
        for k in range(1, len(drafted) + 1):
            rows[k, len(ids) : len(ids) + k] = drafted[:k]
        return rows


@dataclass
class _Guessed(_Steps):
    """Guesses: a token is chosen as without drafts, and the guess is right if it is that token."""

    def __post_init__(self) -> None:
        self._guesser, self._choose = Guesser(self.draft), Choice(self.strategy, None)
        sources = tuple(None if source == CONTEXT else source for source in self.draft.sources)
        self._rules = DraftRules(sources, self.draft.tokens, Choice(self.strategy, self.end))
        self._numbers = np.zeros(0)
        """Random numbers that are drawn and not used yet: each is that of one token of the text."""

    def first(self, state: State, ids: list[int]) -> Accepted:
        """The first token, which nothing is drafted for."""
        self._unseen = ids
        return self._decide(self.lm.next_log_probs(state), ids, [])[0]

    def next(self, state: State, ids: list[int], new: list[int], count: int) -> tuple[Accepted, State]:
        """The tokens of a step, and the state after all but the last of them; `new` were written last."""
        waiting, self._unseen = [*self._unseen, *new], []
        drafted = self._guesser.guess(waiting, count) if count else []
        log_probs_TV, after = self.read(state, new[-1], drafted)
        step, kept = self._decide(log_probs_TV, ids, drafted)
        return step, after(1 + kept)

    def many(self, state: State, new: list[int], left: int) -> tuple[Accepted, State] | None:
        if self.strategy.looks_back:
            return None
        most, tokens = min(left, _MOST_AT_ONCE), self.draft.tokens
        self._have(most + tokens + 1)
        arguments = state, self._rules, new[-1], self._numbers, most
        written: Drafted | None = ask(self.lm, "write_drafted", *arguments)
        if written is None:
            return None
        self._unseen = [*self._unseen, *new]
        ids, scores = written.tokens[:left].tolist(), written.log_probs[:left].tolist()
        self._numbers = self._numbers[len(ids) :]
        return _accepted(ids, scores, written.drafted, self.end, written.steps), written.state

    def _have(self, size: int) -> None:
        """Draw random numbers until `size` of them are there."""
        if len(self._numbers) < size:
            self._numbers = np.concatenate([self._numbers, self.draw(size - len(self._numbers))])

    def _decide(self, log_probs_TV: Array, ids: list[int], drafted: list[int]) -> tuple[Accepted, int]:
        """Choose a token after each prefix, and keep those whose prefix turns out to be the text."""
        size = len(drafted) + 1
        self._have(size)
        looks_back = self.strategy.looks_back
        reading = placed_like(self.reading(ids, drafted), log_probs_TV) if looks_back else None
        tokens_T, scores_T, _ = self._choose(
            log_probs_TV, self._numbers[:size], True, (lambda: reading) if looks_back else None
        )
        tokens, scores = to_numpy(tokens_T).tolist(), to_numpy(scores_T).tolist()
        kept = 0
        while kept < len(drafted) and tokens[kept] == drafted[kept] != self.end:
            kept += 1
        self._numbers = self._numbers[kept + 1 :]
        return _accepted(tokens[: kept + 1], scores[: kept + 1], len(drafted), self.end), kept


@dataclass
class _Drawn(_Steps):
    """Drafts that are drawn: accepted with probability min(1, p/q)."""

    def __post_init__(self) -> None:
        source = self.draft.sources[0]
        assert isinstance(source, LanguageModel)
        self._source = source
        self._state = source.start(1)

    def first(self, state: State, ids: list[int]) -> Accepted:
        """The first token, which nothing is drafted for."""
        self._state = self._source.extend(self._state, np.asarray([ids], dtype=np.int64))
        log_probs_1V = self.lm.next_log_probs(state)
        (p_V,) = self._strategic(log_probs_1V, ids, [])
        return self._decide(p_V[None], log_probs_1V, [], np.zeros((0, len(p_V))))[0]

    def next(self, state: State, ids: list[int], new: list[int], count: int) -> tuple[Accepted, State]:
        """The tokens of a step, and the state after all but the last of them; `new` were written last."""
        self._state = self._source.extend(self._state, np.asarray([new]))
        drafted, q_KV = self._draft(ids, count)
        log_probs_TV, after = self.read(state, new[-1], drafted)
        step, kept = self._decide(self._strategic(log_probs_TV, ids, drafted), log_probs_TV, drafted, q_KV)
        return step, after(1 + kept)

    def _draft(self, ids: list[int], count: int) -> tuple[list[int], Floats]:
        """Tokens drawn from the draft, by the strategy, and the distribution of each."""
        state, drafted, rows = self._state, list[int](), []
        for u in self.draw(count):
            (q_V,) = self._strategic(self._source.next_log_probs(state), [*ids, *drafted], [])
            if q_V.sum() == 0:
                break
            drafted.append(_drawn(q_V, u))
            rows.append(q_V)
            state = self._source.extend(state, np.asarray([drafted[-1:]]))
        return drafted, np.asarray(rows)

    def _strategic(self, log_probs_TV: Array, ids: list[int], drafted: Sequence[int]) -> Floats:
        """p of every token under the strategy, before each choice; all 0 where nothing can follow."""
        reading = self.reading(ids, drafted)
        changed_TV = self.strategy.apply(log_probs_TV, lambda: placed_like(reading, log_probs_TV))
        return np.asarray(np.exp(normalised(to_numpy(changed_TV).astype(np.float64))))

    def _decide(self, p_TV: Floats, log_probs_TV: Array, drafted: list[int], q_KV: Floats) -> tuple[Accepted, int]:
        """Accept drafted tokens with probability min(1, p/q); then draw one from what is left of p."""
        numbers, kept = self.draw(len(drafted) + 1), 0
        left_V = p_TV[len(drafted)]
        for k, x in enumerate(drafted):
            if numbers[k] * q_KV[k, x] >= p_TV[k, x]:
                # p' ∝ max(p - q, 0)
                left_V = np.maximum(p_TV[k] - q_KV[k], 0.0)
                left_V = left_V if left_V.sum() > 0 else p_TV[k]  # p = q but for rounding
                break
            kept += 1
            if x == self.end:
                left_V = np.zeros_like(left_V)
                break
        tokens = drafted[:kept]
        if not (tokens and tokens[-1] == self.end):
            tokens = [*tokens, _drawn(left_V, numbers[-1]) if left_V.sum() > 0 else PAD]
        at = np.arange(len(tokens)), np.asarray(tokens)
        scores = to_numpy(log_probs_TV[: len(tokens)]).astype(np.float64)[at].tolist()
        return _accepted(tokens, scores, len(drafted), self.end), min(kept, len(tokens) - 1)


def _accepted(tokens: list[int], scores: list[float], drafted: int, end: int | None, steps: int = 1) -> Accepted:
    """The step, without a last token that stands for "nothing can follow"."""
    refuse_nan(scores)
    last = tokens[-1]
    if last == PAD:
        return Accepted(tokens[:-1], scores[:-1], drafted, False, steps)
    return Accepted(tokens, scores, drafted, last != end, steps)


def _drawn(p_V: Floats, uniform: float) -> int:
    """A token drawn from p, which need not sum to one."""
    with np.errstate(divide="ignore"):
        return int(inverse_transform(np.log(p_V)[None], np.asarray([uniform]))[0])
