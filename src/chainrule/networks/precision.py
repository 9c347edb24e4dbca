"""The precisions that a network computes in."""

from __future__ import annotations

import torch
from torch import Tensor

# torch can be asked which devices these are, but torch.compile cannot trace the call
_WITH_AUTOCAST = {"cpu", "cuda", "mps", "xpu"}


def working_type(like: Tensor) -> torch.dtype:
    """Return the dtype of matrix products: that of autocast where it is on, else the tensor's own."""
    device = like.device.type
    if device in _WITH_AUTOCAST and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def wide_type(like: Tensor) -> torch.dtype:
    """Return the dtype of sums and exponentials: that of the tensor, but at least float32."""
    return torch.promote_types(like.dtype, torch.float32)
