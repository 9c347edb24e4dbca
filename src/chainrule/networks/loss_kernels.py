"""Triton kernels of the loss: the softmax of a row of logits, its loss and its errors p - y; and a transpose.

A row is read twice, the second time from the GPU's cache. `loss.softmax_errors`, which says what is computed, would
read it three times from the GPU's main memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from chainrule.arrays import PAD


def softmax_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return Σ -ln p(target), and the errors (p - y) · unit as `dtype`; both are 0 where the target is PAD."""
    rows, size = logits_NV.shape
    nats_N = torch.empty(rows, device=logits_NV.device)
    errors_NV = torch.empty(rows, size, dtype=dtype, device=logits_NV.device)
    _row[(rows,)](logits_NV, targets_N, nats_N, errors_NV, size, unit, PAD, 4096, num_warps=8)
    return nats_N.sum(), errors_NV


def transposed(matrix: Tensor) -> Tensor:
    """Return the contiguous transpose of a matrix of bytes."""
    rows, columns = matrix.shape
    out = torch.empty(columns, rows, dtype=matrix.dtype, device=matrix.device)
    grid = triton.cdiv(rows, 128), triton.cdiv(columns, 128)
    _transpose[grid](matrix.view(torch.uint8), out.view(torch.uint8), rows, columns, 128, num_warps=8)
    return out


@triton.jit
def _row(logits_ptr, targets_ptr, nats_ptr, errors_ptr, V, unit, NONE: tl.constexpr, BLOCK_V: tl.constexpr):
    LOG2_E: tl.constexpr = 1.4426950408889634  # e^z = 2^(z log2 e): the GPU computes powers of 2
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    is_target = target != NONE
    logits_ptr += row * V
    errors_ptr += row * V
    lanes = tl.arange(0, BLOCK_V)
    whole = V // BLOCK_V * BLOCK_V
    # only the last, incomplete block needs a mask
    z = tl.load(logits_ptr + whole + lanes, mask=whole + lanes < V, other=-float("inf")).to(tl.float32) * LOG2_E
    best = tl.maximum(tl.max(z, 0), -1e30)
    total = tl.sum(tl.exp2(z - best), 0)
    for v0 in range(0, whole, BLOCK_V):
        z = tl.load(logits_ptr + v0 + lanes).to(tl.float32) * LOG2_E
        higher = tl.maximum(best, tl.max(z, 0))
        total = total * tl.exp2(best - higher) + tl.sum(tl.exp2(z - higher), 0)
        best = higher
    log_total = best + tl.log2(total)  # log2 Σ e^z
    z_target = tl.load(logits_ptr + tl.where(is_target, target, 0)).to(tl.float32) * LOG2_E
    tl.store(nats_ptr + row, tl.where(is_target, (log_total - z_target) / LOG2_E, 0.0))
    # p · unit = 2^(z - log_total) unit; 0 where there is no target
    shift = tl.where(is_target, log_total - tl.log2(unit), float("inf"))
    for v0 in range(0, whole, BLOCK_V):
        z = tl.load(logits_ptr + v0 + lanes).to(tl.float32) * LOG2_E
        tl.store(errors_ptr + v0 + lanes, tl.exp2(z - shift).to(errors_ptr.dtype.element_ty))
    z = tl.load(logits_ptr + whole + lanes, mask=whole + lanes < V, other=0.0).to(tl.float32) * LOG2_E
    tl.store(errors_ptr + whole + lanes, tl.exp2(z - shift).to(errors_ptr.dtype.element_ty), mask=whole + lanes < V)
    tl.debug_barrier()  # the error of the target is written over that of the loop
    error = (tl.exp2(z_target - log_total) - 1) * unit
    tl.store(errors_ptr + tl.where(is_target, target, 0), error.to(errors_ptr.dtype.element_ty), mask=is_target)


@triton.jit
def _transpose(source_ptr, target_ptr, rows, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    i = tl.arange(0, BLOCK)
    inside = (row + i[:, None] < rows) & (column + i[None, :] < columns)
    source_ptr += row.to(tl.int64) * columns + column
    target_ptr += column.to(tl.int64) * rows + row
    tile = tl.load(source_ptr + i[:, None] * columns + i[None, :], mask=inside, other=0)
    tl.store(target_ptr + i[:, None] * rows + i[None, :], tl.trans(tile), mask=tl.trans(inside))
