"""The cross-entropy loss: -ln softmax(W h + b)[target], summed over the targets.

With a large vocabulary the logits take most of the memory and much of the time of a training step. So they are
computed for a piece of the rows at a time, and the gradient of a piece is computed while its logits are there:

    dL/dz = p - y,   dL/dh = Wᵀ (p - y),   dL/dW = Σ (p - y) hᵀ

`summed_nats` is the formula; `PieceByPiece` gives the same loss and gradients without ever holding all logits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from chainrule.arrays import PAD
from chainrule.networks.precision import wide_type, working_type
from chainrule.system.devices import IS_ARM, has_triton

LOGITS_AT_ONCE = 1 << 26
"""The most logits that are computed at once, 256 MB in float32; with more, the loss is computed in pieces."""
_COMPILED_FROM = 1024  # the smallest vocabulary for which compiled loops are loaded
BLOCK = 16
"""The sides of matrices that are multiplied in 8 bits are multiples of this."""
_ROWS_ON_GPU = 1 << 14  # of a piece: fewer would make the matrix products slow, more would gain nothing
_UNIT = 2.0**13  # gradients p - y are at most 1; scaled by this, they fill the range of 8-bit floats


def summed_nats(features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    """Return Σ -ln softmax(W h + b)[target], over the targets that are tokens."""
    logits_NV = F.linear(features_ND, weight_VD, bias_V)
    # -ln p(y) = ln Σ e^z - z_y
    return F.cross_entropy(logits_NV.to(wide_type(logits_NV)), targets_N, ignore_index=PAD, reduction="sum")


def best_nats(
    features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool = False
) -> Tensor:
    """Return the same as `summed_nats`, but in pieces if there are many logits, or where that is faster.

    With `float8`, pieces are multiplied in 8 bits where gradients are computed.
    """
    by_loops = _by_compiled_loops(features_ND, len(weight_VD))
    if len(targets_N) * len(weight_VD) <= LOGITS_AT_ONCE and not by_loops:
        return summed_nats(features_ND, weight_VD, bias_V, targets_N)
    if torch.is_grad_enabled():
        nats: Tensor = in_pieces(features_ND, weight_VD, bias_V, targets_N, float8)
        return nats
    rows = max(LOGITS_AT_ONCE // len(weight_VD), 1)
    pieces = zip(torch.split(features_ND, rows), torch.split(targets_N, rows), strict=True)
    return torch.stack(
        [nats_of_targets(F.linear(features, weight_VD, bias_V), targets).sum() for features, targets in pieces]
    ).sum()


def nats_of_targets(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return -ln p(target) of each row, 0 where the target is PAD; the logits may be overwritten."""
    if _by_compiled_loops(logits_NV, logits_NV.shape[1]) and not logits_NV.requires_grad:
        return _on_cpu("nats_of_targets", logits_NV, targets_N)
    return F.cross_entropy(logits_NV.to(wide_type(logits_NV)), targets_N, ignore_index=PAD, reduction="none")


def _by_compiled_loops(x_ND: Tensor, vocab_size: int) -> bool:
    """Return True if loops compiled for the CPU take less time than torch's functions.

    The answer depends on sizes alone, so that a resumed run computes the same numbers.
    """
    return (
        IS_ARM
        and x_ND.device.type == "cpu"
        and x_ND.dtype == torch.float32
        and vocab_size >= _COMPILED_FROM
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _on_cpu(name: str, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Call a function of loss_on_cpu.py, which takes NumPy's arrays."""
    from chainrule.networks import loss_on_cpu

    arrays = (x.detach().numpy() for x in (logits_NV, targets_N))
    return torch.from_numpy(getattr(loss_on_cpu, name)(*arrays, torch.get_num_threads()))


# torch.compile would unroll the loop over pieces. torch.compiler.disable would prevent it too, but takes 1.5 s to
# import the compiler.
@torch._disable_dynamo  # type: ignore[attr-defined]
def in_pieces(
    features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool = False
) -> Any:
    """Return the same as `summed_nats`, but by `PieceByPiece`."""
    return PieceByPiece.apply(features_ND, weight_VD, bias_V, targets_N, float8)  # type: ignore[no-untyped-call]


class PieceByPiece(torch.autograd.Function):
    """The summed loss, whose forward pass computes the gradients too; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool
    ) -> Tensor:
        rows = _ROWS_ON_GPU if features_ND.device.type == "cuda" else max(LOGITS_AT_ONCE // len(weight_VD), 1)
        dtype = working_type(features_ND)
        product = _Float8Product(weight_VD) if float8 else _Product(weight_VD.to(dtype))
        device, wide = features_ND.device, wide_type(features_ND)
        nats = torch.zeros((), dtype=wide, device=device)
        grad_ND = torch.empty(features_ND.shape, dtype=dtype, device=device)
        grad_VD = torch.zeros(weight_VD.shape, dtype=wide, device=device)
        grad_V = None if bias_V is None else torch.zeros(bias_V.shape, dtype=wide, device=device)
        for i in range(0, len(targets_N), rows):
            features, targets = features_ND[i : i + rows].to(dtype), targets_N[i : i + rows]
            if float8 and (missing := -len(targets) % BLOCK):
                features, targets = F.pad(features, (0, 0, 0, missing)), F.pad(targets, (0, missing), value=PAD)
            some_nats, errors = product.errors(features, bias_V, targets)
            nats += some_nats
            product.back(errors, features, grad_ND[i : i + rows], grad_VD)
            if grad_V is not None:
                grad_V += _sum_of_rows(errors.to(wide)) * product.unit
        ctx.save_for_backward(grad_ND, grad_VD, grad_V)
        ctx.dtypes = features_ND.dtype, weight_VD.dtype
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        grad_ND, grad_VD, grad_V = ctx.saved_tensors
        to_features, to_weight = ctx.dtypes
        bias = None if grad_V is None else grad_V * factor
        return (grad_ND * factor).to(to_features), (grad_VD * factor).to(to_weight), bias, None, None


class _Product:
    """Matrix products with the head's weights, in the precision of the features."""

    unit = 1.0

    def __init__(self, weight_VD: Tensor) -> None:
        self.weight_VD = weight_VD

    def errors(self, features_ND: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss of these rows, and their errors p - y."""
        bias_V = None if bias_V is None else bias_V.to(features_ND.dtype)
        logits_NV = F.linear(features_ND, self.weight_VD, bias_V)
        return best_errors(logits_NV, targets_N, 1.0, logits_NV.dtype)

    def back(self, errors_NV: Tensor, features_ND: Tensor, grad_ND: Tensor, grad_VD: Tensor) -> None:
        """Write dL/dh of these rows to grad_ND, and add their part of dL/dW to grad_VD."""
        torch.mm(errors_NV, self.weight_VD, out=grad_ND)
        grad_VD += torch.mm(errors_NV.T, features_ND)


class _Float8Product:
    """The same as `_Product`, but in 8 bits, which the newest GPUs multiply twice as fast.

    Each factor is scaled to fill the range of its type.
    """

    unit = 1 / _UNIT

    def __init__(self, weight_VD: Tensor) -> None:
        from chainrule.networks.loss_kernels import transposed  # torch's own copy takes ten times as long

        self.transposed = transposed
        self.weight_VD, self.weight_scale = _in_8_bits(weight_VD.detach())
        self.weight_DV = transposed(self.weight_VD)
        self.error_scale = torch.full((), self.unit, device=weight_VD.device)

    def errors(self, features_ND: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss of these rows, and their errors (p - y) · 2^13 in 8 bits."""
        self.features_ND, self.feature_scale = _in_8_bits(features_ND)
        scales, bias = (self.feature_scale, self.weight_scale), None if bias_V is None else bias_V.bfloat16()
        logits_NV = _scaled_product(self.features_ND, self.weight_VD, scales, bias=bias, use_fast_accum=True)
        return best_errors(logits_NV, targets_N, _UNIT, torch.float8_e5m2)

    def back(self, errors_NV: Tensor, features_ND: Tensor, grad_ND: Tensor, grad_VD: Tensor) -> None:
        back_ND = _scaled_product(errors_NV, self.weight_DV, (self.error_scale, self.weight_scale))
        grad_ND[:] = back_ND[: len(grad_ND)]
        errors_VN, features_DN = self.transposed(errors_NV), self.transposed(self.features_ND)
        scales = self.error_scale, self.feature_scale
        grad_VD += _scaled_product(errors_VN, features_DN, scales, torch.float32)


def _in_8_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix in 8 bits, and the factor by which it is then too small."""
    scale = matrix.abs().max().float() / 448.0  # the largest float of the type e4m3
    return (matrix / scale).to(torch.float8_e4m3fn), scale


def _scaled_product(
    one: Tensor, other: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype = torch.bfloat16, **others: Any
) -> Tensor:
    """Return the product of 8-bit matrices, `one` and the transpose of `other`: both have the summed axis last."""
    return torch._scaled_mm(one, other.T, scale_a=scales[0], scale_b=scales[1], out_dtype=dtype, **others)


def softmax_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return Σ -ln p(target), and the errors (p - y) · unit as `dtype`; both are 0 where the target is PAD."""
    z_NV = logits_NV.to(wide_type(logits_NV))
    is_target_N = targets_N != PAD
    targets_N1 = targets_N.clamp(min=0)[:, None]
    # ln p = z - ln Σ e^z
    log_probs_NV = z_NV.log_softmax(dim=1)
    nats = -torch.where(is_target_N, log_probs_NV.gather(1, targets_N1)[:, 0], 0.0).sum()
    # dL/dz = p - y
    errors_NV = log_probs_NV.exp_().scatter_add_(1, targets_N1, log_probs_NV.new_full(targets_N1.shape, -1.0))
    return nats, (torch.where(is_target_N[:, None], errors_NV, 0.0) * unit).to(dtype)


def best_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the same as `softmax_errors`, but in one go by a kernel of the device; it may overwrite the logits."""
    if logits_NV.device.type == "cuda" and has_triton():
        from chainrule.networks import loss_kernels

        return loss_kernels.softmax_errors(logits_NV, targets_N, unit, dtype)
    if _by_compiled_loops(logits_NV, logits_NV.shape[1]) and unit == 1 and dtype == logits_NV.dtype:
        return _on_cpu("replace_by_errors", logits_NV, targets_N).sum(), logits_NV
    return softmax_errors(logits_NV, targets_N, unit, dtype)


def _sum_of_rows(x_NV: Tensor) -> Tensor:
    """Return Σ over the rows; on a CPU as a product, where torch's own sum takes ten times as long."""
    return x_NV.T @ x_NV.new_ones(len(x_NV)) if x_NV.device.type == "cpu" else x_NV.sum(dim=0)
