"""Beam search by Triton kernels: the best continuations of a text, and the memory of those they continue."""

from __future__ import annotations

import triton
import triton.language as tl

from chainrule.inference.gpu.step_kernels import await_inputs, vector_of_token


@triton.jit
def continue_text(
    logits_ptr, kept, stride, buffers, embedding, ids_ptr, live_ptr, parents_ptr, shared_ptr, log_ptr, log_steps,
    log_rows, end, scale, window, D: tl.constexpr, BLOCK_D: tl.constexpr, EMBEDS: tl.constexpr,
    HAS_PLACES: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr, PIECES: tl.constexpr, BLOCK_P: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK_S: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Go on with the W best continuations of the W hypotheses of a text, and write to the log what the host needs.

    The best tokens of each row are among those that `best_of_piece` kept. `kept`, `buffers` and `embedding` are the
    named tuples KeptTokens, StepBuffers and TokenVectors of choice.py.
    """
    await_inputs(AHEAD)
    first = tl.program_id(0) * W
    w = tl.arange(0, BLOCK_W)
    inside, rows = w < W, first + w

    # ln p of the W best tokens of each row; among equals the lowest token, in the order of slots
    p = tl.arange(0, BLOCK_P)
    is_piece = inside[:, None] & (p < PIECES)[None, :]
    bests = tl.load(kept.best + rows[:, None] * PIECES + p[None, :], mask=is_piece, other=-float("inf"))
    totals = tl.load(kept.total + rows[:, None] * PIECES + p[None, :], mask=is_piece, other=0.0)
    highest = tl.where(inside, tl.max(bests, 1), 0.0)
    total = tl.where(inside, tl.sum(totals * tl.exp(bests - highest[:, None]), 1), 1.0)
    log_total = highest + tl.log(total)
    slot = tl.arange(0, BLOCK_P * SLOTS)
    left = inside[:, None] & (slot < PIECES * SLOTS)[None, :]
    z = tl.load(kept.z + rows[:, None] * PIECES * SLOTS + slot[None, :], mask=left, other=-float("inf"))
    x = z - log_total[:, None]
    values = tl.full([BLOCK_W, BLOCK_W], -float("inf"), tl.float32)
    tokens = tl.zeros([BLOCK_W, BLOCK_W], tl.int64)
    for i in tl.static_range(W):
        best = tl.max(tl.where(left, x, -float("inf")), 1)
        at = tl.min(tl.where(left & (x == best[:, None]), slot[None, :], PIECES * SLOTS - 1), 1)
        left = left & (slot[None, :] != at[:, None])
        token = tl.load(kept.tokens + rows * PIECES * SLOTS + at, mask=inside, other=0).to(tl.int64)
        values = tl.where(w[None, :] == i, best[:, None], values)
        tokens = tl.where(w[None, :] == i, token[:, None], tokens)

    log = log_ptr + ((tl.load(buffers.column_1) % log_steps) * log_rows + rows) * (2 * W + 2)
    is_pair = inside[:, None] & inside[None, :]
    tl.store(log[:, None] + w[None, :], values.to(tl.float64), mask=is_pair)
    tl.store(log[:, None] + W + w[None, :], tokens.to(tl.float64), mask=is_pair)
    ended = (
        tl.load(logits_ptr + rows.to(tl.int64) * stride + end, mask=inside, other=0.0).to(tl.float32) - log_total
    )
    tl.store(log + 2 * W, ended.to(tl.float64), mask=inside)
    tl.store(log + 2 * W + 1, total.to(tl.float64), mask=inside)  # NaN if a logit is

    # the W best continuations of the text; among equals that of the first hypothesis
    live = tl.load(live_ptr + rows, mask=inside, other=-float("inf"))
    length = tl.load(buffers.lengths_B + first)  # that of all hypotheses of a text
    tl.debug_barrier()  # what was read is written below
    summed = live[:, None] + values.to(tl.float64)
    order = w[:, None] * W + w[None, :]
    open_ = is_pair
    parents = ()
    chosen = ()
    for j in tl.static_range(W):
        best = tl.max(tl.max(tl.where(open_, summed, -float("inf")), 1), 0)
        number = tl.min(tl.min(tl.where(open_ & (summed == best), order, W * W - 1), 1), 0)
        is_it = is_pair & (order == number)
        open_ = open_ & (order != number)
        parent, token = first + number // W, tl.sum(tl.sum(tl.where(is_it, tokens, 0), 1), 0)
        tl.store(live_ptr + first + j, best)
        tl.store(parents_ptr + first + j, parent.to(tl.int64))
        tl.store(ids_ptr + first + j, token)
        parents = parents + (parent.to(tl.int64),)  # noqa: RUF005 (Triton's tuples)
        chosen = chosen + (token,)  # noqa: RUF005

    if window > 0:
        for s0 in range(tl.load(shared_ptr + tl.program_id(0)), length, BLOCK_S):
            s = s0 + tl.arange(0, BLOCK_S)
            read = ()
            for j in tl.static_range(W):
                read = read + (tl.load(buffers.ids_BW + parents[j] * window + s, mask=s < length),)  # noqa: RUF005
            for j in tl.static_range(W):
                tl.store(buffers.ids_BW + (first + j).to(tl.int64) * window + s, read[j], mask=s < length)
        for j in tl.static_range(W):
            tl.store(buffers.ids_BW + (first + j).to(tl.int64) * window + length, chosen[j])
    if EMBEDS:
        d = tl.arange(0, BLOCK_D)
        for j in tl.static_range(W):
            vector = vector_of_token(embedding.table, embedding.places, chosen[j], length, scale, d, D, HAS_PLACES)
            tl.store(embedding.x + (first + j) * D + d, vector.to(embedding.x.dtype.element_ty), mask=d < D)


@triton.jit
def reorder_rows(
    keys_ptr, values_ptr, parents_ptr, shared_ptr, lengths_ptr, stride_l, stride_b, stride_g, G,
    K: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Copy the keys and values of one head to the W rows of a text, each from the row of its parent, in place.

    The first `shared` positions are the same in all of these rows. A program has some positions of all rows before
    it writes them to any.
    """
    layer, head, first = tl.program_id(0) // G, tl.program_id(0) % G, tl.program_id(1) * W
    rows = first + tl.arange(0, BLOCK_W)
    inside = tl.arange(0, BLOCK_W) < W
    parents = tl.load(parents_ptr + rows, mask=inside, other=0)
    is_moved = tl.max(tl.where(inside & (parents != rows), 1, 0), 0)
    end = tl.max(tl.load(lengths_ptr + rows, mask=inside, other=0), 0) * is_moved
    begin = layer.to(tl.int64) * stride_l + head * stride_g
    k = tl.arange(0, BLOCK_K)
    for s0 in range(tl.load(shared_ptr + tl.program_id(1)), end, BLOCK_S):
        s = s0 + tl.arange(0, BLOCK_S)
        place = begin + s[:, None] * K + k[None, :]
        seen = (s[:, None] < end) & (k[None, :] < K)
        keys = ()
        values = ()
        for w in tl.static_range(W):
            parent = tl.load(parents_ptr + first + w) * stride_b
            keys = keys + (tl.load(keys_ptr + parent + place, mask=seen),)  # noqa: RUF005 (Triton's tuples)
            values = values + (tl.load(values_ptr + parent + place, mask=seen),)  # noqa: RUF005
        for w in tl.static_range(W):
            row = (first + w).to(tl.int64) * stride_b
            tl.store(keys_ptr + row + place, keys[w], mask=seen)
            tl.store(values_ptr + row + place, values[w], mask=seen)
