"""What all models of torch have in common: where their weights are, how they are moved and stored."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch

from chainrule.contract.model import Model
from chainrule.system.devices import expect_slow_bfloat16


class TorchModel(Model):
    """A model whose network has a head, and is computed by torch."""

    network: Any

    @abstractmethod
    def _with(self, network: Any) -> Self:
        """This model with another network of the same shape."""

    @property
    def torch_device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.network.head.weight.device
        return device

    @property
    def device(self) -> str:
        return str(self.torch_device)

    @property
    def dtype(self) -> str:
        return str(self.network.head.weight.dtype).removeprefix("torch.")

    def on(self, device: str, dtype: str = "float32") -> Self:
        """A copy of this model on a device, with weights of that precision; the model itself if nothing changes."""
        if dtype == "bfloat16":
            expect_slow_bfloat16(device)
        like = torch.empty(0, device=device, dtype=getattr(torch, dtype))
        if (like.device, like.dtype) == (self.torch_device, self.network.head.weight.dtype):
            return self
        return self._with(copy.deepcopy(self.network).to(like.device, like.dtype)).described_as(self)

    def tensors(self) -> dict[str, np.ndarray]:
        return {name: weight.detach().float().cpu().numpy() for name, weight in self.network.named_parameters()}
