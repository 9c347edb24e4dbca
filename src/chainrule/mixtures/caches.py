"""Caches: the tokens that were read lately, as a distribution over the next one.

The last n ≤ N tokens x_i of a text have weights a_i that sum to one. With one more token that is spread evenly over
the V - 1 tokens that can be predicted, so that an empty cache is a distribution too,

    p(w) = (n Σ_{i: x_i = w} a_i + 1 / (V - 1)) / (n + 1)

A unigram cache (Kuhn and De Mori 1990) has a_i = 1 / n. A continuous cache (Grave and others 2017) looks for
contexts like the present one: with h_i, the features from which a network predicted x_i, and h, the present ones,

    a_i = exp(θ h · h_i) / Σ_j exp(θ h · h_j)

so that a unigram cache is a continuous one with θ = 0, and has a faster way of its own: counting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, Array, array_namespace, impossible, placed_like, to_numpy
from chainrule.contract.lm import State

Ints = NDArray[np.int64]

_PRODUCTS = 1 << 26  # the most numbers of a matrix of likenesses
_NEVER = -1e30  # a logit so low that its power of e is 0; -inf would make NaN where nothing is in the cache


@dataclass(frozen=True)
class CacheState(State):
    """The tokens in the cache, and for a continuous cache the features from which each of them was predicted."""

    ids_BN: Ints
    """The tokens, with PAD at the left of shorter rows."""
    keys_BND: Array | None = None

    def __len__(self) -> int:
        return len(self.ids_BN)

    def select(self, rows: Array) -> CacheState:
        rows_B = np.asarray(to_numpy(rows), dtype=np.int64)
        if self.keys_BND is None:
            return CacheState(self.ids_BN[rows_B])
        return CacheState(self.ids_BN[rows_B], self.keys_BND[placed_like(rows_B, self.keys_BND)])

    def join(self, other: CacheState) -> CacheState:
        width = max(self.ids_BN.shape[1], other.ids_BN.shape[1])
        mine, theirs = self._widened(width), other._widened(width)
        ids_BN = np.concatenate([mine.ids_BN, theirs.ids_BN])
        if mine.keys_BND is None or theirs.keys_BND is None:
            return CacheState(ids_BN)
        return CacheState(ids_BN, array_namespace(mine.keys_BND).concat([mine.keys_BND, theirs.keys_BND]))

    def _widened(self, width: int) -> CacheState:
        rows, more = len(self), width - self.ids_BN.shape[1]
        ids_BN = np.concatenate([np.full((rows, more), PAD, dtype=np.int64), self.ids_BN], axis=1)
        if self.keys_BND is None or not more:
            return replace(self, ids_BN=ids_BN)
        keys = self.keys_BND
        xp = array_namespace(keys)
        nothing = xp.zeros((rows, more, keys.shape[2]), dtype=keys.dtype, device=keys.device)
        return CacheState(ids_BN, xp.concat([nothing, keys], axis=1))


@dataclass(frozen=True)
class Cache:
    """A cache of the last `size` tokens of each text."""

    size: int
    vocab_size: int
    bos: int
    of: int | None = None
    """The number of the model whose features are the keys of a continuous cache; None: a unigram cache."""
    theta: float = 0.0

    @property
    def is_continuous(self) -> bool:
        """Return True for a continuous cache, which has keys."""
        return self.of is not None

    def start(self, batch_size: int, features_BD: Array | None) -> CacheState:
        """Return the empty cache; a continuous one needs `features_BD`, any features of its network."""
        ids_BN = np.zeros((batch_size, 0), dtype=np.int64)
        return CacheState(ids_BN, None if features_BD is None else features_BD[:, None][:, :0])

    def extend(self, state: CacheState, ids_BT: Array, keys_BTD: Array | None) -> CacheState:
        """Return the cache with more tokens, and without those beyond its size."""
        ids_BT = np.asarray(to_numpy(ids_BT), dtype=np.int64)
        ids_BN, keys = np.concatenate([state.ids_BN, ids_BT], axis=1), None
        if state.keys_BND is not None and keys_BTD is not None:
            keys = array_namespace(state.keys_BND).concat([state.keys_BND, keys_BTD], axis=1)
        if (ids_BT == PAD).any():  # rows of different lengths: what is in the cache moves to the right
            order_BN = np.argsort(ids_BN != PAD, axis=1, kind="stable")
            ids_BN = np.take_along_axis(ids_BN, order_BN, axis=1)
            if keys is not None:
                rows_B1 = np.arange(len(ids_BN))[:, None]
                keys = keys[placed_like(rows_B1, keys), placed_like(order_BN, keys)]
        width = min(self.size, int((ids_BN != PAD).sum(axis=1).max(initial=0)))
        first = ids_BN.shape[1] - width
        return CacheState(ids_BN[:, first:], None if keys is None else keys[:, first:])

    def scores(self, state: CacheState, ids_BT: Array, features_BTD: Array | None) -> Array:
        """Return ln p of each id, arbitrary at padding; each is predicted from its features in `features_BTD`."""
        if not self.is_continuous:
            return self._count_scores(state, np.asarray(to_numpy(ids_BT), dtype=np.int64))
        assert features_BTD is not None
        return self.attend(state, ids_BT, features_BTD)

    def log_probs(self, state: CacheState, features_BD: Array | None) -> Array:
        """Return ln p of every token, [B, V]; for a continuous cache an array of the network's library."""
        is_token_BN = state.ids_BN != PAD
        n_B = is_token_BN.sum(axis=1)
        if features_BD is None or state.keys_BND is None:
            weights_BN: Array = is_token_BN / np.maximum(n_B, 1)[:, None]
        else:
            weights_BN = self._weights(features_BD[:, None], state.keys_BND, is_token_BN[:, None])[:, 0]
        p_BV = _scattered(weights_BN, np.maximum(state.ids_BN, 0), self.vocab_size)
        xp = array_namespace(p_BV)
        log_probs_BV = self._log_p(p_BV, placed_like(n_B[:, None], p_BV))
        is_bos_V = placed_like(np.arange(self.vocab_size) == self.bos, p_BV)
        return xp.where(is_bos_V, impossible(log_probs_BV), log_probs_BV)

    def _log_p(self, share: Array, n: Array) -> Array:
        """Return ln p of tokens from the sum of their weights in a cache of n tokens."""
        xp = array_namespace(share)
        # p(w) = (n Σ a_i + 1 / (V - 1)) / (n + 1)
        return xp.log((n * share + 1 / (self.vocab_size - 1)) / (n + 1))

    # -- unigram ------------------------------------------------------------------------------------------

    def _count_scores(self, state: CacheState, ids_BT: Ints) -> NDArray[np.float64]:
        text_BT = np.concatenate([state.ids_BN, ids_BT], axis=1)
        rows, places = np.nonzero(text_BT != PAD)
        before_BT = np.zeros(text_BT.shape)
        before_BT[rows, places] = counts_before(text_BT[rows, places], rows, places, self.size)
        known_B1 = (state.ids_BN != PAD).sum(axis=1)[:, None]
        width = state.ids_BN.shape[1]
        n_BT = np.minimum(known_B1 + np.arange(ids_BT.shape[1]), self.size)
        return self._counted(before_BT[:, width:], n_BT)

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> NDArray[np.float64]:
        """Return ln p of every id of concatenated sequences, each with a cache of its own."""
        lengths = ends - starts
        rows = np.repeat(np.arange(len(starts)), lengths)
        places = np.arange(len(ids)) - np.repeat(starts, lengths)
        before = counts_before(np.asarray(ids, dtype=np.int64), rows, places, self.size)
        return self._counted(before, np.minimum(places, self.size))

    def _counted(self, before: NDArray[Any], n: NDArray[Any]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = self._log_p(before / np.maximum(n, 1), n)
        return scores

    # -- continuous ---------------------------------------------------------------------------------------

    def attend(self, state: CacheState, ids_BT: Array, features_BTD: Array) -> Array:
        """Return the `scores` of a continuous cache, with few products for all weights of tokens before each id."""
        assert state.keys_BND is not None
        ids_BT, known = np.asarray(to_numpy(ids_BT), dtype=np.int64), state.ids_BN.shape[1]
        text_BT = np.concatenate([state.ids_BN, ids_BT], axis=1)
        xp = array_namespace(features_BTD)
        keys_BMD = xp.concat([state.keys_BND, features_BTD], axis=1)
        rows, width = ids_BT.shape
        at_once = max(min(_PRODUCTS // (max(rows, 1) * (self.size + 512)), 512), 1)
        on_device, scores = placed_like(text_BT, features_BTD), []
        for first in range(0, width, at_once):
            last = min(first + at_once, width)
            oldest = max(known + first - self.size, 0)
            there_M = np.arange(oldest, known + last)
            here_T1 = known + np.arange(first, last)[:, None]
            near_TM = (there_M < here_T1) & (there_M >= here_T1 - self.size)
            seen_BTM = placed_like(near_TM, on_device)[None] & (on_device[:, None, oldest : known + last] != PAD)
            weights_BTM = self._weights(features_BTD[:, first:last], keys_BMD[:, oldest : known + last], seen_BTM)
            is_it_BTM = (
                on_device[:, None, oldest : known + last] == on_device[:, known + first : known + last, None]
            )
            share_BT = xp.sum(xp.where(is_it_BTM & seen_BTM, weights_BTM, 0.0), axis=-1)
            scores.append(self._log_p(share_BT, xp.sum(xp.astype(seen_BTM, share_BT.dtype), axis=-1)))
        return xp.concat(scores, axis=1) if scores else features_BTD[:, :, 0]

    def _weights(self, queries_BTD: Array, keys_BMD: Array, seen_BTM: Array) -> Array:
        """Return the weights a_i of the tokens in the cache; arbitrary numbers at PAD."""
        xp = array_namespace(queries_BTD)
        wide = xp.float64 if "float64" in str(queries_BTD.dtype) else xp.float32
        # θ h · h_i
        alike_BTM = self.theta * (xp.astype(queries_BTD, wide) @ xp.matrix_transpose(xp.astype(keys_BMD, wide)))
        if not alike_BTM.shape[-1]:
            return alike_BTM
        alike_BTM = xp.where(placed_like(seen_BTM, alike_BTM), alike_BTM, _NEVER)
        powers_BTM = xp.exp(alike_BTM - xp.max(alike_BTM, axis=-1, keepdims=True))
        return powers_BTM / xp.sum(powers_BTM, axis=-1, keepdims=True)


def counts_before(tokens: Ints, rows: Ints, places: Ints, size: int) -> Ints:
    """Count how often each token stands among the `size` tokens before it in its row.

    One sort finds all: where tokens are sorted by row, token and place, equal ones stand side by side.
    """
    if not len(tokens):
        return np.zeros(0, dtype=np.int64)
    # keys of other tokens are more than `size` away, so that no count reaches over to them
    stride = int(places.max()) + size + 1
    keys = (rows * (int(tokens.max()) + 1) + tokens) * stride + places
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    counts = np.empty(len(keys), dtype=np.int64)
    counts[order] = np.arange(len(keys)) - np.searchsorted(ranked, ranked - size)
    return counts


def _scattered(weights_BN: Array, ids_BN: Ints, vocab_size: int) -> Array:
    """Return the sum of the weights of each token, [B, V]."""
    rows = len(ids_BN)
    if isinstance(weights_BN, np.ndarray):
        sums_BV = np.zeros((rows, vocab_size), dtype=weights_BN.dtype)
        np.add.at(sums_BV, (np.arange(rows)[:, None], ids_BN), weights_BN)
        return sums_BV
    return weights_BN.new_zeros(rows, vocab_size).scatter_add(1, placed_like(ids_BN, weights_BN), weights_BN)
