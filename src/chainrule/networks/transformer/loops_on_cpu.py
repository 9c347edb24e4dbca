"""Compiled loops for reading one token a row on a CPU: what lies between a Transformer's matrix products.

For one token, a product takes microseconds, and so does each of the thirty small operations of a block around its
four products. Here these are three loops: x + f, normalised; heads, normalised and rotated, and written to the
cache; and attention. `Block` and `SelfAttention` say what is computed, step_on_cpu.py puts it together. The
loops take NumPy's arrays of single precision, which torch and the tape both have. Sums may be added up in another
order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_COMPILED: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},  # but NaN stays NaN
}


@njit(**_COMPILED)  # it is over before another thread could have taken the interpreter lock and given it back
def add_and_normalise(
    x_BD: Any, added_BD: Any, y_BD: Any, gain_D: Any, shift_D: Any, eps: float, is_layernorm: bool
) -> None:
    """x = x + added, in place, if there are rows in `added`; y = Norm(x)."""
    width = x_BD.shape[1]
    for b in range(len(x_BD)):
        x_D, y_D = x_BD[b], y_BD[b]
        if len(added_BD):
            x_D += added_BD[b]
        mean = np.float32(0)
        if is_layernorm:
            for d in range(width):
                mean += x_D[d]
            mean /= np.float32(width)
        square = np.float32(0)
        for d in range(width):
            square += (x_D[d] - mean) * (x_D[d] - mean)
        scale = np.float32(1) / np.float32(math.sqrt(square / np.float32(width) + np.float32(eps)))
        for d in range(width):
            y_D[d] = (x_D[d] - mean) * scale
        if len(gain_D):
            y_D *= gain_D
        if len(shift_D):
            y_D += shift_D


@njit(**_COMPILED)
def _attend(q_K: Any, keys_SK: Any, values_SK: Any, span: int, slope: float, weights_S: Any, taken_K: Any) -> None:
    """softmax(K q / sqrt(d_k) - slope * distance) V over the first `span` positions."""
    scale = np.float32(1) / np.float32(math.sqrt(len(q_K)))
    best = np.float32(-np.inf)
    for s in range(span):
        score = np.float32(0)
        for k in range(len(q_K)):
            score += q_K[k] * keys_SK[s, k]
        weights_S[s] = score * scale - slope * np.float32(span - 1 - s)
        best = max(best, weights_S[s])
    total = np.float32(0)
    taken_K[:] = 0
    for s in range(span):
        weight = np.float32(math.exp(weights_S[s] - best))
        total += weight
        for k in range(len(q_K)):
            taken_K[k] += weight * values_SK[s, k]
    taken_K /= total


@njit(**_COMPILED, nogil=True)
def attend_to_cache(
    qkv_BN: Any, keys_BGSK: Any, values_BGSK: Any, places_B: Any, is_token_B: Any, cos_TI: Any, sin_TI: Any,
    slopes_H: Any, eps: float, normalises: bool, taken_BN: Any, heads: int,
) -> None:  # fmt: skip
    """Write the key and value of a token of each row to the cache, and take the attention of its queries.

    A row whose token is padding writes nothing. `normalises`: queries and keys are brought to one size. If
    positions are rotary, `cos` and `sin` have a row for each of them, and a column for each pair of features.
    """
    groups, size = keys_BGSK.shape[1], keys_BGSK.shape[3]
    half, shared = size // 2, heads // groups
    weights_S = np.empty(keys_BGSK.shape[2], np.float32)
    for b in range(len(qkv_BN)):
        place = places_B[b]
        for h in range(heads + groups):
            x_K = qkv_BN[b, h * size : (h + 1) * size]
            if normalises:
                square = np.float32(0)
                for k in range(size):
                    square += x_K[k] * x_K[k]
                x_K *= np.float32(1) / np.float32(math.sqrt(square / np.float32(size) + eps))
            if len(cos_TI):
                for i in range(half):
                    first, second = x_K[i], x_K[half + i]
                    cos, sin = cos_TI[place, i], sin_TI[place, i]
                    x_K[i], x_K[half + i] = first * cos - second * sin, second * cos + first * sin
        if is_token_B[b]:
            for g in range(groups):
                for k in range(size):
                    keys_BGSK[b, g, place, k] = qkv_BN[b, (heads + g) * size + k]
                    values_BGSK[b, g, place, k] = qkv_BN[b, (heads + groups + g) * size + k]
        for h in range(heads):
            _attend(
                qkv_BN[b, h * size : (h + 1) * size], keys_BGSK[b, h // shared], values_BGSK[b, h // shared],
                place + 1, slopes_H[h] if len(slopes_H) else np.float32(0), weights_S,
                taken_BN[b, h * size : (h + 1) * size],
            )  # fmt: skip
