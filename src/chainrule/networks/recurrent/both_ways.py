"""Layers of recurrent cells that read whole sequences, in one direction or in both.

→h_t = cell(x_t, →h_{t-1})                   from the first token to the last
←h_t = cell'(x_t, ←h_{t+1})                  from the last token to the first
h_t  = [→h_t; ←h_t]                          the output of the layer, which the layer above reads
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chainrule.networks.config import PARTS, CellName
from chainrule.networks.recurrent.cells import CellState
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.networks.regularise import VariationalDropout


class BothWays(nn.Module):
    """A stack of layers of `width` units, half of them for each direction if `both`."""

    def __init__(
        self, cell: CellName, below: int, width: int, layers: int, dropout: float, *, both: bool = True
    ) -> None:
        super().__init__()
        self.cell, self.both = cell, both
        units = width // 2 if both else width
        sizes = [below, *[width] * (layers - 1)]
        self.forwards = nn.ModuleList(FusedLayer(cell, "tanh", size, units, 0.0) for size in sizes)
        self.backwards = nn.ModuleList(FusedLayer(cell, "tanh", size, units, 0.0) for size in sizes if both)
        self.units, self.dropout = units, VariationalDropout(dropout)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> tuple[Tensor, list[CellState]]:
        """Return the output at each time step, [B, T, width], and the last states of each layer, directions joined.

        Row b has `lengths_B[b]` tokens; outputs after them mean nothing.
        """
        last: list[CellState] = []
        nothing = tuple(x_BTD.new_zeros(len(x_BTD), self.units) for _ in range(PARTS[self.cell]))
        for i, forwards in enumerate(self.forwards):
            below_BTD = self.dropout(x_BTD) if i else x_BTD
            x_BTD, state = forwards(below_BTD, nothing, lengths_B)
            if self.both:
                back_BTD, back_state = self.backwards[i](reversed_rows(below_BTD, lengths_B), nothing, lengths_B)
                x_BTD = torch.cat([x_BTD, reversed_rows(back_BTD, lengths_B)], dim=-1)
                state = tuple(torch.cat(pair, dim=-1) for pair in zip(state, back_state, strict=True))
            last.append(state)
        return x_BTD, last


def reversed_rows(x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the tokens of each row in reverse order; padding stays where it is."""
    t_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    places_BT = torch.where(t_T < lengths_B[:, None], lengths_B[:, None] - 1 - t_T, t_T)
    return x_BTD.gather(1, places_BT[..., None].expand_as(x_BTD))
