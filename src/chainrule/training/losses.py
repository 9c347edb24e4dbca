"""Losses of steps, left on the device until somebody looks: looking waits for the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from chainrule.errors import TrainingError
from chainrule.training.state import Place


class Losses:
    """The steps since the last look."""

    def __init__(self) -> None:
        self._steps: list[tuple[Place, Tensor, Tensor]] = []

    def add(self, place: Place, loss: Tensor, norm: Tensor) -> None:
        """A step: its mean loss and the norm of its gradient, both on the device."""
        self._steps.append((place, loss, norm))

    def read(self) -> tuple[list[float], float]:
        """The losses, and the last norm; a figure that is no finite number is an error that names the step."""
        if not self._steps:
            return [], 0.0
        places, on_device, norms_on_device = zip(*self._steps, strict=True)
        self._steps = []
        losses, norms = torch.stack([torch.stack(on_device), torch.stack(norms_on_device)]).tolist()
        for place, loss, norm in zip(places, losses, norms, strict=True):
            if not math.isfinite(loss + norm):
                raise TrainingError(
                    f"{place}: the {'gradient' if math.isfinite(loss) else 'loss'} is not a finite number; set a "
                    "lower learning_rate, a smaller clip, or precision=float32"
                )
        return losses, norms[-1]
