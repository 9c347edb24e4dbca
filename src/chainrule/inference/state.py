"""The state of a network as a language model: its memory, and the window of tokens that it still sees.

Index i of a row (<s> has index 0) is read in the first of the windows [k·slide, k·slide + window) that holds it: a
full window drops its oldest `slide` tokens, reads the others again, and goes on. Predictions thus depend on the
tokens that were read and not on the pieces they were read in, and once a window is full, every token has at least
window - slide tokens before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import Array
from chainrule.contract.lm import State
from chainrule.networks.memory import Memory


@dataclass(frozen=True)
class Window:
    """The tokens of each row that are in its window."""

    ids_BW: Tensor
    """The first `lengths_B[b]` ids of row b are in the window; those after them mean nothing."""
    lengths_B: Tensor
    longest: int
    """An upper bound of `lengths_B`, which the host knows without waiting for the device."""
    is_uniform: bool
    """True if every row is known to have exactly `longest` tokens."""

    @classmethod
    def empty(cls, batch_size: int, size: int, device: torch.device) -> Window:
        """Return a window without tokens."""
        ids_BW = torch.zeros(batch_size, size, dtype=torch.int64, device=device)
        return cls(ids_BW, torch.zeros(batch_size, dtype=torch.int64, device=device), 0, True)

    @property
    def size(self) -> int:
        """The number of tokens that fit into the window."""
        return self.ids_BW.shape[1]

    def select(self, rows_B: Tensor) -> Window:
        """Return the window whose row i is row rows_B[i] of this one."""
        return Window(self.ids_BW[rows_B], self.lengths_B[rows_B], self.longest, self.is_uniform)

    def join(self, other: Window) -> Window:
        """Return the window with the rows of this one and then those of the other."""
        is_uniform = self.is_uniform and other.is_uniform and self.longest == other.longest
        ids_BW = torch.cat([self.ids_BW, other.ids_BW])
        lengths_B = torch.cat([self.lengths_B, other.lengths_B])
        return Window(ids_BW, lengths_B, max(self.longest, other.longest), is_uniform)

    def append(self, ids_BT: Tensor, is_token_BT: Tensor | None) -> Window:
        """Return the window with more tokens, which must fit, after those of each row."""
        width = ids_BT.shape[1]
        counts_B: Tensor | int = width if is_token_BT is None else is_token_BT.sum(dim=1)
        if self.is_uniform:
            ids_BW = torch.cat([self.ids_BW[:, : self.longest], ids_BT, self.ids_BW[:, self.longest + width :]], 1)
        else:
            # padding is written too, after the row's last token, where the next token overwrites it
            places_BT = self.lengths_B[:, None] + torch.arange(width, device=ids_BT.device)
            ids_BW = self.ids_BW.scatter(1, places_BT, ids_BT)
        uniform = self.is_uniform and is_token_BT is None
        return Window(ids_BW, self.lengths_B + counts_B, self.longest + width, uniform)

    def counted(self) -> Window:
        """Return this window with exact `longest` and `is_uniform`; waits for the device."""
        if self.is_uniform or not len(self.lengths_B):
            return self
        longest, shortest = int(self.lengths_B.max()), int(self.lengths_B.min())
        return Window(self.ids_BW, self.lengths_B, longest, longest == shortest)

    def slid(self, by: int) -> Window:
        """Return the window without the `by` oldest tokens of full rows; other rows stay as they are."""
        drop_B = torch.where(self.lengths_B == self.size, by, 0)
        places_BW = (torch.arange(self.size, device=self.ids_BW.device) + drop_B[:, None]).clamp(max=self.size - 1)
        lengths_B = self.lengths_B - drop_B
        return Window(self.ids_BW.gather(1, places_BW), lengths_B, self.size, False).counted()


def last_window(length: int, size: int, slide: int) -> int:
    """Return where the last window begins if `length` indices are read: the first window that reaches the end.

    >>> last_window(length=7, size=4, slide=2)  # 0-3, 2-5, 4-6
    4
    """
    return max(-((size - length) // slide), 0) * slide


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
    """Return ids as a tensor on a device."""
    if isinstance(ids, Tensor):
        return ids.to(device, torch.int64)
    return torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(device)
