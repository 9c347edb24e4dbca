"""Sampling: one token after the other, many rows at once.

The loop stays on the model's device. Rows that have ended read padding, which changes nothing; only every few steps
does the host look at what was written, and drops them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, draw, pad, to_numpy
from chainrule.decode.randomness import Uniforms
from chainrule.decode.strategies import Read, Strategy, looks_back, only_forbids
from chainrule.errors import ModelError
from chainrule.lm import LanguageModel, State

STEPS_AT_ONCE = 16
"""Tokens written before the host looks at them; where the model writes them by itself, four times as many."""


@dataclass(frozen=True)
class Continuation:
    """What was written after a prompt."""

    ids: tuple[int, ...]
    """The new tokens; the last is </s> if that ended it."""
    log_prob: float
    """ln p of the new tokens under the model itself, whatever the strategy."""
    finished: bool
    """Whether it came to an end, or could not go on; False if it was cut off."""


def sample(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    strategy: Strategy,
    *,
    max_tokens: int,
    seed: int = 0,
    end: int | None = None,
) -> list[Continuation]:
    """A continuation of each prompt; `end` is the token that ends one, None if nothing does."""
    new: list[list[int]] = [[] for _ in prompts]
    log_probs = [0.0] * len(prompts)
    going_on: set[int] = set(range(len(prompts)))
    for written in sample_steps(lm, prompts, strategy, max_tokens=max_tokens, seed=seed, end=end):
        for row, tokens, scores in zip(written.rows, written.tokens, written.log_probs, strict=True):
            new[row] += tokens
            log_probs[row] += sum(scores)
        going_on = written.going_on
    return [Continuation(tuple(ids), log_probs[row], row not in going_on) for row, ids in enumerate(new)]


@dataclass(frozen=True)
class Written:
    """Some more tokens of the rows that were going on."""

    rows: list[int]
    tokens: list[list[int]]
    log_probs: list[list[float]]
    going_on: set[int]
    """Rows that have not come to an end."""


def sample_steps(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    strategy: Strategy,
    *,
    max_tokens: int,
    seed: int = 0,
    end: int | None = None,
    at_once: int = STEPS_AT_ONCE,
) -> Iterator[Written]:
    """A few tokens at a time."""
    uniforms = Uniforms(seed, prompts)
    rows = np.arange(len(prompts))
    read_BT: Array = pad(prompts)
    state: State = lm.extend(lm.start(len(prompts)), read_BT)
    done = 0
    while done < max_tokens:
        steps = min(at_once, max_tokens - done)
        state, tokens_BT, scores_BT, by_itself = _steps(
            lm, state, strategy, read_BT, uniforms.draw(rows, steps), end
        )
        done += steps
        at_once = 4 * STEPS_AT_ONCE if by_itself and at_once >= STEPS_AT_ONCE else at_once
        tokens, scores = to_numpy(tokens_BT), to_numpy(scores_BT)
        if np.isnan(scores).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        lengths = (tokens != PAD).sum(axis=1)
        last = tokens[np.arange(len(rows)), np.maximum(lengths - 1, 0)]
        goes_on = (lengths == steps) & (last != end if end is not None else True)
        yield Written(
            rows.tolist(),
            [row[:n].tolist() for row, n in zip(tokens, lengths, strict=True)],
            [row[:n].tolist() for row, n in zip(scores, lengths, strict=True)],
            set(rows[goes_on].tolist()),
        )
        if not goes_on.any():
            return
        keep = np.flatnonzero(goes_on)
        read_BT = np.concatenate([to_numpy(read_BT), tokens], axis=1)[keep]
        if len(keep) < len(rows):
            rows, state = rows[keep], state.select(keep)


@dataclass(frozen=True)
class Choice:
    """One step of sampling as a function of arrays."""

    strategy: Strategy
    end: int | None

    def __call__(
        self, log_probs_BV: Array, uniforms_B: Array, going_B: Array, read: Read | None = None
    ) -> tuple[Array, Array, Array]:
        """A token for each row, PAD where the row has ended or nothing can follow; its ln p; and who goes on."""
        xp = array_namespace(log_probs_BV)
        chosen_BV = self.strategy.apply(log_probs_BV, read or _nothing)
        tokens_B = draw(chosen_BV, uniforms_B)
        is_possible_B = xp.max(chosen_BV, axis=-1) != -math.inf
        scores_B = xp.take_along_axis(log_probs_BV, tokens_B[:, None], axis=-1)[:, 0]
        return self.settle(tokens_B, scores_B, is_possible_B & going_B)

    def settle(self, tokens_B: Array, scores_B: Array, going_B: Array) -> tuple[Array, Array, Array]:
        """What a row that has ended writes is padding, which scores nothing."""
        xp = array_namespace(tokens_B)
        goes_on_B = going_B if self.end is None else going_B & (tokens_B != self.end)
        return xp.where(going_B, tokens_B, PAD), xp.where(going_B, scores_B, 0.0), goes_on_B


def _nothing() -> Array:
    raise AssertionError("a strategy that looks back needs something to look at")


def _steps(
    lm: LanguageModel, state: State, strategy: Strategy, read_BT: Array, uniforms_BT: np.ndarray, end: int | None
) -> tuple[State, Array, Array, bool]:
    """The state after as many tokens as there are columns, the tokens, ln p of each; if the model did it itself.

    A row that has ended, or that nothing can follow, gets PAD. Nothing here waits for the device.
    """
    choose = Choice(strategy, end)
    if not looks_back(strategy):
        written = lm.write(state, choose, uniforms_BT)
        if written is not None:
            return *written, True
    new: list[Array] = []
    scores: list[Array] = []
    going_B: Array = True
    forbidden = only_forbids(strategy)
    for t in range(uniforms_BT.shape[1]):
        if forbidden is not None:
            tokens_B, scores_B = lm.draw(state, uniforms_BT[:, t], forbidden)
            tokens_B, scores_B, going_B = choose.settle(tokens_B, scores_B, (scores_B != -math.inf) & going_B)
        else:
            log_probs_BV = lm.next_log_probs(state)
            read = _all_read(read_BT, new, log_probs_BV)
            tokens_B, scores_B, going_B = choose(log_probs_BV, uniforms_BT[:, t], going_B, read)
        scores.append(scores_B)
        new.append(tokens_B)
        state = lm.extend(state, tokens_B[:, None])
    xp = array_namespace(tokens_B)
    return state, xp.stack(new, axis=1), xp.stack(scores, axis=1), False


def _all_read(read_BT: Array, new: Sequence[Array], like: Array) -> Read:
    """What was read and written so far, put together only if a strategy asks."""
    xp = array_namespace(like)
    return lambda: xp.concat([xp.asarray(read_BT, device=like.device), *(n[:, None] for n in new)], axis=1)
