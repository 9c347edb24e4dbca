"""Quasi-recurrent language models (Bradbury and others 2016): a convolution, then a recurrence of single numbers.

    z_t, f_t, o_t = tanh, σ, σ of W [x_{t-k+1}; ...; x_t] + b      for all times at once: no state is needed
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t                          a scan, without a product of matrices
    h_t = o_t ⊙ c_t

So almost all of the work is one large product, where an LSTM has a small one for each time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.networks.config import QrnnConfig
from chainrule.networks.memory import RecurrentMemory
from chainrule.networks.precision import wide_type, working_type
from chainrule.networks.recurrent.cells import CellState, qrnn, qrnn_gates
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.recurrent.scan import scan


class QrnnLayer(nn.Module):
    """One layer: the causal convolution of width `kernel`, and the scan; called like a `FusedLayer`."""

    SHARES: ClassVar[tuple[str, ...]] = ("weight_dropout",)

    def __init__(self, below: int, width: int, kernel: int, weight_dropout: float) -> None:
        super().__init__()
        self.kernel, self.weight_dropout = kernel, weight_dropout
        self.weights = nn.Linear(kernel * below, 3 * width)
        with torch.no_grad():
            for W in self.weights.weight.chunk(3):
                nn.init.xavier_uniform_(W)
            nn.init.zeros_(self.weights.bias)

    def forward(self, x_BTD: Tensor, state: CellState, lengths_B: Tensor | None = None) -> tuple[Tensor, CellState]:
        """Return the output at each time step, [B, T, H], and the state after each row's last token."""
        every_SBD, inputs_TBK = self._inputs(x_BTD, state)
        sums_TBG = functional.linear(inputs_TBK, self._dropped(), self.weights.bias)
        # the memory may decay slowly, by less than bfloat16 can tell from 1
        dtype = wide_type(sums_TBG)
        (z_TBH, f_TBH, o_TBH), c_BH = qrnn_gates(sums_TBG.to(dtype)), state[0].to(dtype)
        c_TBH = scan(f_TBH, (1 - f_TBH) * z_TBH, c_BH)
        h_TBH = (o_TBH * c_TBH).to(sums_TBG.dtype)
        return h_TBH.transpose(0, 1), self._after(c_BH, c_TBH, every_SBD, lengths_B)

    def read_by_cells(
        self, x_BTD: Tensor, state: CellState, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, CellState]:
        """Return the same as `forward`, but step by step by the equations of cells.py: the slow reference."""
        every_SBD, inputs_TBK = self._inputs(x_BTD, state)
        W, b, c_BH, steps = self._dropped(), self.weights.bias, state[0], []
        for inputs_BK in inputs_TBK:
            h_BH, c_BH = qrnn(inputs_BK, c_BH, W, b)
            steps.append((h_BH, c_BH))
        h_TBH, c_TBH = (torch.stack(parts) for parts in zip(*steps, strict=True))
        return h_TBH.transpose(0, 1), self._after(state[0], c_TBH, every_SBD, lengths_B)

    def _inputs(self, x_BTD: Tensor, state: CellState) -> tuple[Tensor, Tensor]:
        """Return the inputs of all times after those of the state, and beside each time those just before it."""
        dtype = working_type(self.weights.weight)
        every_SBD = torch.cat([part.to(dtype).transpose(0, 1) for part in (state[1], x_BTD)])
        # [x_{t-k+1}; ...; x_t]
        return every_SBD, torch.cat([every_SBD[k : k + x_BTD.shape[1]] for k in range(self.kernel)], dim=-1)

    def _dropped(self) -> Tensor:
        if not (self.training and self.weight_dropout):
            return self.weights.weight
        return functional.dropout(self.weights.weight, self.weight_dropout)

    def _after(self, c_BH: Tensor, c_TBH: Tensor, every_SBD: Tensor, lengths_B: Tensor | None) -> CellState:
        """Return the state after each row's last token, in copies: the arrays of all times are not kept alive."""
        dtype = every_SBD.dtype
        if lengths_B is None:
            return c_TBH[-1].to(dtype, copy=True), every_SBD[len(c_TBH) :].transpose(0, 1).clone()
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        places_BK = lengths_B[:, None] + torch.arange(self.kernel - 1, device=lengths_B.device)
        return torch.cat([c_BH[None], c_TBH])[lengths_B, rows_B].to(dtype), every_SBD[places_BK, rows_B[:, None]]


class Qrnn(Recurrent):
    """A network of quasi-recurrent layers."""

    config: QrnnConfig

    def make_layer(self, below: int, width: int) -> nn.Module:
        return QrnnLayer(below, width, self.config.kernel, self.config.weight_dropout)

    def begin(self, batch_size: int) -> RecurrentMemory:
        memory, before = super().begin(batch_size), self.config.kernel - 1
        below = [self.config.embedding, *self.config.widths]
        # before the first token there were zeros
        states = zip(memory.states, below, strict=False)
        return replace(memory, states=tuple((c, c.new_zeros(batch_size, before, size)) for (c,), size in states))
