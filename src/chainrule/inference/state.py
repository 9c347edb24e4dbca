"""The state of a network as a language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import Array
from chainrule.contract.lm import State
from chainrule.inference.windows import Window
from chainrule.networks.memory import Memory


@dataclass(frozen=True)
class NeuralState(State):
    """The memory of the network, and the features of the last token, from which the next one is predicted."""

    memory: Memory
    features_BD: Tensor
    window: Window | None
    """The tokens in the window; None if the network has no window."""

    def __len__(self) -> int:
        return len(self.features_BD)

    def select(self, rows: Array) -> NeuralState:
        rows_B = on_device(rows, self.features_BD.device)
        window = None if self.window is None else self.window.select(rows_B)
        return NeuralState(self.memory.select(rows_B), self.features_BD[rows_B], window)

    def join(self, other: NeuralState) -> NeuralState:
        window = None if self.window is None or other.window is None else self.window.join(other.window)
        features_BD = torch.cat([self.features_BD, other.features_BD])
        return NeuralState(self.memory.join(other.memory), features_BD, window)


def on_device(ids: Array, device: torch.device) -> Tensor:
    """Ids as a tensor on a device."""
    if isinstance(ids, Tensor):
        return ids.to(device, torch.int64)
    return torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(device)
