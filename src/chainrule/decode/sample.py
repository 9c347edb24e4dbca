"""Sampling from any state: one token after the other, many rows at once.

The loop stays on the model's device. Rows that have ended read padding, which changes nothing; only every few steps
does the host look at the new tokens, and drop the rows that have ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD, Array, array_namespace, inverse_transform, pad, placed_like, refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, State, ask, offered
from chainrule.decode.randomness import Uniforms
from chainrule.decode.strategies import Operations, Read, Strategy, normalised
from chainrule.errors import DecodingError

STEPS_AT_ONCE, MOST_STEPS = 16, 64
"""The tokens of a row that are written before the host looks at them: at first, and at most."""
NO_TIME = 0.01
"""Pieces that take fewer seconds than this become larger: nobody waits for them."""


@dataclass(frozen=True)
class Continuation:
    """The tokens written after a prompt."""

    ids: tuple[int, ...]
    """The new tokens; the last one is the end token if that ended the continuation."""
    log_prob: float
    """ln p of the new tokens under the model itself, whatever the strategy."""
    finished: bool
    """True if the continuation came to an end, or could not go on; False if it was cut off."""
    inside: int = 0
    """How many of the first tokens add nothing, since they spell the end of the prompt (see healing.py)."""
    steps: int | None = None
    """In how many steps of the model it was written, if tokens were drafted (see speculative.py)."""
    drafted: int = 0
    """How many tokens were drafted for it, accepted or not."""


def sample(
    lm: LanguageModel,
    state: State,
    strategy: Strategy,
    uniforms: Uniforms,
    *,
    max_tokens: int,
    end: int | None = None,
    read_BT: Array | None = None,
) -> list[Continuation]:
    """A continuation of each row of a state.

    `end` is the token that ends a continuation, None if nothing does. `read_BT` is what the rows have read, for
    strategies that look back; if it is not given, they see only what is written here.
    """
    new: list[list[int]] = [[] for _ in range(len(state))]
    log_probs = [0.0] * len(state)
    active = set(range(len(state)))
    for piece in sample_steps(lm, state, strategy, uniforms, max_tokens=max_tokens, end=end, read_BT=read_BT):
        for row, tokens, scores in zip(piece.rows, piece.tokens, piece.log_probs, strict=True):
            new[row] += tokens
            log_probs[row] += sum(scores)
        active = piece.active
    return [Continuation(tuple(ids), log_probs[row], row not in active) for row, ids in enumerate(new)]


def sample_after(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    strategy: Strategy,
    *,
    max_tokens: int,
    seed: int = 0,
    end: int | None = None,
) -> list[Continuation]:
    """A continuation of each prompt, which is read after <s>; equal prompts get different random numbers."""
    state, read_BT = lm.extend(lm.start(len(prompts)), pad(prompts)), pad(prompts)
    return sample(lm, state, strategy, Uniforms(seed, prompts), max_tokens=max_tokens, end=end, read_BT=read_BT)


@dataclass(frozen=True)
class Piece:
    """The next few tokens of the rows that had not ended, and their ln p."""

    rows: list[int]
    tokens: list[list[int]]
    log_probs: list[list[float]]
    active: set[int]
    """Rows that have not ended after this piece."""


def sample_steps(
    lm: LanguageModel,
    state: State,
    strategy: Strategy,
    uniforms: Uniforms,
    *,
    max_tokens: int,
    end: int | None = None,
    read_BT: Array | None = None,
    at_once: int = STEPS_AT_ONCE,
) -> Iterator[Piece]:
    """The same as `sample`, but in pieces: `at_once` tokens of each row; more, if those come in no time."""
    rows = np.arange(len(state))
    read_BT = np.zeros((len(state), 0), dtype=np.int64) if read_BT is None else read_BT
    done = 0
    while done < max_tokens:
        steps, began = min(at_once, max_tokens - done), time.perf_counter()
        state, tokens_BT, scores_BT = write_steps(lm, state, strategy, read_BT, uniforms.draw(rows, steps), end)
        done += steps
        tokens, scores = to_numpy(tokens_BT), to_numpy(scores_BT)
        refuse_nan(scores)
        if time.perf_counter() - began < NO_TIME:
            at_once = max(at_once, min(2 * at_once, MOST_STEPS))
        lengths = (tokens != PAD).sum(axis=1)
        last = tokens[np.arange(len(rows)), np.maximum(lengths - 1, 0)]
        goes_on = (lengths == steps) & (last != end if end is not None else True)
        yield Piece(
            rows.tolist(),
            [row[:n].tolist() for row, n in zip(tokens, lengths, strict=True)],
            [row[:n].tolist() for row, n in zip(scores, lengths, strict=True)],
            set(rows[goes_on].tolist()),
        )
        if not goes_on.any():
            return
        keep = np.flatnonzero(goes_on)
        if strategy.looks_back:
            read_BT = np.concatenate([to_numpy(read_BT), tokens], axis=1)[keep]
        if len(keep) < len(rows):
            rows, state = rows[keep], state.select(keep)


@dataclass(frozen=True)
class Choice:
    """One step of sampling as a function of arrays."""

    strategy: Strategy
    end: int | None
    by_logits: bool = False
    """True if it is called with logits instead of ln p."""

    @property
    def operations(self) -> Operations | None:
        """The strategy as named operations; None if it is something else."""
        return self.strategy.operations()

    @property
    def is_sure(self) -> bool:
        """True if the strategy leaves one token at most, so that none need be drawn."""
        operations = self.operations
        return bool(operations and operations[-1] == ("top_k", 1))

    def __call__(
        self, log_probs_BV: Array, uniforms_B: Array, active_B: Array, read: Read | None = None
    ) -> tuple[Array, Array, Array]:
        """A token for each row, PAD if the row has ended or nothing can follow; its ln p; whether it goes on."""
        xp = array_namespace(log_probs_BV)
        chosen_BV = self.strategy.apply(log_probs_BV, read or self._nothing)
        tokens_B = xp.argmax(chosen_BV, axis=-1) if self.is_sure else inverse_transform(chosen_BV, uniforms_B)
        is_possible_B = xp.max(chosen_BV, axis=-1) != -math.inf
        if self.by_logits:
            log_probs_BV = normalised(log_probs_BV)
        scores_B = xp.take_along_axis(log_probs_BV, tokens_B[:, None], axis=-1)[:, 0]
        return self.finish(tokens_B, scores_B, is_possible_B & active_B)

    def finish(self, tokens_B: Array, scores_B: Array, active_B: Array) -> tuple[Array, Array, Array]:
        """The tokens, PAD in rows that have ended; their scores, 0 there; and whether each row goes on."""
        xp = array_namespace(tokens_B)
        stays_B = active_B if self.end is None else active_B & (tokens_B != self.end)
        return xp.where(active_B, tokens_B, PAD), xp.where(active_B, scores_B, 0.0), stays_B

    def _nothing(self) -> Array:
        raise DecodingError(f"{self.strategy!r} asks for the tokens read so far, but says looks_back = False")


def takes_logits(lm: LanguageModel, strategy: Strategy) -> bool:
    """Return True if the strategy is applied to logits: it asks for them, and the model has some."""
    return strategy.on_logits and offered(lm, "next_logits") is not None


def scores_for(lm: LanguageModel, strategy: Strategy, state: State) -> Array:
    """What the strategy is applied to, [B, V]: the logits of the next token, or its ln p."""
    return offered(lm, "next_logits")(state) if takes_logits(lm, strategy) else lm.next_log_probs(state)


def write_steps(
    lm: LanguageModel, state: State, strategy: Strategy, read_BT: Array, uniforms_BT: np.ndarray, end: int | None
) -> tuple[State, Array, Array]:
    """Sample a token for each column of `uniforms_BT`.

    Returns the state afterwards, the tokens, and ln p of each. A row that has ended, or that nothing can follow,
    gets PAD. Nothing here waits for the device.
    """
    choose = Choice(strategy, end, takes_logits(lm, strategy))
    seen_BT = to_numpy(read_BT) if strategy.looks_back else None
    written: tuple[State, Array, Array] | None = ask(lm, "write", state, choose, uniforms_BT, seen_BT)
    if written is not None:
        return written
    new: list[Array] = []
    scores: list[Array] = []
    active_B: Array = True
    for t in range(uniforms_BT.shape[1]):
        from_BV = scores_for(lm, strategy, state)
        read = _all_read(read_BT, new, from_BV)
        tokens_B, scores_B, active_B = choose(from_BV, uniforms_BT[:, t], active_B, read)
        scores.append(scores_B)
        new.append(tokens_B)
        state = lm.extend(state, tokens_B[:, None])
    xp = array_namespace(tokens_B)
    return state, xp.stack(new, axis=1), xp.stack(scores, axis=1)


def _all_read(read_BT: Array, new: Sequence[Array], like: Array) -> Read:
    """A function that returns the ids read and written so far, concatenated only if a strategy calls it."""
    xp = array_namespace(like)
    return lambda: xp.concat([placed_like(read_BT, like), *(n[:, None] for n in new)], axis=1)
