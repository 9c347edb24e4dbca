"""Sampling: one token after the other, many rows at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, pad, to_numpy
from chainrule.decode.randomness import Uniforms
from chainrule.decode.strategies import Strategy, normalize
from chainrule.errors import ModelError
from chainrule.lm import LanguageModel, State


@dataclass(frozen=True)
class Continuation:
    """What was written after a prompt."""

    ids: tuple[int, ...]
    """The new tokens; the last is </s> if that ended it."""
    log_prob: float
    """ln p of the new tokens under the model itself, whatever the strategy."""
    finished: bool
    """Whether it came to an end; False if it was cut off."""


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
    finished = [False] * len(prompts)
    for step in sample_steps(lm, prompts, strategy, max_tokens=max_tokens, seed=seed, end=end):
        for row, token, log_prob in zip(step.rows, step.tokens, step.log_probs, strict=True):
            new[row].append(token)
            log_probs[row] += log_prob
            finished[row] = token == end
        for row in step.dead_ends:
            finished[row] = True
    return [Continuation(tuple(ids), p, f) for ids, p, f in zip(new, log_probs, finished, strict=True)]


@dataclass(frozen=True)
class Step:
    """One more token for every row that goes on."""

    rows: list[int]
    tokens: list[int]
    log_probs: list[float]
    dead_ends: list[int]
    """Rows that end here because nothing can follow."""


def sample_steps(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    strategy: Strategy,
    *,
    max_tokens: int,
    seed: int = 0,
    end: int | None = None,
) -> Iterator[Step]:
    """Token by token; rows that ended are dropped from the batch."""
    uniforms = Uniforms(seed, prompts)
    read_BT = pad(prompts)
    state: State = lm.extend(lm.start(len(prompts)), read_BT)
    rows = np.arange(len(prompts))
    for _ in range(max_tokens):
        log_probs_BV = lm.next_log_probs(state)
        chosen_BV = strategy.apply(log_probs_BV, _on_the_same_device(read_BT[rows], log_probs_BV))
        best = to_numpy(_best(chosen_BV))
        if np.isnan(best).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        possible = best > -math.inf
        dead_ends = rows[~possible].tolist()
        if dead_ends:
            keep = np.flatnonzero(possible)
            rows, state = rows[keep], state.select(keep)
            places = _on_the_same_device(keep, chosen_BV)
            chosen_BV, log_probs_BV = chosen_BV[places], log_probs_BV[places]
        if len(rows) == 0:
            yield Step([], [], [], dead_ends)
            return
        tokens_B = draw(chosen_BV, uniforms.draw(rows))
        picked = to_numpy(_pick(log_probs_BV, tokens_B)).tolist()
        tokens = to_numpy(tokens_B).astype(np.int64)
        yield Step(rows.tolist(), tokens.tolist(), picked, dead_ends)
        state = lm.extend(state, tokens[:, None])
        column = np.full((len(read_BT), 1), PAD, dtype=np.int64)
        column[rows, 0] = tokens
        read_BT = np.concatenate([read_BT, column], axis=1)
        if end is not None and (tokens == end).any():
            keep = np.flatnonzero(tokens != end)
            rows, state = rows[keep], state.select(keep)
            if len(rows) == 0:
                return


def draw(log_probs_BV: Array, uniforms_B: np.ndarray) -> Array:
    """A token per row by inverse transform: the first x whose Σ_{y<=x} p(y) exceeds u."""
    xp = array_namespace(log_probs_BV)
    wide_BV = xp.astype(log_probs_BV, xp.float64)
    cumulative_BV = xp.cumulative_sum(xp.exp(normalize(wide_BV)), axis=-1)
    threshold_B1 = xp.asarray(uniforms_B, device=wide_BV.device)[:, None] * cumulative_BV[:, -1:]
    return xp.sum(xp.astype(cumulative_BV <= threshold_B1, xp.int64), axis=-1)


def _best(log_probs_BV: Array) -> Array:
    return array_namespace(log_probs_BV).max(log_probs_BV, axis=-1)


def _pick(log_probs_BV: Array, tokens_B: Array) -> Array:
    return array_namespace(log_probs_BV).take_along_axis(log_probs_BV, tokens_B[:, None], axis=-1)[:, 0]


def _on_the_same_device(array: np.ndarray, like: Array) -> Array:
    return array_namespace(like).asarray(array, device=like.device)
