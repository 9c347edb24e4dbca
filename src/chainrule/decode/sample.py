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
from chainrule.decode.strategies import Strategy, only_forbids
from chainrule.errors import ModelError
from chainrule.lm import LanguageModel, State

STEPS_AT_ONCE = 16
"""Tokens written before the host looks at them."""


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
    for done in range(0, max_tokens, at_once):
        steps = min(at_once, max_tokens - done)
        state, tokens_BT, scores_BT = _steps(lm, state, strategy, read_BT, uniforms.draw(rows, steps), end)
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


def _steps(
    lm: LanguageModel, state: State, strategy: Strategy, read_BT: Array, uniforms_BT: np.ndarray, end: int | None
) -> tuple[State, Array, Array]:
    """The state after as many tokens as there are columns of `uniforms_BT`, the tokens, and ln p of each.

    A row that has ended, or that nothing can follow, gets PAD. Nothing here waits for the device.
    """
    new: list[Array] = []
    scores: list[Array] = []
    going_B: Array = True
    forbidden = only_forbids(strategy)
    for t in range(uniforms_BT.shape[1]):
        if forbidden is not None:
            tokens_B, scores_B = lm.draw(state, uniforms_BT[:, t], forbidden)
            xp = array_namespace(tokens_B)
            is_possible_B = scores_B != -math.inf
        else:
            log_probs_BV = lm.next_log_probs(state)
            xp = array_namespace(log_probs_BV)
            if t == 0:
                read_BT = xp.asarray(read_BT, device=log_probs_BV.device)
            read = lambda: xp.concat([read_BT, *(n[:, None] for n in new)], axis=1)  # noqa: B023, E731
            chosen_BV = strategy.apply(log_probs_BV, read)
            is_possible_B = xp.max(chosen_BV, axis=-1) != -math.inf
            tokens_B = draw(chosen_BV, uniforms_BT[:, t])
            scores_B = xp.take_along_axis(log_probs_BV, tokens_B[:, None], axis=-1)[:, 0]
        going_B = is_possible_B & going_B
        scores.append(scores_B)
        new.append(xp.where(going_B, tokens_B, PAD))
        state = lm.extend(state, new[-1][:, None])
        if end is not None:
            going_B = going_B & (tokens_B != end)
    tokens_BT = xp.stack(new, axis=1)
    # what a row that has ended would have scored is no part of it
    return state, tokens_BT, xp.where(tokens_BT == PAD, 0.0, xp.stack(scores, axis=1))
