"""x Wᵀ + b, which is computed the other way round where that is faster."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_FEW = range(4, 33)
_MANY_WEIGHTS = 100_000  # with fewer, two more calls take longer than the product
_HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


def linear(x: Tensor, weight_NK: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, [..., N].

    For a few rows on a CPU, as when several texts are written at once, it is (W xᵀ + b)ᵀ: Intel's library takes two
    to three times as long for x Wᵀ.
    """
    if x.device.type != "cpu" or not _turns(x, weight_NK):
        return functional.linear(x, weight_NK, bias_N)
    y_NB = weight_NK @ x.reshape(-1, x.shape[-1]).T
    if bias_N is not None:
        y_NB += bias_N[:, None]
    return y_NB.T.contiguous().view(*x.shape[:-1], -1)


def _turns(x: Tensor, weight_NK: Tensor) -> bool:
    few = x.shape[:-1].numel() in _FEW and weight_NK.numel() >= _MANY_WEIGHTS
    plain = x.dtype == weight_NK.dtype == torch.float32 and not torch.is_grad_enabled()
    return few and plain and _HAS_MKL


class Linear(nn.Linear):
    """torch's layer, which computes its product by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
