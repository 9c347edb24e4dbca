"""Sampling on a GPU by Triton kernels: the choice among the best few tokens, or among all of them.

A chain of strategies that begins by keeping the k best needs to look at few tokens: the k best of all are among the
k best of each piece of the vocabulary. For other chains one program per row reads the logits several times, piece
by piece. Top-k, top-p and min-p keep the tokens at least as likely as some other one, so a key to cut at, how many
of the tokens with that key stay, and a floor say which tokens are left.

`choice_plan.py` says which chains the kernels can do, `decode.sample.Choice` what is computed. A last kernel
updates features and lengths once a network has read the token by kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chainrule.inference.gpu.step_kernels import await_inputs, normalised, vector_of_token

TEMPERATURE, TOP_K, TOP_P = (tl.constexpr(number) for number in (1, 2, 3))  # 4 is MinP
NOWHERE = tl.constexpr(1 << 30)


@triton.jit
def best_of_piece(
    logits_ptr, changed_ptr, forbidden_ptr, z_ptr, token_ptr, best_ptr, total_ptr, stride, changed_stride, V, bos,
    k, CHANGED: tl.constexpr, FORBIDDEN: tl.constexpr, PIECE: tl.constexpr, SLOTS: tl.constexpr, BITS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Write the k best logits of one piece of a row and their tokens, in the order of tokens; and its Σ e^z.

    The k best are those of the `changed` logits, after penalties; the sum is that of the model's own.
    """
    await_inputs(AHEAD)
    b, piece = tl.program_id(0), tl.program_id(1)
    v = piece * PIECE + tl.arange(0, PIECE)
    z = _logits(logits_ptr + b.to(tl.int64) * stride, v, V, bos)
    best = tl.max(z, 0)
    total = tl.sum(tl.exp(z - tl.maximum(best, -1e30)), 0)
    row = b * tl.num_programs(1) + piece
    tl.store(best_ptr + row, best)
    tl.store(total_ptr + row, total)
    if CHANGED:
        z = _logits(changed_ptr + b.to(tl.int64) * changed_stride, v, V, bos)
    z = _without(z, v, forbidden_ptr, FORBIDDEN)
    kept = _reaching_top(z, k, BITS).to(tl.int32)
    place = row * SLOTS + tl.cumsum(kept, 0) - 1
    tl.store(z_ptr + place, z, mask=kept > 0)
    tl.store(token_ptr + place, v, mask=kept > 0)
    slot = tl.arange(0, SLOTS)
    tl.store(z_ptr + row * SLOTS + slot, -float("inf"), mask=slot >= tl.sum(kept, 0))


@triton.jit
def _logits(row_ptr, v, V, bos):
    """Load the logits of the tokens v of a row; -∞ behind its end, and for <s>, which is never predicted."""
    z = tl.load(row_ptr + v, mask=v < V, other=-float("inf")).to(tl.float32)
    return tl.where(v == bos, -float("inf"), z)


@triton.jit
def _without(z, v, forbidden_ptr, FORBIDDEN: tl.constexpr):
    """Return the logits with -∞ for the forbidden tokens."""
    for i in tl.static_range(FORBIDDEN):
        z = tl.where(v == tl.load(forbidden_ptr + i), -float("inf"), z)
    return z


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
def choose_from_best(
    logits_ptr, kept, stride, buffers, embedding, is_token_ptr, ids_ptr, end, scale, most_steps, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, EMBEDS: tl.constexpr, HAS_PLACES: tl.constexpr, PAD: tl.constexpr,
    OPERATIONS: tl.constexpr, COUNT: tl.constexpr, PIECES: tl.constexpr, BLOCK_P: tl.constexpr, SLOTS: tl.constexpr,
    BITS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Choose a row's next token among those that `best_of_piece` kept.

    `kept`, `buffers` and `embedding` are the named tuples KeptTokens, StepBuffers and TokenVectors of choice.py.
    """
    await_inputs(AHEAD)
    b = tl.program_id(0)
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
    threshold = _uniform(buffers, b, most_steps) * tl.sum(weight, 0)
    passed = tl.sum((summed <= threshold).to(tl.int32), 0)
    passed = tl.minimum(passed, tl.max(tl.where(weight > 0, slot, 0), 0))
    token = tl.load(kept.tokens + b * PIECES * SLOTS + passed)
    _record(
        logits_ptr, stride, buffers, embedding, is_token_ptr, ids_ptr, token, top > -float("inf"), log_total,
        tl.sum(totals, 0), end, scale, most_steps, window, D, BLOCK_D, EMBEDS, HAS_PLACES, PAD,
    )  # fmt: skip


@triton.jit
def choose_from_all(
    logits_ptr, changed_ptr, forbidden_ptr, operands_ptr, stride, changed_stride, V: tl.constexpr, bos, buffers,
    embedding, is_token_ptr, ids_ptr, end, scale, most_steps, window, D: tl.constexpr, BLOCK_D: tl.constexpr,
    EMBEDS: tl.constexpr, HAS_PLACES: tl.constexpr, PAD: tl.constexpr, OPERATIONS: tl.constexpr,
    COUNT: tl.constexpr, CHANGED: tl.constexpr, FORBIDDEN: tl.constexpr, BLOCK: tl.constexpr, BITS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Choose a row's next token among all tokens.

    A token is left if its key is above `cut`, or equal to it and one of the first `room` such tokens, and if its
    logit is no more than -`floor` below the largest.
    """
    await_inputs(AHEAD)
    b = tl.program_id(0)
    row_ptr = logits_ptr + b.to(tl.int64) * stride
    z_ptr = changed_ptr + b.to(tl.int64) * changed_stride if CHANGED else row_ptr
    bests, tops = tl.full([BLOCK], -float("inf"), tl.float32), tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        z = _logits(row_ptr, v, V, bos)
        bests = tl.maximum(bests, z)
        if CHANGED:
            z = _logits(z_ptr, v, V, bos)
        tops = tl.maximum(tops, _without(z, v, forbidden_ptr, FORBIDDEN))
    highest, top = tl.max(bests, 0), tl.max(tops, 0)
    totals = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        totals += tl.exp(_logits(row_ptr, start + tl.arange(0, BLOCK), V, bos) - tl.maximum(highest, -1e30))
    total = tl.sum(totals, 0)

    temperature, floor = 1.0, -float("inf")
    cut, room = tl.zeros([], tl.uint32), tl.full([], NOWHERE, tl.int32)
    for i in tl.static_range(COUNT):
        value = tl.load(operands_ptr + i)
        if (OPERATIONS >> (3 * i)) & 7 == TEMPERATURE:
            temperature *= value
        elif (OPERATIONS >> (3 * i)) & 7 == TOP_K:
            least, space = _cut_of_top_k(z_ptr, forbidden_ptr, value.to(tl.int32), V, bos, FORBIDDEN, BLOCK, BITS)
            cut, room = _tighter(cut, room, least, space)
        elif (OPERATIONS >> (3 * i)) & 7 == TOP_P:
            least, space = _cut_of_top_p(
                z_ptr, forbidden_ptr, value, cut, room, top, temperature, floor, V, bos, FORBIDDEN, BLOCK, BITS
            )
            cut, room = _tighter(cut, room, least, space)
        else:
            floor = tl.maximum(floor, temperature * tl.log(value))

    mass, equal, many = _mass_from(
        z_ptr, forbidden_ptr, cut, top, temperature, floor, V, bos, FORBIDDEN, BLOCK, BITS
    )
    threshold = _uniform(buffers, b, most_steps) * (mass + equal * tl.minimum(room, many) / tl.maximum(many, 1))
    # the first x whose Σ p up to it exceeds u
    summed, ranked = tl.zeros([], tl.float64), tl.zeros([], tl.int32)
    found, last = tl.full([], NOWHERE, tl.int32), tl.zeros([], tl.int32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        key, weight = _weighed(z_ptr, forbidden_ptr, v, top, temperature, floor, V, bos, FORBIDDEN, BITS)
        if COUNT > 0:
            equal_to_cut = (key == cut).to(tl.int32)
            rank = ranked + tl.cumsum(equal_to_cut, 0)
            weight = tl.where((key > cut) | ((key == cut) & (rank <= room)), weight, 0.0)
            ranked += tl.sum(equal_to_cut, 0)
        passes = (summed + tl.cumsum(weight, 0) > threshold) & (weight > 0)
        found = tl.minimum(found, tl.min(tl.where(passes, v, NOWHERE), 0))
        last = tl.maximum(last, tl.max(tl.where(weight > 0, v, 0), 0))
        summed += tl.sum(weight, 0)
    token = tl.where(found == NOWHERE, last, found)
    _record(
        logits_ptr, stride, buffers, embedding, is_token_ptr, ids_ptr, token, top > -float("inf"),
        highest + tl.log(total), total, end, scale, most_steps, window, D, BLOCK_D, EMBEDS, HAS_PLACES, PAD,
    )  # fmt: skip


@triton.jit
def _cut_of_top_k(
    z_ptr, forbidden_ptr, k, V: tl.constexpr, bos, FORBIDDEN: tl.constexpr, BLOCK: tl.constexpr, BITS: tl.constexpr
):  # fmt: skip
    """Return the largest key that at least k tokens reach, and how many tokens with that key are among the k."""
    least = tl.zeros([], tl.uint32)
    for bit in range(BITS):
        trial = least | (tl.full([], 1, tl.uint32) << (BITS - 1 - bit))
        least = tl.where(
            _count_from(z_ptr, forbidden_ptr, trial, V, bos, FORBIDDEN, BLOCK, BITS) >= k, trial, least
        )
    return least, k - _count_from(z_ptr, forbidden_ptr, least + 1, V, bos, FORBIDDEN, BLOCK, BITS)


@triton.jit
def _cut_of_top_p(
    z_ptr, forbidden_ptr, share, cut, room, top, temperature, floor, V: tl.constexpr, bos, FORBIDDEN: tl.constexpr,
    BLOCK: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Return the largest key at or above which the tokens left reach a share, and how many of that key it takes."""
    mass, equal, many = _mass_from(
        z_ptr, forbidden_ptr, cut, top, temperature, floor, V, bos, FORBIDDEN, BLOCK, BITS
    )
    # tokens of one key are equally likely, so the mass of some of them is their share
    mass += equal * tl.minimum(room, many) / tl.maximum(many, 1)
    wanted = share * (1 - 1e-9) * mass
    # what fits into one block is read once, and stays in registers
    first_key, first_weight = _weighed(
        z_ptr, forbidden_ptr, tl.arange(0, BLOCK), top, temperature, floor, V, bos, FORBIDDEN, BITS
    )
    # bit by bit; the result is the key of a token
    least = tl.zeros([], tl.uint32)
    for bit in range(BITS):
        trial = least | (tl.full([], 1, tl.uint32) << (BITS - 1 - bit))
        reached = tl.where(first_key >= trial, first_weight, 0.0)
        for start in range(BLOCK, V, BLOCK):
            v = start + tl.arange(0, BLOCK)
            key, weight = _weighed(z_ptr, forbidden_ptr, v, top, temperature, floor, V, bos, FORBIDDEN, BITS)
            reached += tl.where(key >= trial, weight, 0.0)
        least = tl.where((trial <= cut) | (tl.sum(reached, 0) >= wanted), trial, least)
    before, equal, many = _mass_from(
        z_ptr, forbidden_ptr, least, top, temperature, floor, V, bos, FORBIDDEN, BLOCK, BITS
    )
    each = equal / tl.maximum(many, 1)
    needed = tl.ceil((wanted - before) / tl.maximum(each, 1e-300))
    return least, tl.minimum(needed, 1e9).to(tl.int32)


@triton.jit
def _tighter(cut, room, least, space):
    """Return the stricter of two cuts, each with how many tokens of its key are left."""
    narrower = tl.where(least > cut, space, tl.minimum(room, space))
    return tl.maximum(cut, least), tl.where(least < cut, room, narrower)


@triton.jit
def _count_from(
    z_ptr, forbidden_ptr, trial, V: tl.constexpr, bos, FORBIDDEN: tl.constexpr, BLOCK: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """Return how many tokens of a row have at least the key `trial`."""
    counts = tl.zeros([BLOCK], tl.int32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        key = _ordered(_without(_logits(z_ptr, v, V, bos), v, forbidden_ptr, FORBIDDEN)) >> (32 - BITS)
        counts += ((key >= trial) & (v < V)).to(tl.int32)
    return tl.sum(counts, 0)


@triton.jit
def _mass_from(
    z_ptr, forbidden_ptr, trial, top, temperature, floor, V: tl.constexpr, bos, FORBIDDEN: tl.constexpr,
    BLOCK: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Return Σ e^x of the tokens above a key, that of the tokens with that key, and how many these are."""
    above, equal = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    many = tl.zeros([BLOCK], tl.int32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        key, weight = _weighed(z_ptr, forbidden_ptr, v, top, temperature, floor, V, bos, FORBIDDEN, BITS)
        above += tl.where(key > trial, weight, 0.0)
        equal += tl.where(key == trial, weight, 0.0)
        many += ((key == trial) & (weight > 0)).to(tl.int32)
    return tl.sum(above, 0), tl.sum(equal, 0), tl.sum(many, 0)


@triton.jit
def _weighed(
    z_ptr, forbidden_ptr, v, top, temperature, floor, V, bos, FORBIDDEN: tl.constexpr, BITS: tl.constexpr
):  # fmt: skip
    """Return the keys of tokens, whole numbers in the order of their logits, and e^x, 0 below the floor."""
    z = _without(_logits(z_ptr, v, V, bos), v, forbidden_ptr, FORBIDDEN)
    below = z - tl.maximum(top, -1e30)
    weight = tl.where((z > -float("inf")) & (below >= floor), tl.exp(below / temperature), 0.0)
    return _ordered(z) >> (32 - BITS), weight.to(tl.float64)


@triton.jit
def _uniform(buffers, b, most_steps):
    """Return the random number of a row at this step."""
    return tl.load(buffers.uniforms_BT + b * most_steps + tl.load(buffers.column_1))


@triton.jit
def _record(
    logits_ptr, stride, buffers, embedding, is_token_ptr, ids_ptr, token, is_possible, log_total, any_total, end,
    scale, most_steps, window, D: tl.constexpr, BLOCK_D: tl.constexpr, EMBEDS: tl.constexpr,
    HAS_PLACES: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """Write the token that a row chose and its score, or padding if the row has ended; and, if asked, E[id]."""
    b = tl.program_id(0)
    # no race: all threads read this long before one of them writes it
    was_active = tl.load(buffers.active_B + b) != 0
    column = tl.load(buffers.column_1)
    is_nan = any_total != any_total
    goes_on = was_active & (is_possible | is_nan)  # NaN goes on, with token 0, so that its score is seen
    row = tl.where(goes_on & is_possible & (is_nan == 0), token.to(tl.int64), 0)
    score = tl.load(logits_ptr + b.to(tl.int64) * stride + row).to(tl.float32) - log_total
    token = tl.where(goes_on, row, PAD)
    tl.store(buffers.tokens_BT + b * most_steps + column, token)
    tl.store(buffers.scores_BT + b * most_steps + column, tl.where(goes_on, score, 0.0))
    tl.store(buffers.active_B + b, goes_on & (token != end))
    tl.store(is_token_ptr + b, goes_on)
    tl.store(ids_ptr + b, row)
    length = tl.load(buffers.lengths_B + b)
    if window > 0:
        tl.store(buffers.ids_BW + b.to(tl.int64) * window + length, row)
    if EMBEDS:
        d = tl.arange(0, BLOCK_D)
        vector = vector_of_token(embedding.table, embedding.places, row, length, scale, d, D, HAS_PLACES)
        tl.store(embedding.x + b * D + d, vector.to(embedding.x.dtype.element_ty), mask=d < D)


@triton.jit
def finish(
    x_ptr, gain_ptr, shift_ptr, is_token_ptr, features_ptr, lengths_ptr, column_ptr, eps,
    D: tl.constexpr, BLOCK_D: tl.constexpr, NORM: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_SHIFT: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Write the features, normalised if there is a norm, and the new length of a row that read a token.

    Other rows stay as they were.
    """
    await_inputs(AHEAD)
    b = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    is_token = tl.load(is_token_ptr + b) != 0
    x = tl.load(x_ptr + b * D + d, mask=d < D, other=0.0).to(tl.float32)
    if NORM:
        x = normalised(x, gain_ptr, shift_ptr, eps, d, D, NORM, HAS_GAIN, HAS_SHIFT)
    tl.store(features_ptr + b * D + d, x.to(features_ptr.dtype.element_ty), mask=(d < D) & is_token)
    tl.store(lengths_ptr + b, tl.load(lengths_ptr + b) + is_token.to(tl.int64))
    if b == 0:
        tl.store(column_ptr, tl.load(column_ptr) + 1)
