"""What the right tokens cost: -ln softmax(W h + b)[target], summed.

With a large vocabulary the logits are most of the memory and much of the time of a training step. So they are made
a piece at a time, and each piece's gradient is computed while its logits are there:

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
from chainrule.neural.precision import working_type

LOGITS_AT_ONCE = 1 << 26
"""Above, the loss is computed in pieces: 256 MB in float32."""
BLOCK = 16
"""Products in 8 bits take matrices whose sides are multiples of it."""
_ROWS_ON_GPU = 1 << 14  # fewer would make the matrix products slow, more would gain nothing
_UNIT = 2.0**13  # gradients p - y are at most 1; so scaled, they fill the range of 8 bits


def summed_nats(features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    """Σ -ln softmax(W h + b)[target], over the targets that are tokens."""
    logits_NV = F.linear(features_ND, weight_VD, bias_V)
    # -ln p(y) = ln Σ e^z - z_y
    return F.cross_entropy(_wide(logits_NV), targets_N, ignore_index=PAD, reduction="sum")


def best_nats(
    features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool = False
) -> Tensor:
    """The same, by the way that suits its size and device."""
    if len(targets_N) * len(weight_VD) <= LOGITS_AT_ONCE:
        return summed_nats(features_ND, weight_VD, bias_V, targets_N)
    if torch.is_grad_enabled():
        nats: Tensor = in_pieces(features_ND, weight_VD, bias_V, targets_N, float8)
        return nats
    rows = max(LOGITS_AT_ONCE // len(weight_VD), 1)
    pieces = zip(torch.split(features_ND, rows), torch.split(targets_N, rows), strict=True)
    return torch.stack([summed_nats(features, weight_VD, bias_V, targets) for features, targets in pieces]).sum()


# A loop over pieces would be unrolled. torch.compiler.disable would do, but takes 1.5 s to import the compiler.
@torch._disable_dynamo  # type: ignore[attr-defined]
def in_pieces(
    features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool = False
) -> Any:
    """The same, a piece at a time."""
    return PieceByPiece.apply(features_ND, weight_VD, bias_V, targets_N, float8)  # type: ignore[no-untyped-call]


class PieceByPiece(torch.autograd.Function):
    """The loss whose gradients are known once it is."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, float8: bool
    ) -> Tensor:
        rows = _ROWS_ON_GPU if features_ND.device.type == "cuda" else max(LOGITS_AT_ONCE // len(weight_VD), 1)
        dtype = working_type(features_ND)
        product = _Float8Product(weight_VD) if float8 else _Product(weight_VD.to(dtype))
        device, wide = features_ND.device, torch.promote_types(features_ND.dtype, torch.float32)
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
                grad_V += errors.to(wide).sum(dim=0) * product.unit
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
    """Matrix products with the head's table, in the features' own precision."""

    unit = 1.0

    def __init__(self, weight_VD: Tensor) -> None:
        self.weight_VD = weight_VD

    def errors(self, features_ND: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and p - y."""
        bias_V = None if bias_V is None else bias_V.to(features_ND.dtype)
        logits_NV = F.linear(features_ND, self.weight_VD, bias_V)
        return best_errors(logits_NV, targets_N, 1.0, logits_NV.dtype)

    def back(self, errors_NV: Tensor, features_ND: Tensor, grad_ND: Tensor, grad_VD: Tensor) -> None:
        torch.mm(errors_NV, self.weight_VD, out=grad_ND)
        grad_VD += torch.mm(errors_NV.T, features_ND)


class _Float8Product:
    """The same in 8 bits, which the newest GPUs multiply twice as fast: each factor is scaled to fill its range."""

    unit = 1 / _UNIT
    _LARGEST = 448.0  # of e4m3

    def __init__(self, weight_VD: Tensor) -> None:
        self.weight_scale = weight_VD.detach().abs().max().float() / self._LARGEST
        self.weight_VD = (weight_VD.detach() / self.weight_scale).to(torch.float8_e4m3fn)
        self.weight_DV = _transposed(self.weight_VD)
        self.error_scale = torch.full((), self.unit, device=weight_VD.device)

    def errors(self, features_ND: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and (p - y) · 2^13 in 8 bits."""
        self.feature_scale = features_ND.abs().max().float() / self._LARGEST
        self.features_ND = (features_ND / self.feature_scale).to(torch.float8_e4m3fn)
        logits_NV = torch._scaled_mm(
            self.features_ND,
            self.weight_VD.T,
            scale_a=self.feature_scale,
            scale_b=self.weight_scale,
            bias=None if bias_V is None else bias_V.to(torch.bfloat16),
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
        return best_errors(logits_NV, targets_N, _UNIT, torch.float8_e5m2)

    def back(self, errors_NV: Tensor, features_ND: Tensor, grad_ND: Tensor, grad_VD: Tensor) -> None:
        # both factors of an 8-bit product must lie along the axis that is summed over
        back_ND = torch._scaled_mm(
            errors_NV,
            self.weight_DV.T,
            scale_a=self.error_scale,
            scale_b=self.weight_scale,
            out_dtype=torch.bfloat16,
        )
        grad_ND[:] = back_ND[: len(grad_ND)]
        grad_VD += torch._scaled_mm(
            _transposed(errors_NV),
            _transposed(self.features_ND).T,
            scale_a=self.error_scale,
            scale_b=self.feature_scale,
            out_dtype=torch.float32,
        )


def softmax_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Σ -ln p(target), and (p - y) · unit in that type; rows without a target have neither."""
    z_NV = _wide(logits_NV)
    is_target_N = targets_N != PAD
    targets_N1 = targets_N.clamp(min=0)[:, None]
    # ln p = z - ln Σ e^z
    log_probs_NV = z_NV.log_softmax(dim=1)
    nats = -torch.where(is_target_N, log_probs_NV.gather(1, targets_N1)[:, 0], 0.0).sum()
    # dL/dz = p - y
    errors_NV = log_probs_NV.exp_().scatter_add_(1, targets_N1, log_probs_NV.new_full(targets_N1.shape, -1.0))
    return nats, (torch.where(is_target_N[:, None], errors_NV, 0.0) * unit).to(dtype)


def best_errors(logits_NV: Tensor, targets_N: Tensor, unit: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same, on a GPU by one loop over each row."""
    if logits_NV.device.type == "cuda":
        from chainrule.neural import loss_kernel

        return loss_kernel.softmax_errors(logits_NV, targets_N, unit, dtype)
    return softmax_errors(logits_NV, targets_N, unit, dtype)


def _wide(logits: Tensor) -> Tensor:
    """Exponentials need more than 16 bits."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _transposed(matrix: Tensor) -> Tensor:
    """Lying in memory the other way; torch's own copy of a transposed matrix of bytes takes ten times as long."""
    from chainrule.neural import loss_kernel

    return loss_kernel.transposed(matrix)
