"""How much of what a device can compute is used."""

from __future__ import annotations

import torch

from chainrule.training.trainable import Trainable

_PEAKS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
}
"""Operations per second in bfloat16, dense, by what is part of the device's name; as their makers give them."""


def flops_per_token(network: Trainable) -> float:
    """Operations to train on one token; a network may know better than its size tells."""
    own = getattr(network, "flops_per_token", None)
    if own is not None:
        return float(own())
    # a weight is used once forward and twice backward, each time for a product and a sum; a table that is looked up
    # costs nothing, unless it gives the logits too
    every = network.named_parameters(remove_duplicate=False)
    return 6.0 * float(sum(parameter.numel() for name, parameter in every if "embed" not in name))


def peak(device: torch.device) -> float | None:
    """Operations per second at best; None where that is not known."""
    if device.type != "cuda":
        return None
    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((value for name, value in _PEAKS.items() if name in words), None)
