"""A recurrent decoder's attention to its source, and what its rows keep: two Triton kernels.

`recurrent_step.py` puts them together with cells and products; `alignment.py` says what attention computes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chainrule.inference.gpu.step_kernels import await_inputs


@triton.jit
def attend_to_states(
    query_ptr, h_ptr, keys_ptr, states_ptr, lasts_ptr, v_ptr, both_ptr, scale, stride_b, D: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, ADDITIVE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Write [c; h] of one row: c = Σ_s α_s s_s, with α the softmax of the scores of the positions 0..last."""
    await_inputs(AHEAD)
    b, d = tl.program_id(0), tl.arange(0, BLOCK_D)
    inside = d < D
    last = tl.load(lasts_ptr + b)
    query = tl.load(query_ptr + b * D + d, mask=inside, other=0.0).to(tl.float32)
    if ADDITIVE:
        v = tl.load(v_ptr + d, mask=inside, other=0.0).to(tl.float32)
    best, total = tl.full([], -float("inf"), tl.float32), tl.zeros([], tl.float32)
    taken = tl.zeros([BLOCK_D], tl.float32)
    base = b.to(tl.int64) * stride_b
    for s0 in range(0, last + 1, BLOCK_S):
        s = s0 + tl.arange(0, BLOCK_S)
        place = base + s[:, None] * D + d[None, :]
        seen = (s[:, None] <= last) & inside[None, :]
        keys = tl.load(keys_ptr + place, mask=seen, other=0.0).to(tl.float32)
        if ADDITIVE:
            # vᵀ tanh(W h + U s)
            scores = tl.sum((2.0 * tl.sigmoid(2.0 * (query[None, :] + keys)) - 1.0) * v[None, :], 1)
        else:
            scores = tl.sum(query[None, :] * keys, 1) * scale
        scores = tl.where(s <= last, scores, -float("inf"))
        # the largest score so far is subtracted
        higher = tl.maximum(best, tl.max(scores, 0))
        weight, shrink = tl.exp(scores - higher), tl.exp(best - higher)
        states = tl.load(states_ptr + place, mask=seen, other=0.0).to(tl.float32)
        taken = taken * shrink + tl.sum(weight[:, None] * states, 0)
        total = total * shrink + tl.sum(weight, 0)
        best = higher
    both = both_ptr + b * 2 * D + d
    tl.store(both, (taken / total).to(both_ptr.dtype.element_ty), mask=inside)
    h = tl.load(h_ptr + b * D + d, mask=inside, other=0.0)
    tl.store(both + D, h.to(both_ptr.dtype.element_ty), mask=inside)


@triton.jit
def replace_rows(news, olds, is_token_ptr, D: tl.constexpr, BLOCK_D: tl.constexpr, AHEAD: tl.constexpr):
    """Copy a row of each new array [B, D] to the old one, if the row has read a token."""
    await_inputs(AHEAD)
    b, d = tl.program_id(0), tl.arange(0, BLOCK_D)
    moved = (d < D) & (tl.load(is_token_ptr + b) != 0)
    for i in tl.static_range(len(news)):
        new = tl.load(news[i] + b * D + d, mask=moved, other=0.0)
        tl.store(olds[i] + b * D + d, new.to(olds[i].dtype.element_ty), mask=moved)
