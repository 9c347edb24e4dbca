"""Sampling on a GPU by Triton kernels: the best tokens of each piece of the vocabulary, then the choice among them.

A chain of strategies that begins by keeping the k best needs to look at few tokens: the k best of all are among the
k best of each piece. `choice.py` says which chains these are, `decode.sample.Choice` what is computed. A last
kernel updates features and lengths once the network has read the token.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chainrule.inference.gpu.step_kernels import await_inputs, normalised

TEMPERATURE, TOP_K, TOP_P = (tl.constexpr(number) for number in (1, 2, 3))  # 4 is MinP


@triton.jit
def best_of_piece(
    logits_ptr, forbidden_ptr, z_ptr, token_ptr, best_ptr, total_ptr, stride, V, bos, k,
    FORBIDDEN: tl.constexpr, PIECE: tl.constexpr, SLOTS: tl.constexpr, BITS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Write the k best logits of one piece of a row and their tokens, in the order of tokens; and its Σ e^z."""
    await_inputs(AHEAD)
    b, piece = tl.program_id(0), tl.program_id(1)
    v = piece * PIECE + tl.arange(0, PIECE)
    z = tl.load(logits_ptr + b.to(tl.int64) * stride + v, mask=v < V, other=-float("inf")).to(tl.float32)
    z = tl.where(v == bos, -float("inf"), z)  # <s> is never predicted
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
    """Unsigned integers that are in the same order as the floats x."""
    bits = x.to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _reaching_top(x, k, BITS: tl.constexpr):
    """Return the mask of the k largest floats, the first among equals; all but their upper BITS bits must be 0."""
    order = _ordered(x)
    # the largest threshold that at least k reach, bit by bit
    least, bit = tl.zeros([], tl.uint32), tl.full([], 0x80000000, tl.uint32)
    for _ in range(BITS):
        trial = least | bit
        bit >>= 1
        least = tl.where(tl.sum((order >= trial).to(tl.int32), 0) >= k, trial, least)
    above, equal = order > least, order == least
    if BITS < 32:
        # `_ordered` inverts negative floats, so that their lower bits are 1: only the upper bits are compared
        above, equal = order >> (32 - BITS) > least >> (32 - BITS), order >> (32 - BITS) == least >> (32 - BITS)
    room = k - tl.sum(above.to(tl.int32), 0)
    return above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))


@triton.jit
def _reaching_mass(x, share):
    """Return the mask of the nucleus: the largest x, until the probability of those before one reaches `share`."""
    order = _ordered(x)
    weight = tl.exp(x.to(tl.float64))
    wanted = share * (1 - 1e-9) * tl.sum(weight, 0)
    # the largest threshold above or at which there is enough, bit by bit; it is one of the numbers
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
    """Return ln p after one strategy, up to an additive constant; -∞ where it drops a token."""
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
    kept, buffers, embedding, is_token_ptr, scale, most_steps, window, end, PAD: tl.constexpr,
    OPERATIONS: tl.constexpr, COUNT: tl.constexpr, PIECES: tl.constexpr, BLOCK_P: tl.constexpr, SLOTS: tl.constexpr,
    BITS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, HAS_PLACES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Choose a row's next token; write the token, its score, and its embedding x.

    `kept`, `buffers` and `embedding` are the named tuples KeptTokens, StepBuffers and TokenVectors of choice.py.
    """
    await_inputs(AHEAD)
    b = tl.program_id(0)
    # no race: all threads read this long before one of them writes it
    was_active = tl.load(buffers.active_B + b) != 0
    p = tl.arange(0, BLOCK_P)
    bests = tl.load(kept.best + b * PIECES + p, mask=p < PIECES, other=-float("inf"))
    totals = tl.load(kept.total + b * PIECES + p, mask=p < PIECES, other=0.0)
    highest = tl.max(bests, 0)
    log_total = highest + tl.log(tl.sum(totals * tl.exp(bests - highest), 0))  # ln Σ e^z
    slot = tl.arange(0, BLOCK_P * SLOTS)
    there = slot < PIECES * SLOTS
    z = tl.load(kept.z + b * PIECES * SLOTS + slot, mask=there, other=-float("inf"))
    x = tl.where(_reaching_top(z, tl.load(kept.operands).to(tl.int32), BITS), z, -float("inf"))
    for i in tl.static_range(1, COUNT):
        x = _operate(x, (OPERATIONS >> (3 * i)) & 7, tl.load(kept.operands + i))
    top = tl.max(x, 0)
    # the first x whose Σ p up to it exceeds u
    weight = tl.where(x > -float("inf"), tl.exp((x - top).to(tl.float64)), 0.0)
    summed = tl.cumsum(weight, 0)
    column = tl.load(buffers.column_1)
    threshold = tl.load(buffers.uniforms_BT + b * most_steps + column) * tl.sum(weight, 0)
    passed = tl.sum((summed <= threshold).to(tl.int32), 0)
    passed = tl.minimum(passed, tl.max(tl.where(weight > 0, slot, 0), 0))
    is_possible, any_total = top > -float("inf"), tl.sum(totals, 0)
    is_nan = any_total != any_total
    goes_on = was_active & (is_possible | is_nan)  # NaN goes on, with token 0, so that its score is seen
    token = tl.load(kept.tokens + b * PIECES * SLOTS + passed).to(tl.int64)
    token = tl.where(goes_on, tl.where(is_possible & (is_nan == 0), token, 0), PAD)
    score = tl.sum(tl.where(slot == passed, z, 0.0), 0) - log_total
    tl.store(buffers.tokens_BT + b * most_steps + column, token)
    tl.store(buffers.scores_BT + b * most_steps + column, tl.where(goes_on, score, 0.0))
    tl.store(buffers.active_B + b, goes_on & (token != end))
    tl.store(is_token_ptr + b, goes_on)
    length = tl.load(buffers.lengths_B + b)
    row = tl.maximum(token, 0)
    tl.store(buffers.ids_BW + b.to(tl.int64) * window + length, row)
    # x⁰ = E[id] + position
    d = tl.arange(0, BLOCK_D)
    vector = tl.load(embedding.table + row * D + d, mask=d < D, other=0.0).to(tl.float32) * scale
    if HAS_PLACES:
        vector += tl.load(embedding.places + length * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(embedding.x + b * D + d, vector.to(embedding.x.dtype.element_ty), mask=d < D)


@triton.jit
def finish(
    x_ptr, gain_ptr, shift_ptr, is_token_ptr, features_ptr, lengths_ptr, column_ptr, eps,
    D: tl.constexpr, BLOCK_D: tl.constexpr, NORM: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_SHIFT: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Write the normalised features and the new length of a row that read a token; other rows stay as they were."""
    await_inputs(AHEAD)
    b = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    is_token = tl.load(is_token_ptr + b) != 0
    x = tl.load(x_ptr + b * D + d, mask=d < D, other=0.0).to(tl.float32)
    x = normalised(x, gain_ptr, shift_ptr, eps, d, D, NORM, HAS_GAIN, HAS_SHIFT)
    tl.store(features_ptr + b * D + d, x.to(features_ptr.dtype.element_ty), mask=(d < D) & is_token)
    tl.store(lengths_ptr + b, tl.load(lengths_ptr + b) + is_token.to(tl.int64))
    if b == 0:
        tl.store(column_ptr, tl.load(column_ptr) + 1)
