"""The softmax of a row of logits, what its target costs, and p - y: one loop in Triton.

The row is read twice, the second time from a memory close by. `loss.softmax_errors`, which says what is computed,
would read it three times from far away.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from chainrule.arrays import PAD


def softmax_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Σ -ln p(target), and (p - y) · unit in that type; rows without a target have neither."""
    rows, size = logits_NV.shape
    nats_N = torch.empty(rows, device=logits_NV.device)
    errors_NV = torch.empty(rows, size, dtype=dtype, device=logits_NV.device)
    _row[(rows,)](logits_NV, targets_N, nats_N, errors_NV, size, unit, PAD, 8192, num_warps=16)
    return nats_N.sum(), errors_NV


@triton.jit
def _row(logits_ptr, targets_ptr, nats_ptr, errors_ptr, V, unit, NONE: tl.constexpr, BLOCK_V: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    logits_ptr += row * V
    errors_ptr += row * V
    best = -float("inf")
    total = 0.0
    for v0 in range(0, V, BLOCK_V):
        v = v0 + tl.arange(0, BLOCK_V)
        z = tl.load(logits_ptr + v, mask=v < V, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(best, tl.max(z, 0))
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(z - higher), 0)
        best = higher
    log_total = best + tl.log(total)  # ln Σ e^z
    is_target = target != NONE
    z_target = tl.load(logits_ptr + tl.where(is_target, target, 0)).to(tl.float32)
    tl.store(nats_ptr + row, tl.where(is_target, log_total - z_target, 0.0))
    for v0 in range(0, V, BLOCK_V):
        v = v0 + tl.arange(0, BLOCK_V)
        z = tl.load(logits_ptr + v, mask=v < V, other=-float("inf")).to(tl.float32)
        # dL/dz = p - y
        error = tl.exp(z - log_total) - tl.where(v == target, 1.0, 0.0)
        error = tl.where(is_target, error * unit, 0.0)
        tl.store(errors_ptr + v, error.to(errors_ptr.dtype.element_ty), mask=v < V)
