"""Compiled loops that read one token a row through a whole Transformer, on one or more threads.

For one token, a matrix product takes microseconds, and so does each call from Python. Here the whole step is one
call. It goes through phases, seven for each block and two at the end: a phase is cut into pieces, and each thread
takes the next piece that is left. So a thread that comes late, or never, holds up nothing. `Block` and
`SelfAttention` say what is computed, step_on_cpu.py calls it. The loops take arrays of single precision, which
torch and the tape both have; weights are taken where they lie. Sums may be added up in another order.

Axes: B rows, D features, N numbers of a product, G heads of keys and values, S positions, K features of a head (of
a product: its inputs), L layers, P phases.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit

from chainrule.system.intrinsics import at_address, fetch_add, prefetch

GELU, GELU_ERF, RELU, RELU2, SWIGLU = range(5)
GAIN_1, SHIFT_1, QKV, QKV_BIAS, OUT, OUT_BIAS, GAIN_2, SHIFT_2, UP, UP_BIAS, DOWN, DOWN_BIAS, WEIGHTS = range(13)
"""The columns of the table of a network's weights: the address of each, 0 where there is none."""

_NORM_1, _QKV, _ATTEND, _OUT, _NORM_2, _UP, _DOWN, PHASES = range(8)
_AT_ONCE = 16  # numbers of a product that a thread computes before it looks for more
_LINE = 8  # items of the board that no other item shares a line of the processor's cache with
_TAKEN, _DONE, BOARD = 0, _LINE, 2 * _LINE

_COMPILED: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},  # but NaN stays NaN
}


class Design(NamedTuple):
    """What the loops know of a network's design."""

    heads: int
    groups: int
    size: int
    """The features of a head."""
    hidden: int
    activation: int
    is_layernorm: bool
    normalises: bool
    """True if queries and keys are brought to one size."""
    eps: float


@njit(**_COMPILED)
def _vector(address: int, size: int) -> Any:
    """A vector where it lies; an empty one if there is none."""
    return carray(at_address(address), (size if address else 0,), np.float32)


@njit(**_COMPILED)
def _multiply(x_BK: Any, weight: int, bias: int, inputs: int, y_BN: Any, first: int, last: int, adds: bool) -> None:
    """y = x Wᵀ + b for the numbers from `first` to `last`, or that is added to y; memory is read once."""
    w = carray(at_address(weight), (last * inputs,), np.float32)
    bias_N = _vector(bias, last)
    rows, size = len(x_BK), inputs
    for b in range(rows):
        if not adds:
            y_BN[b, first:last] = np.float32(0)
        if len(bias_N):
            y_BN[b, first:last] += bias_N[first:last]
    n = first
    while n + 4 <= last:  # four numbers, and four rows if there are: sixteen sums that stay in registers
        w0, w1 = w[n * size : (n + 1) * size], w[(n + 1) * size : (n + 2) * size]
        w2, w3 = w[(n + 2) * size : (n + 3) * size], w[(n + 3) * size : (n + 4) * size]
        b = 0
        while b + 4 <= rows:
            for k in range(0, size, 16):
                prefetch(w, (n + 4 + b // 4) * size + k)
            x0, x1, x2, x3 = x_BK[b], x_BK[b + 1], x_BK[b + 2], x_BK[b + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = np.float32(0)
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = np.float32(0)
            for k in range(size):
                v0, v1, v2, v3 = w0[k], w1[k], w2[k], w3[k]
                x = x0[k]
                s00 += v0 * x
                s01 += v1 * x
                s02 += v2 * x
                s03 += v3 * x
                x = x1[k]
                s10 += v0 * x
                s11 += v1 * x
                s12 += v2 * x
                s13 += v3 * x
                x = x2[k]
                s20 += v0 * x
                s21 += v1 * x
                s22 += v2 * x
                s23 += v3 * x
                x = x3[k]
                s30 += v0 * x
                s31 += v1 * x
                s32 += v2 * x
                s33 += v3 * x
            _add_four(y_BN[b], n, s00, s01, s02, s03)
            _add_four(y_BN[b + 1], n, s10, s11, s12, s13)
            _add_four(y_BN[b + 2], n, s20, s21, s22, s23)
            _add_four(y_BN[b + 3], n, s30, s31, s32, s33)
            b += 4
        while b < rows:
            x_K = x_BK[b]
            s0 = s1 = s2 = s3 = np.float32(0)
            for k in range(size):
                x = x_K[k]
                s0 += w0[k] * x
                s1 += w1[k] * x
                s2 += w2[k] * x
                s3 += w3[k] * x
            _add_four(y_BN[b], n, s0, s1, s2, s3)
            b += 1
        n += 4
    while n < last:
        for b in range(rows):
            total = np.float32(0)
            for k in range(size):
                total += w[n * size + k] * x_BK[b, k]
            y_BN[b, n] += total
        n += 1


@njit(**_COMPILED)
def _add_four(y_N: Any, n: int, s0: Any, s1: Any, s2: Any, s3: Any) -> None:
    y_N[n] += s0
    y_N[n + 1] += s1
    y_N[n + 2] += s2
    y_N[n + 3] += s3


@njit(**_COMPILED)
def _normalise(x_D: Any, gain: int, shift: int, design: Any, y_D: Any) -> None:
    """y = Norm(x)."""
    width = len(x_D)
    mean = np.float32(0)
    if design.is_layernorm:
        for d in range(width):
            mean += x_D[d]
        mean /= np.float32(width)
    square = np.float32(0)
    for d in range(width):
        square += (x_D[d] - mean) * (x_D[d] - mean)
    scale = np.float32(1) / np.float32(math.sqrt(square / np.float32(width) + np.float32(design.eps)))
    for d in range(width):
        y_D[d] = (x_D[d] - mean) * scale
    gain_D, shift_D = _vector(gain, width), _vector(shift, width)
    if len(gain_D):
        y_D *= gain_D
    if len(shift_D):
        y_D += shift_D


@njit(**_COMPILED)
def _position(x_K: Any, design: Any, place: int, cos_TI: Any, sin_TI: Any) -> None:
    """Bring a query or a key to one size and rotate it, if the design says so."""
    size = len(x_K)
    if design.normalises:
        square = np.float32(0)
        for k in range(size):
            square += x_K[k] * x_K[k]
        x_K *= np.float32(1) / np.float32(math.sqrt(square / np.float32(size) + np.float32(design.eps)))
    if len(cos_TI):
        half = size // 2
        for i in range(half):
            first, second = x_K[i], x_K[half + i]
            cos, sin = cos_TI[place, i], sin_TI[place, i]
            x_K[i], x_K[half + i] = first * cos - second * sin, second * cos + first * sin


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


@njit(**_COMPILED)
def _attend_to_cache(
    qkv_N: Any, keys_GSK: Any, values_GSK: Any, group: int, place: int, is_token: bool, design: Any, cos_TI: Any,
    sin_TI: Any, slopes_H: Any, taken_N: Any,
) -> None:  # fmt: skip
    """Write the key and value of a token to the cache, and take the attention of the queries that share them.

    A token that is padding writes nothing. If positions are rotary, `cos` and `sin` have a row for each of them,
    and a column for each pair of features.
    """
    size, heads = design.size, design.heads
    shared = heads // design.groups
    key_K = qkv_N[(heads + group) * size : (heads + group + 1) * size]
    _position(key_K, design, place, cos_TI, sin_TI)
    if is_token:
        value = (heads + design.groups + group) * size
        for k in range(size):
            keys_GSK[group, place, k] = key_K[k]
            values_GSK[group, place, k] = qkv_N[value + k]
    weights_S = np.empty(place + 1, np.float32)
    for h in range(group * shared, (group + 1) * shared):
        q_K = qkv_N[h * size : (h + 1) * size]
        _position(q_K, design, place, cos_TI, sin_TI)
        slope = slopes_H[h] if len(slopes_H) else np.float32(0)
        _attend(q_K, keys_GSK[group], values_GSK[group], place + 1, slope, weights_S, taken_N[h * size :][:size])


@njit(**_COMPILED)
def _activate(z_N: Any, first: int, last: int, design: Any) -> None:
    """φ(z), in place; a gate times its input, which stands `hidden` places after it, for swiglu."""
    one, half = np.float32(1), np.float32(0.5)
    for n in range(first, last):
        z = z_N[n]
        if design.activation == SWIGLU:
            z = z / (one + np.float32(math.exp(-z))) * z_N[design.hidden + n]
        elif design.activation == GELU:
            z *= half * (
                one + np.float32(math.tanh(np.float32(0.7978845608028654) * (z + np.float32(0.044715) * z * z * z)))
            )
        elif design.activation == GELU_ERF:
            z *= half * (one + np.float32(math.erf(z * np.float32(0.7071067811865476))))
        else:
            z = z if z > 0 or z != z else np.float32(0)
            if design.activation == RELU2:
                z *= z
        z_N[n] = z


@njit(**_COMPILED)
def read_tokens(
    board_PI: Any, design: Any, weights_LW: Any, x_BD: Any, y_BD: Any, qkv_BN: Any, taken_BN: Any, hidden_BN: Any,
    keys_LBGSK: Any, values_LBGSK: Any, places_B: Any, is_token_B: Any, cos_TI: Any, sin_TI: Any, slopes_H: Any,
) -> None:  # fmt: skip
    """Read a token of each row; y becomes its features, and its keys and values are written to the cache.

    `x` holds the embeddings, `board` zeros for each phase, by which threads that do the same call share the work.
    """
    rows, width, heads_width = len(x_BD), x_BD.shape[1], taken_BN.shape[1]
    board_I = board_PI.reshape(-1)
    for phase in range(len(board_PI)):
        layer, part = phase // PHASES, phase % PHASES
        w = weights_LW[layer]
        if part in (_NORM_1, _NORM_2):
            items, at_once = rows, 1
        elif part == _ATTEND:
            items, at_once = rows * design.groups, 1
        else:
            items, at_once = width, _AT_ONCE
            if part == _QKV:
                items = qkv_BN.shape[1]
            elif part == _UP:
                items = design.hidden
        pieces = (items + at_once - 1) // at_once
        while True:
            piece = fetch_add(board_I, phase * BOARD + _TAKEN, 1)
            if piece >= pieces:
                break
            first, last = piece * at_once, min((piece + 1) * at_once, items)
            if part == _NORM_1:
                _normalise(x_BD[piece], w[GAIN_1], w[SHIFT_1], design, y_BD[piece])
            elif part == _QKV:
                _multiply(y_BD, w[QKV], w[QKV_BIAS], width, qkv_BN, first, last, False)
            elif part == _ATTEND:
                b, group = piece // design.groups, piece % design.groups
                _attend_to_cache(
                    qkv_BN[b], keys_LBGSK[layer, b], values_LBGSK[layer, b], group, places_B[b], is_token_B[b],
                    design, cos_TI, sin_TI, slopes_H, taken_BN[b],
                )  # fmt: skip
            elif part == _OUT:
                _multiply(taken_BN, w[OUT], w[OUT_BIAS], heads_width, x_BD, first, last, True)
            elif part == _NORM_2:
                _normalise(x_BD[piece], w[GAIN_2], w[SHIFT_2], design, y_BD[piece])
            elif part == _UP:
                _multiply(y_BD, w[UP], w[UP_BIAS], width, hidden_BN, first, last, False)
                if design.activation == SWIGLU:
                    h = design.hidden
                    _multiply(y_BD, w[UP], w[UP_BIAS], width, hidden_BN, h + first, h + last, False)
                for b in range(rows):
                    _activate(hidden_BN[b], first, last, design)
            else:
                _multiply(hidden_BN, w[DOWN], w[DOWN_BIAS], design.hidden, x_BD, first, last, True)
            fetch_add(board_I, phase * BOARD + _DONE, 1)
        while fetch_add(board_I, phase * BOARD + _DONE, 0) < pieces:
            pass
