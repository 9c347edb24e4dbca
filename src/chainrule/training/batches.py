"""From rows of a text to tensors on the device: inputs are the tokens before the targets."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.lm import Context, beginning
from chainrule.tokens.base import Tokenizer
from chainrule.training.gathering import Text
from chainrule.training.layouts import Rows

ON_DEVICE = 1 << 30
"""Bytes of ids up to which a GPU keeps them all."""


class Source(ABC):
    """A text, and a device for batches of it."""

    @abstractmethod
    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Inputs and targets as [B, T], PAD where a row is shorter."""


def open_source(ids: np.ndarray, tokenizer: Tokenizer, context: Context, device: torch.device) -> Source:
    """On a GPU a text that fits is kept there; else batches are gathered here and sent."""
    if device.type == "cuda" and ids.nbytes <= ON_DEVICE:
        return DeviceSource(ids, tokenizer, context, device)
    return HostSource(ids, tokenizer, context, device)


class HostSource(Source):
    """Gathers by NumPy, from memory or a mapped file."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer, context: Context, device: torch.device) -> None:
        self.text, self.device = Text(ids, tokenizer, context), device

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """As it says above."""
        inputs_BT, targets_BT = self.text.batch(rows)
        return self._send(inputs_BT), self._send(targets_BT)

    def _send(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class DeviceSource(Source):
    """Keeps the ids on the device and gathers there; the same as HostSource, without work for the host."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer, context: Context, device: torch.device) -> None:
        # torch indexes signed integers everywhere: the bits are the same, and a mask makes them unsigned again
        signed = np.array(ids).view(f"<i{ids.itemsize}")
        self.ids, self.mask = torch.from_numpy(signed).to(device), (1 << 8 * ids.itemsize) - 1
        self.first, self.eos = beginning(tokenizer, context), tokenizer.eos if context == "line" else None
        self.device = device

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """As it says above."""
        numbers = torch.from_numpy(np.stack([rows.starts_B, rows.lengths_B, rows.skips_B]).astype(np.int64))
        if self.device.type == "cuda":
            numbers = numbers.pin_memory()
        starts_B1, lengths_B1, skips_B1 = numbers.to(self.device, non_blocking=True).unsqueeze(-1)
        places = starts_B1 + torch.arange(-1, rows.width, device=self.device)
        ids = self.ids[places.clamp_(0, len(self.ids) - 1)].long().bitwise_and_(self.mask)
        is_first_B = starts_B1[:, 0] == 0
        if self.eos is not None:
            is_first_B = is_first_B | (ids[:, 0] == self.eos)
        ids[:, 0].masked_fill_(is_first_B, self.first)
        inputs_BT, targets_BT = ids[:, :-1], ids[:, 1:]
        if not rows.is_full:
            columns_T = torch.arange(rows.width, device=self.device)
            outside_BT = columns_T >= lengths_B1
            inputs_BT = inputs_BT.masked_fill(outside_BT, PAD)
            targets_BT = targets_BT.masked_fill(outside_BT | (columns_T < skips_B1), PAD)
        return inputs_BT.contiguous(), targets_BT.contiguous()
