"""In which precision a network computes."""

from __future__ import annotations

import torch
from torch import Tensor

# torch can be asked which these are, but its compiler stops at the question
_WITH_AUTOCAST = {"cpu", "cuda", "mps", "xpu"}


def working_type(like: Tensor) -> torch.dtype:
    """What products are computed in: the type of autocast where that is on, else the tensor's own."""
    device = like.device.type
    if device in _WITH_AUTOCAST and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype
