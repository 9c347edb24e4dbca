"""Batches as torch tensors on the device of the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from chainrule.training.layouts import Rows
from chainrule.training.objectives import Batch, Gatherer, Objective, Stretches

ON_DEVICE = 1 << 30
"""The size in bytes up to which the ids of a text are kept on a GPU."""


def torch_gatherer(ids: np.ndarray, objective: Objective, device: torch.device) -> Gatherer:
    """Return the gatherer for a device: on a GPU one that keeps a text that fits, else one that sends batches."""
    if device.type == "cuda" and ids.nbytes <= ON_DEVICE and not objective.is_on_host:
        return DeviceGatherer(ids, objective, device)
    return SendingGatherer(ids, objective, device)


class SendingGatherer(Gatherer):
    """Gathers on the host, and copies each batch to the device."""

    def __init__(self, ids: np.ndarray, objective: Objective, device: torch.device) -> None:
        super().__init__(ids, objective)
        self.device = device

    def batch(self, rows: Rows) -> Batch:
        return Batch(*(self._send(array) for array in super().batch(rows)))

    def _send(self, array: Any) -> Any:
        """Return the array, or a tuple of them, on the device."""
        if isinstance(array, tuple):
            return tuple(self._send(part) for part in array)
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class DeviceGatherer(Gatherer):
    """Keeps the ids on the device and gathers there: the batches of SendingGatherer without work for the host."""

    def __init__(self, ids: np.ndarray, objective: Objective, device: torch.device) -> None:
        super().__init__(ids, objective)
        # torch can index only signed integers on every device: the bits are kept, and a mask undoes the sign
        signed = np.array(ids).view(f"<i{ids.itemsize}")
        self.device_ids, self.mask = torch.from_numpy(signed).to(device), (1 << 8 * ids.itemsize) - 1
        self.device = device

    def batch(self, rows: Rows) -> Batch:
        numbers = torch.from_numpy(np.stack([rows.starts_B, rows.lengths_B, rows.skips_B]).astype(np.int64))
        if self.device.type == "cuda":
            numbers = numbers.pin_memory()
        starts_B, lengths_B, skips_B = numbers.to(self.device, non_blocking=True)
        # one column more than there are targets: the token before the first
        places = starts_B[:, None] + torch.arange(-1, rows.width, device=self.device)
        ids_BS = self.device_ids[places.clamp_(0, len(self.device_ids) - 1)].long().bitwise_and_(self.mask)
        batch = self.objective.batch(
            Stretches(ids_BS, starts_B, lengths_B, skips_B, rows.is_full, rows.epoch, rows.is_filled)
        )
        return Batch(*map(_contiguous, batch))


def _contiguous(inputs: Any) -> Any:
    """Return a tensor, or a tuple of them, contiguous in memory."""
    return tuple(map(_contiguous, inputs)) if isinstance(inputs, tuple) else inputs.contiguous()
