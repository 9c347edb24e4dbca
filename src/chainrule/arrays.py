"""Arrays of NumPy or torch, and batches of sequences made of them.

A batch is one integer array [B, T]; rows shorter than the longest are filled up on the right with PAD, which is not
a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from chainrule.errors import ModelError

Array: TypeAlias = Any
"""An array of the Array API standard: numpy.ndarray or torch.Tensor."""

PAD = -1

TOKENS_AT_ONCE = 1 << 18
"""The most tokens that are scored in one batch."""

_PIECE = 256
_MOST_PADDED = 1.2  # the most cells of a batch, padding included, per token


def array_namespace(*arrays: Array) -> Any:
    """Return the functions for these arrays, named as in the Array API standard.

    NumPy follows the standard by itself; array-api-compat would import all of NumPy for it, which takes 0.15 s.

    >>> array_namespace(np.zeros(3)).__name__
    'numpy'
    """
    is_numpy = all(isinstance(array, np.ndarray | np.generic) for array in arrays)
    return np if is_numpy else array_api_compat.array_namespace(*arrays)


def batches(lengths: np.ndarray, most: int = TOKENS_AT_ONCE) -> Iterator[np.ndarray]:
    """Yield the indices of rows in batches of similar lengths, with little padding unless a batch is small."""
    order = np.argsort(lengths, kind="stable")
    widths = lengths[order]
    ends = np.cumsum(widths)
    first = 0
    while first < len(order):
        size = len(order) - first
        before = int(ends[first - 1]) if first else 0
        while size > 1:
            last = first + size - 1  # the last of a batch is its longest, and sets its width
            area, tokens = size * int(widths[last]), int(ends[last]) - before
            if area <= most // 16 or area <= min(most, _MOST_PADDED * tokens):
                break
            size -= max(1, size // 8)
        yield order[first : first + size]
        first += size


def checked(log_probs: np.ndarray, *, normalised: bool = True) -> np.ndarray:
    """Return ln p in double precision. NaN is an error; so is a probability above one, if they are normalised."""
    wide = log_probs.astype(np.float64, copy=False)
    if not (wide <= (1e-3 if normalised else np.inf)).all():  # NaN compares false; a little above 0 is rounding
        raise ModelError("the model gives NaN or a probability above one: its weights or its code are wrong")
    return wide


def refuse_nan(log_probs: Any) -> None:
    """Raise an error if one of the numbers is NaN."""
    if np.isnan(log_probs).any():
        raise ModelError("the model gives NaN: something in it has gone wrong")


def check_ids(ids_BT: Array, vocab_size: int) -> None:
    """Refuse an array that is not a batch of ids of the vocabulary; a wrong id would be scored as another token."""
    if len(ids_BT.shape) != 2:
        raise ValueError(f"a batch of ids has the shape [B, T], not {list(ids_BT.shape)}: one row is ids[None]")
    if math.prod(ids_BT.shape) and not (ids_BT.min() >= PAD and ids_BT.max() < vocab_size):
        raise ValueError(
            f"ids go from 0 to {vocab_size - 1}, or are PAD ({PAD}): found {ids_BT.min()} to {ids_BT.max()}"
        )


def pad(rows: Sequence[Iterable[int]]) -> np.ndarray:
    """Return rows of ids as one array [B, T], filled up with PAD.

    >>> pad([[3, 4, 5], [6]])
    array([[ 3,  4,  5],
           [ 6, -1, -1]])
    """
    lists = [np.asarray(row, dtype=np.int64) for row in rows]
    ids_BT = np.full((len(lists), max((len(row) for row in lists), default=0)), PAD, dtype=np.int64)
    for i, row in enumerate(lists):
        ids_BT[i, : len(row)] = row
    return ids_BT


def to_numpy(array: Array) -> np.ndarray:
    """Return the array as a NumPy array, copied from its device if necessary.

    >>> to_numpy(np.float32([1, 2]))
    array([1., 2.], dtype=float32)
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, str):
        raise TypeError("expected an array of ids, found text: chainrule.score(model, text) takes text")
    array = array.detach().cpu()
    # NumPy has no bfloat16
    return np.asarray(array.float() if "bfloat16" in str(array.dtype) else array)


def inverse_transform(log_probs_BV: Array, uniforms_B: Array) -> Array:
    """Draw a token for each row by inverse transform: the first x with Σ_{y<=x} p(y) > u; 0 if none is possible."""
    xp = array_namespace(log_probs_BV)
    wide_BV = xp.astype(log_probs_BV, xp.float64)
    best_B1 = xp.max(wide_BV, axis=-1, keepdims=True)
    # a row without a possible token is all -inf; subtracting -inf would make it NaN
    shifted_BV = wide_BV - xp.where(best_B1 == -math.inf, 0.0, best_B1)
    cumulative_BV = cumulative_sum(xp.exp(shifted_BV))
    total_B1 = cumulative_BV[:, -1:]
    threshold_B1 = xp.asarray(uniforms_B, device=wide_BV.device)[:, None] * total_B1
    passed_BV = (cumulative_BV <= threshold_B1) & (total_B1 > 0)
    return xp.sum(xp.astype(passed_BV, xp.int64), axis=-1)


def cumulative_sum(values_BN: Array) -> Array:
    """Return the running sums of each row.

    A GPU adds up a long row with only one of its processors: it is faster to add up pieces of the row, and then the
    sums of the pieces.
    """
    xp = array_namespace(values_BN)
    if isinstance(values_BN, np.ndarray) or values_BN.shape[-1] < 4 * _PIECE:
        return xp.cumulative_sum(values_BN, axis=-1)
    rows, size = values_BN.shape
    whole = size // _PIECE * _PIECE
    pieces = xp.cumulative_sum(xp.reshape(values_BN[:, :whole], (rows, -1, _PIECE)), axis=-1)
    before = xp.cumulative_sum(pieces[:, :, -1], axis=-1)
    pieces = xp.concat([pieces[:, :1], pieces[:, 1:] + before[:, :-1, None]], axis=1)
    rest = xp.cumulative_sum(values_BN[:, whole:], axis=-1) + before[:, -1:]
    return xp.concat([xp.reshape(pieces, (rows, whole)), rest], axis=-1)


def without(log_probs: Array, tokens: Sequence[int]) -> Array:
    """Return ln p with the probability of these tokens, along the last axis, set to 0."""
    if not len(tokens):
        return log_probs
    xp = array_namespace(log_probs)
    every_V = xp.arange(log_probs.shape[-1], device=log_probs.device)
    is_one_V = every_V == tokens[0]
    for token in tokens[1:]:
        is_one_V = is_one_V | (every_V == token)
    return xp.where(is_one_V, impossible(log_probs), log_probs)


def placed_like(array: Array, other: Array) -> Array:
    """Return an array in the library and on the device of another; one that is there already stays as it is."""
    return array_namespace(other).asarray(array, device=other.device)


def impossible(like: Array) -> Array:
    """Return -inf in the type and on the device of an array."""
    xp = array_namespace(like)
    return xp.full((), -math.inf, dtype=like.dtype, device=like.device)
