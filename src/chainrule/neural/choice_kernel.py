"""Sampling on a GPU in two loops in Triton: the best tokens of each piece of the vocabulary, then the choice.

A chain of strategies that begins by keeping the k best needs to look at few tokens: the k best of all are among the
k best of each piece. `gpu_choice.py` says which chains these are, `decode.sample.Choice` what is computed.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from chainrule.neural.gpu_kernels import normalised

TEMPERATURE, TOP_K, TOP_P = (tl.constexpr(number) for number in (1, 2, 3))  # 4 is MinP


@triton.jit
def best_of_piece(
    logits_ptr, forbidden_ptr, z_ptr, token_ptr, best_ptr, total_ptr, stride, V, bos, k,
    FORBIDDEN: tl.constexpr, PIECE: tl.constexpr, SLOTS: tl.constexpr, BITS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """One piece of a row's logits: its k best and their tokens, in the order of tokens; its part of Σ e^z."""
    if AHEAD:
        gdc_launch_dependents()
        gdc_wait()
    b, piece = tl.program_id(0), tl.program_id(1)
    v = piece * PIECE + tl.arange(0, PIECE)
    z = tl.load(logits_ptr + b.to(tl.int64) * stride + v, mask=v < V, other=-float("inf")).to(tl.float32)
    z = tl.where(v == bos, -float("inf"), z)  # which is context only
    best = tl.max(z, 0)
    total = tl.sum(tl.exp(z - tl.maximum(best, -1e30)), 0)
    row = b * tl.num_programs(1) + piece
    tl.store(best_ptr + row, best)
    tl.store(total_ptr + row, total)
    for i in tl.static_range(FORBIDDEN):
        z = tl.where(v == tl.load(forbidden_ptr + i), -float("inf"), z)
    kept = _reaching_top(z, k, BITS).to(tl.int32)
    place = row * SLOTS + tl.cumsum(kept, 0) - 1
    tl.store(z_ptr + place, z, mask=kept > 0)
    tl.store(token_ptr + place, v, mask=kept > 0)
    slot = tl.arange(0, SLOTS)
    tl.store(z_ptr + row * SLOTS + slot, -float("inf"), mask=slot >= tl.sum(kept, 0))


@triton.jit
def _ordered(x):
    """Whole numbers in the order of the floating-point ones."""
    bits = x.to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _reaching_top(x, k, BITS: tl.constexpr):
    """Which are among the k largest, the first among equals; where only the first BITS of a number are not 0."""
    order = _ordered(x)
    # the largest number that at least k reach, bit by bit
    least, bit = tl.zeros([], tl.uint32), tl.full([], 0x80000000, tl.uint32)
    for _ in range(BITS):
        trial = least | bit
        bit >>= 1
        least = tl.where(tl.sum((order >= trial).to(tl.int32), 0) >= k, trial, least)
    above, equal = order > least, order == least
    if BITS < 32:
        # numbers below 0 are turned around: the rest of their bits are 1
        above, equal = order >> (32 - BITS) > least >> (32 - BITS), order >> (32 - BITS) == least >> (32 - BITS)
    room = k - tl.sum(above.to(tl.int32), 0)
    return above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))


@triton.jit
def _reaching_mass(x, share):
    """Which are in the nucleus: those without `share` of the probability before them, the largest first."""
    order = _ordered(x)
    weight = tl.exp(x.to(tl.float64))
    wanted = share * (1 - 1e-9) * tl.sum(weight, 0)
    # the smallest number above which there is not enough, bit by bit; it is one of ours
    least, bit = tl.zeros([], tl.uint32), tl.full([], 0x80000000, tl.uint32)
    for _ in range(32):
        trial = least | bit
        bit >>= 1
        least = tl.where(tl.sum(tl.where(order >= trial, weight, 0.0), 0) >= wanted, trial, least)
    above, equal = order > least, order == least
    before = tl.sum(tl.where(above, weight, 0.0), 0)
    each = tl.where(equal, weight, 0.0)
    return above | (equal & (before + tl.cumsum(each, 0) - each < wanted))


@triton.jit
def _operate(x, OPERATION: tl.constexpr, value):
    """What one strategy makes of ln p, but for a constant."""
    top = tl.max(x, 0)
    x = tl.where(x > -float("inf"), x - top, -float("inf"))
    if OPERATION == TEMPERATURE:
        return x / value
    if OPERATION == TOP_K:
        kept = _reaching_top(x, value.to(tl.int32), 32)
    elif OPERATION == TOP_P:
        kept = _reaching_mass(x, value)
    else:
        kept = x >= tl.log(value)
    return tl.where(kept, x, -float("inf"))


@triton.jit
def choose(
    z_ptr, token_ptr, best_ptr, total_ptr, values_ptr, uniforms_ptr, going_ptr, column_ptr, lengths_ptr,
    tokens_ptr, scores_ptr, ids_ptr, is_token_ptr, table_ptr, places_ptr, x_ptr, scale, most_steps, window, end,
    PAD: tl.constexpr, OPERATIONS: tl.constexpr, COUNT: tl.constexpr, PIECES: tl.constexpr,
    BLOCK_P: tl.constexpr, SLOTS: tl.constexpr, BITS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_PLACES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """A row's next token, written where tokens and their scores are kept; and the token's vector, x."""
    if AHEAD:
        gdc_launch_dependents()
        gdc_wait()
    b = tl.program_id(0)
    # read by all threads long before one of them writes it
    was_going = tl.load(going_ptr + b) != 0
    p = tl.arange(0, BLOCK_P)
    bests = tl.load(best_ptr + b * PIECES + p, mask=p < PIECES, other=-float("inf"))
    totals = tl.load(total_ptr + b * PIECES + p, mask=p < PIECES, other=0.0)
    highest = tl.max(bests, 0)
    log_total = highest + tl.log(tl.sum(totals * tl.exp(bests - highest), 0))  # ln Σ e^z
    slot = tl.arange(0, BLOCK_P * SLOTS)
    there = slot < PIECES * SLOTS
    z = tl.load(z_ptr + b * PIECES * SLOTS + slot, mask=there, other=-float("inf"))
    x = tl.where(_reaching_top(z, tl.load(values_ptr).to(tl.int32), BITS), z, -float("inf"))
    for i in tl.static_range(1, COUNT):
        x = _operate(x, (OPERATIONS >> (3 * i)) & 7, tl.load(values_ptr + i))
    top = tl.max(x, 0)
    # the first x whose Σ p up to it exceeds u
    weight = tl.where(x > -float("inf"), tl.exp((x - top).to(tl.float64)), 0.0)
    summed = tl.cumsum(weight, 0)
    column = tl.load(column_ptr)
    threshold = tl.load(uniforms_ptr + b * most_steps + column) * tl.sum(weight, 0)
    passed = tl.sum((summed <= threshold).to(tl.int32), 0)
    passed = tl.minimum(passed, tl.max(tl.where(weight > 0, slot, 0), 0))
    goes_on = was_going & (top > -float("inf"))
    token = tl.where(goes_on, tl.load(token_ptr + b * PIECES * SLOTS + passed).to(tl.int64), PAD)
    score = tl.sum(tl.where(slot == passed, z, 0.0), 0) - log_total
    tl.store(tokens_ptr + b * most_steps + column, token)
    tl.store(scores_ptr + b * most_steps + column, tl.where(goes_on, score, 0.0))
    tl.store(going_ptr + b, goes_on & (token != end))
    tl.store(is_token_ptr + b, goes_on)
    length = tl.load(lengths_ptr + b)
    row = tl.maximum(token, 0)
    tl.store(ids_ptr + b.to(tl.int64) * window + length, row)
    # x⁰ = E[id] + position
    d = tl.arange(0, BLOCK_D)
    vector = tl.load(table_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32) * scale
    if HAS_PLACES:
        vector += tl.load(places_ptr + length * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(x_ptr + b * D + d, vector.to(x_ptr.dtype.element_ty), mask=d < D)


@triton.jit
def finish(
    x_ptr, gain_ptr, shift_ptr, is_token_ptr, features_ptr, lengths_ptr, column_ptr, eps,
    D: tl.constexpr, BLOCK_D: tl.constexpr, NORM: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_SHIFT: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """The features of a row that read a token, normalised, and its new length; the others stay as they were."""
    if AHEAD:
        gdc_launch_dependents()
        gdc_wait()
    b = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    is_token = tl.load(is_token_ptr + b) != 0
    x = tl.load(x_ptr + b * D + d, mask=d < D, other=0.0).to(tl.float32)
    x = normalised(x, gain_ptr, shift_ptr, eps, d, D, NORM, HAS_GAIN, HAS_SHIFT)
    tl.store(features_ptr + b * D + d, x.to(features_ptr.dtype.element_ty), mask=(d < D) & is_token)
    tl.store(lengths_ptr + b, tl.load(lengths_ptr + b) + is_token.to(tl.int64))
    if b == 0:
        tl.store(column_ptr, tl.load(column_ptr) + 1)
