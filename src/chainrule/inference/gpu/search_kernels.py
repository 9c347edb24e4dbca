"""The keys and values of a beam's hypotheses, moved to the rows of those that continue them, by a Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl


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
