"""Compiled loops that read one token a row through a whole Transformer, on one or more threads.

For one token, a matrix product takes microseconds, and so does each call from Python. Here the whole step is one
call. It goes through phases, seven for each block and two at the end: a phase is cut into pieces, and each thread
takes the next piece that is left. So a thread that comes late, or never, holds up nothing. `Block` and
`SelfAttention` say what is computed, step_on_cpu.py calls it. The loops take arrays of single precision, which
torch and the tape both have; weights are taken where they lie. Sums may be added up in another order.

Axes: B rows, D features, N numbers of a product, G heads of keys and values, S positions, K features of a head (of
a product: its inputs), L layers, P phases, V vocabulary, T steps, O operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, njit

from chainrule.system.intrinsics import at_address, fetch_add, prefetch

GELU, GELU_ERF, RELU, RELU2, SWIGLU = range(5)
TEMPERATURE, TOP_K, TOP_P, MIN_P = range(1, 5)
GAIN_1, SHIFT_1, QKV, QKV_BIAS, OUT, OUT_BIAS, GAIN_2, SHIFT_2, UP, UP_BIAS, DOWN, DOWN_BIAS, WEIGHTS = range(13)
"""The columns of the table of a network's weights: the address of each, 0 where there is none."""
HEAD, HEAD_BIAS, EMBEDDING, ADDED = QKV, QKV_BIAS, OUT, OUT_BIAS
"""The same in its last row: the last norm, the head, and the embedding with what is added and its norm."""

_NORM_1, _QKV, _ATTEND, _OUT, _NORM_2, _UP, _DOWN, PHASES = range(8)
_HEAD, _CHOICE, _LAST_NORM = range(PHASES, PHASES + 3)
ENDS = 3
"""Phases before and after those of the blocks."""
_AT_ONCE = 16  # numbers of a product that a thread computes before it looks for more
_LINE = 8  # items of the board that no other item shares a line of the processor's cache with
_TAKEN, _DONE, BOARD = 0, _LINE, 2 * _LINE

_COMPILED: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},  # but NaN stays NaN
}


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
def _position(x_K: Any, design: Any, place: int, positions: Any) -> None:
    """Bring a query or a key to one size and rotate it, if the design says so."""
    size = len(x_K)
    if design.normalises:
        square = np.float32(0)
        for k in range(size):
            square += x_K[k] * x_K[k]
        x_K *= np.float32(1) / np.float32(math.sqrt(square / np.float32(size) + np.float32(design.eps)))
    cos_TI, sin_TI, half = positions.cos_TI, positions.sin_TI, size // 2
    if len(cos_TI):
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
    qkv_N: Any, keys_GSK: Any, values_GSK: Any, group: int, place: int, is_token: bool, design: Any,
    positions: Any, taken_N: Any,
) -> None:  # fmt: skip
    """Write the key and value of a token to the cache, and take the attention of the queries that share them.

    A token that is padding writes nothing.
    """
    size, heads, slopes_H = design.size, design.heads, positions.slopes_H
    shared = heads // design.groups
    key_K = qkv_N[(heads + group) * size : (heads + group + 1) * size]
    _position(key_K, design, place, positions)
    if is_token:
        value = (heads + design.groups + group) * size
        for k in range(size):
            keys_GSK[group, place, k] = key_K[k]
            values_GSK[group, place, k] = qkv_N[value + k]
    weights_S = np.empty(place + 1, np.float32)
    for h in range(group * shared, (group + 1) * shared):
        q_K = qkv_N[h * size : (h + 1) * size]
        _position(q_K, design, place, positions)
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
def _keep_largest(x_V: Any, weights_V: Any, amount: float) -> None:
    """Leave the fewest largest numbers whose weights sum to an amount, the lowest indices among equals; else -inf.

    The bits of a number, as an integer, have its order if those of negative numbers are flipped: so the smallest
    number that stays is found by halving a range of integers.
    """
    bits_V = x_V.view(np.int32)
    low, high = np.int64(-(2**31)), np.int64(2**31)  # what stays is at least `high`
    while high - low > 1:
        middle, above = (low + high) >> 1, 0.0
        for v in range(len(x_V)):
            bits = np.int64(bits_V[v])
            above += weights_V[v] if (bits if bits >= 0 else bits ^ 0x7FFFFFFF) > middle else 0.0
        if above < amount:
            high = middle
        else:
            low = middle
    before = 0.0
    for equal in (False, True):
        for v in range(len(x_V)):
            bits = np.int64(bits_V[v])
            bits = bits if bits >= 0 else bits ^ 0x7FFFFFFF
            if not equal and bits > high:
                before += weights_V[v]
            elif not equal and bits < high:
                x_V[v] = -np.inf
            elif equal and bits == high:
                if before < amount:
                    before += weights_V[v]
                else:
                    x_V[v] = -np.inf


@njit(**_COMPILED)
def _probabilities(x_V: Any, p_V: Any) -> float:
    """p = e^(x - max x); return their sum, which is 0 if nothing is possible."""
    best = np.float64(np.max(x_V))
    total = 0.0
    for v in range(len(x_V)):
        p_V[v] = math.exp(x_V[v] - best) if x_V[v] > -np.inf else 0.0
        total += p_V[v]
    return total


@njit(**_COMPILED)
def _choose(z_V: Any, added_V: Any, codes_O: Any, values_O: Any, uniform: float) -> Any:
    """Return a token by its logits, and its ln p; -1 and 0 if none is possible. See decode/strategies.py.

    The logits are written over. `added` is added to ln p, then come the operations.
    """
    best, total = np.max(z_V), np.float32(0)
    for v in range(len(z_V)):
        total += np.float32(math.exp(z_V[v] - best))
    log_total = best + np.float32(math.log(total))
    if log_total != log_total:
        return 0, log_total  # the caller refuses NaN
    log_probs_V = z_V - log_total
    x_V, p_V = log_probs_V + added_V, np.ones(len(z_V), np.float64)
    for o in range(len(codes_O)):
        code, value, best = codes_O[o], values_O[o], np.max(x_V)
        if code == TEMPERATURE:
            x_V = (x_V - best) / np.float32(value)
        elif code == MIN_P:
            least = np.float32(best + math.log(value))
            for v in range(len(x_V)):
                if x_V[v] < least:
                    x_V[v] = -np.inf
        elif code == TOP_P:
            share = value * (1 - 1e-9) * _probabilities(x_V, p_V)  # 0.5 + 0.3 makes up 0.8, however it is rounded
            _keep_largest(x_V, p_V, share)
        elif value > 1:
            p_V[:] = 1
            _keep_largest(x_V, p_V, value)
        else:
            first = np.argmax(x_V)
            x_V[:first], x_V[first + 1 :] = -np.inf, -np.inf
    passed, threshold = 0.0, uniform * _probabilities(x_V, p_V)
    token = -1
    for v in range(len(x_V)):
        passed += p_V[v]
        if passed > threshold:
            token = v
            break
    return token, log_probs_V[token] if token >= 0 else np.float32(0)


@njit(**_COMPILED)
def _begin(
    b: int, t: int, choice: Any, design: Any, w: Any, place: int, logits_V: Any, is_token_B: Any, x_D: Any
) -> None:
    """Choose the token of a row, if it has not ended; x becomes the embedding at its place."""
    width = len(x_D)
    logits_V[choice.bos] = -np.inf
    token, score = _choose(logits_V, choice.added_V, choice.codes_O, choice.values_O, choice.uniforms_BT[b, t])
    is_token_B[b] = choice.active_B[b] and token >= 0
    choice.active_B[b] = is_token_B[b] and token != choice.end
    if is_token_B[b]:
        choice.tokens_BT[b, t], choice.scores_BT[b, t] = token, score
        x_D[:] = carray(at_address(w[EMBEDDING]), (len(logits_V), width), np.float32)[token]
        x_D *= np.float32(design.scale)
        if w[ADDED]:
            x_D += carray(at_address(w[ADDED]), (place + 1, width), np.float32)[place]
        if design.embedding_norm:
            _normalise(x_D, w[GAIN_2], w[SHIFT_2], design, x_D)


@njit(**_COMPILED)
def read_tokens(
    board_PI: Any, design: Any, weights_LW: Any, positions: Any, choice: Any, room: Any, cache: Any, rows_B: Any
) -> None:
    """Read a token of each row, whose embedding is x: the cache, the features and the row's place go on.

    If there are logits, choose the token by the features first, and do so for each column of random numbers.
    `board` holds zeros for each phase, by which threads that make the same call share the work. The rest are the
    named tuples of step_on_cpu.py.
    """
    x_BD, y_BD, qkv_BN, taken_BN, hidden_BN, logits_BV = room
    keys_LBGSK, values_LBGSK = cache
    features_BD, places_B, is_token_B = rows_B
    rows, width, layers = len(x_BD), x_BD.shape[1], len(weights_LW) - 1
    board_I, phases, chooses = board_PI.reshape(-1), layers * PHASES + ENDS, logits_BV.shape[1] > 0
    for turn in range(len(board_PI)):
        t, phase = turn // phases, turn % phases
        if phase < 2:
            layer, part = layers, (_HEAD if phase == 0 else _CHOICE)
        else:
            layer, part = (phase - 2) // PHASES, (phase - 2) % PHASES
            part = _LAST_NORM if layer == layers else part
        w = weights_LW[layer]
        items, at_once = rows, 1
        if part == _ATTEND:
            items = rows * design.groups
        elif part == _CHOICE:
            items = rows if chooses else 0
        elif part in (_HEAD, _QKV, _OUT, _UP, _DOWN):
            items, at_once = width, _AT_ONCE
            if part == _HEAD:
                items = logits_BV.shape[1]
            elif part == _QKV:
                items = qkv_BN.shape[1]
            elif part == _UP:
                items = design.hidden
        pieces = (items + at_once - 1) // at_once
        while True:
            piece = fetch_add(board_I, turn * BOARD + _TAKEN, 1)
            if piece >= pieces:
                break
            first, last = piece * at_once, min((piece + 1) * at_once, items)
            if part == _HEAD:
                _multiply(features_BD, w[HEAD], w[HEAD_BIAS], width, logits_BV, first, last, False)
            elif part == _CHOICE:
                b = piece
                _begin(b, t, choice, design, w, places_B[b], logits_BV[b], is_token_B, x_BD[b])
            elif part == _NORM_1:
                _normalise(x_BD[piece], w[GAIN_1], w[SHIFT_1], design, y_BD[piece])
            elif part == _QKV:
                _multiply(y_BD, w[QKV], w[QKV_BIAS], width, qkv_BN, first, last, False)
            elif part == _ATTEND:
                b, group = piece // design.groups, piece % design.groups
                _attend_to_cache(
                    qkv_BN[b], keys_LBGSK[layer, b], values_LBGSK[layer, b], group, places_B[b], is_token_B[b],
                    design, positions, taken_BN[b],
                )  # fmt: skip
            elif part == _OUT:
                _multiply(taken_BN, w[OUT], w[OUT_BIAS], taken_BN.shape[1], x_BD, first, last, True)
            elif part == _NORM_2:
                _normalise(x_BD[piece], w[GAIN_2], w[SHIFT_2], design, y_BD[piece])
            elif part == _UP:
                _multiply(y_BD, w[UP], w[UP_BIAS], width, hidden_BN, first, last, False)
                if design.activation == SWIGLU:
                    h = design.hidden
                    _multiply(y_BD, w[UP], w[UP_BIAS], width, hidden_BN, h + first, h + last, False)
                for b in range(rows):
                    _activate(hidden_BN[b], first, last, design)
            elif part == _DOWN:
                _multiply(hidden_BN, w[DOWN], w[DOWN_BIAS], design.hidden, x_BD, first, last, True)
            elif is_token_B[piece]:
                _normalise(x_BD[piece], w[GAIN_1], w[SHIFT_1], design, features_BD[piece])
                places_B[piece] += 1
            fetch_add(board_I, turn * BOARD + _DONE, 1)
        while fetch_add(board_I, turn * BOARD + _DONE, 0) < pieces:
            pass
