"""Fast paths: what a language model may offer beside the contract, and the one place that chooses.

Each fast path is a protocol of one method. A model that has the method offers the fast path; the function of the
same subject below takes it, or the plain way over the contract where the model has none or the method answers None
(another device, a text too short to be worth it). Callers use these functions and never ask a model what it is.
A law in `chainrule.testing` holds each fast path equal to its plain way.

    protocol          method            plain way
    ScoresText        score_text        encode the text, then score its sequences
    ScoresSequences   score_sequences   `score` batches of sequences of like length
    Reads             read              `score`, then `extend`
    Draws             draw              the inverse transform over `next_log_probs`
    Writes            write             choose and `extend`, token by token (decode/sample.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, batches, inverse_transform, to_numpy, without
from chainrule.tokens.base import encode_in_parallel

if TYPE_CHECKING:
    from chainrule.lm import LanguageModel, State

_BULK_PIECE = 1 << 20
_PIECE = 1 << 14  # tokens; a network gains nothing from more at once, and a progress bar moves


@runtime_checkable
class ScoresText(Protocol):
    """Scores text without showing its ids: encoding and scoring can then overlap."""

    def score_text(self, block: bytes) -> np.ndarray | None:
        """ln p of every token of a text in UTF-8 whose lines end in LF; None: take the plain way."""


@runtime_checkable
class ScoresSequences(Protocol):
    """Scores many sequences of ids that lie one after the other, without making batches of them."""

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        """ln p of every id; a sequence begins at each start and ends at its end. None: take the plain way."""


@runtime_checkable
class Reads(Protocol):
    """Scores tokens and reads them in one pass."""

    def read(self, state: Any, ids_BT: Array) -> tuple[Array, Any] | None:
        """What `score` returns for the ids from the state, and what `extend` returns. None: take the plain way."""


@runtime_checkable
class Draws(Protocol):
    """Draws a next token without computing the probability of every token."""

    def draw(self, state: Any, uniforms_B: Array, forbid: Sequence[int]) -> tuple[Array, Array] | None:
        """As the function `draw` below. None: take the plain way."""


class Choose(Protocol):
    """How the next token is chosen: a hashable function of arrays, so that it can be compiled or recorded."""

    @property
    def end(self) -> int | None:
        """The token that ends a row; None if nothing does."""

    @property
    def operations(self) -> tuple[tuple[str, Any], ...] | None:
        """The choice as named operations on ln p with their values, then a draw; None if it is something else.

        The names are forbid (a tuple of tokens), temperature, top_k, top_p and min_p.
        """

    def __call__(self, log_probs_BV: Array, uniforms_B: Array, going_B: Array) -> tuple[Array, Array, Array]:
        """Tokens [B], PAD where a row has ended; their ln p; and which rows go on."""


@runtime_checkable
class Writes(Protocol):
    """Writes several tokens a row by itself, without the host in between."""

    def write(self, state: Any, choose: Choose, uniforms_BT: np.ndarray) -> tuple[Any, Array, Array] | None:
        """The state after as many tokens as there are columns, tokens_BT, and ln p of each. None: the plain way."""


def score_text(lm: LanguageModel, block: bytes) -> np.ndarray:
    """ln p of every token of a text in UTF-8 whose lines end in LF."""
    if isinstance(lm, ScoresText) and (scores := lm.score_text(block)) is not None:
        return scores
    ids = encode_in_parallel(lm.tokenizer, block)
    return score_sequences(lm, ids, *lm.bounds(ids))


def score_sequences(lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """ln p of every id of sequences that lie one after the other, each from a start to its end."""
    if isinstance(lm, ScoresSequences) and (scores := lm.score_sequences(ids, starts, ends)) is not None:
        return scores
    scores = np.empty(len(ids))
    for places, some in _in_batches(lm, ids, starts, ends):
        scores[places] = some
    return scores


def _in_batches(
    lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of sequences of like length: the indices of their tokens in `ids`, and ln p of those tokens."""
    for rows in batches(ends - starts):
        lengths = ends[rows] - starts[rows]
        # the indices of one row after the other: from its start on
        places = np.arange(lengths.sum()) + np.repeat(starts[rows] - (np.cumsum(lengths) - lengths), lengths)
        inside_BT = np.arange(lengths.max()) < lengths[:, None]
        ids_BT = np.full(inside_BT.shape, PAD, dtype=np.int64)
        ids_BT[inside_BT] = ids[places]
        yield places, to_numpy(lm.score(ids_BT))[inside_BT]


def tokens_at_once(lm: LanguageModel) -> int:
    """How many tokens of a long text to score in one call, so that the call is fast and progress can be shown."""
    return _BULK_PIECE if isinstance(lm, ScoresSequences) else _PIECE


def read(lm: LanguageModel, state: State, ids_BT: Array) -> tuple[Array, State]:
    """What `score` returns for the ids from the state, and the state after them."""
    if isinstance(lm, Reads) and (found := lm.read(state, ids_BT)) is not None:
        return found
    return lm.score(ids_BT, state), lm.extend(state, ids_BT)


def draw(lm: LanguageModel, state: State, uniforms_B: Array, forbid: Sequence[int] = ()) -> tuple[Array, Array]:
    """A next token x ~ p(x | prefix) for each row, none of the forbidden ones, and its ln p.

    Chance comes in as a number of [0, 1) for each row. ln p = -inf means that no token can follow.
    """
    if isinstance(lm, Draws) and (found := lm.draw(state, uniforms_B, forbid)) is not None:
        return found
    log_probs_BV = lm.next_log_probs(state)
    ids_B = inverse_transform(without(log_probs_BV, forbid), uniforms_B)
    xp = array_namespace(log_probs_BV)
    scores_B = xp.take_along_axis(log_probs_BV, ids_B[:, None], axis=-1)[:, 0]
    is_forbidden_B = xp.any(ids_B[:, None] == xp.asarray([*forbid, PAD], device=ids_B.device), axis=1)
    is_nan_B = scores_B != scores_B
    return ids_B, xp.where(is_forbidden_B & ~is_nan_B, -xp.inf, scores_B)


def write(
    lm: LanguageModel, state: State, choose: Choose, uniforms_BT: np.ndarray
) -> tuple[State, Array, Array] | None:
    """Several tokens a row by the model itself: state, tokens_BT and ln p; None if it does not offer that here."""
    return lm.write(state, choose, uniforms_BT) if isinstance(lm, Writes) else None
