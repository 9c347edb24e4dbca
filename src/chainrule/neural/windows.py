"""What a network with a window still sees of each row, and how the window slides.

Index i of a row (<s> has index 0) is read in the first of the windows [k·slide, k·slide + window) that holds it: a
full window drops its oldest `slide` tokens, reads the others again, and goes on. What a model says is thus a
function of what was read and not of the pieces it was read in, and once a window is full, every token has at least
window - slide tokens before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """The tokens of each row that are in its window."""

    ids_BW: Tensor
    """As many as `lengths_B` says are in the window; what is behind them means nothing."""
    lengths_B: Tensor
    longest: int
    """No row is longer: the host knows this without asking the device."""
    is_uniform: bool
    """Every row is known to be exactly as long."""

    @classmethod
    def empty(cls, batch_size: int, size: int, device: torch.device) -> Window:
        """Nothing read."""
        ids_BW = torch.zeros(batch_size, size, dtype=torch.int64, device=device)
        return cls(ids_BW, torch.zeros(batch_size, dtype=torch.int64, device=device), 0, True)

    @property
    def size(self) -> int:
        """How many tokens fit."""
        return self.ids_BW.shape[1]

    def select(self, rows_B: Tensor) -> Window:
        """Row i is row rows_B[i]."""
        return Window(self.ids_BW[rows_B], self.lengths_B[rows_B], self.longest, self.is_uniform)

    def append(self, ids_BT: Tensor, is_token_BT: Tensor | None) -> Window:
        """The window after more tokens, which fit."""
        width = ids_BT.shape[1]
        counts_B: Tensor | int = width if is_token_BT is None else is_token_BT.sum(dim=1)
        if self.is_uniform:
            ids_BW = torch.cat([self.ids_BW[:, : self.longest], ids_BT, self.ids_BW[:, self.longest + width :]], 1)
        else:
            # padding is written too, behind the row's last token, where the next one takes its place
            places_BT = self.lengths_B[:, None] + torch.arange(width, device=ids_BT.device)
            ids_BW = self.ids_BW.scatter(1, places_BT, ids_BT)
        uniform = self.is_uniform and is_token_BT is None
        return Window(ids_BW, self.lengths_B + counts_B, self.longest + width, uniform)

    def counted(self) -> Window:
        """The same, after asking the device how long rows are."""
        if self.is_uniform or not len(self.lengths_B):
            return self
        longest, shortest = int(self.lengths_B.max()), int(self.lengths_B.min())
        return Window(self.ids_BW, self.lengths_B, longest, longest == shortest)

    def slid(self, by: int) -> Window:
        """Full rows without their oldest tokens; the others as they are."""
        drop_B = torch.where(self.lengths_B == self.size, by, 0)
        places_BW = (torch.arange(self.size, device=self.ids_BW.device) + drop_B[:, None]).clamp(max=self.size - 1)
        lengths_B = self.lengths_B - drop_B
        return Window(self.ids_BW.gather(1, places_BW), lengths_B, self.size, False).counted()


def spans(length: int, size: int, slide: int) -> list[tuple[int, int, int]]:
    """How `length` indices are read: (begin, end, first new) of each window."""
    result, done, begin = [], 0, 0
    while done < length:
        end = min(begin + size, length)
        result.append((begin, end, done))
        done, begin = end, begin + slide
    return result
