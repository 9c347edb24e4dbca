"""Quasi-recurrent language models on the tape: a convolution, then a recurrence of single numbers.

    z_t, f_t, o_t = tanh, σ, σ of W [x_{t-k+1}; ...; x_t] + b
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t and h_t = o_t ⊙ c_t

`networks/recurrent/qrnn.py` is the same network in torch.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.networks.cells import CellState, qrnn
from chainrule.autodiff.networks.network import Randomness, Shape, dropout, shapes_with_tables
from chainrule.autodiff.networks.recurrent import TapeRecurrent, reads_at_once, stacked
from chainrule.autodiff.tape.modules import Linear
from chainrule.autodiff.tape.moves import Slice, Stack, Windows
from chainrule.autodiff.tape.nodes import Array, Node, Value
from chainrule.autodiff.tape.recurrence import QrnnLayer
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import QrnnConfig
from chainrule.networks.memory import RecurrentMemory

LAYER = "layers.{}.weights.{}"
"""The name of a layer's parameter, from the index of the layer and torch's name of the parameter."""


class TapeQrnn(TapeRecurrent):
    """A quasi-recurrent network. The state of a layer is its memory c and its last inputs."""

    config: QrnnConfig

    @classmethod
    def shapes(cls, config: QrnnConfig, vocab_size: int) -> dict[str, Shape]:  # type: ignore[override]
        found: dict[str, Shape] = {}
        below = config.embedding
        for i, width in enumerate(config.widths):
            found[LAYER.format(i, "weight")] = 3 * width, config.kernel * below
            found[LAYER.format(i, "bias")] = (3 * width,)
            below = width
        if config.learned_start:
            found |= {f"starts.{i}": (1, width) for i, width in enumerate(config.widths)}
        return shapes_with_tables(config, vocab_size, found, below)

    def _layer(
        self, i: int, x_TBD: Node, state: CellState, randomness: Randomness
    ) -> tuple[Module, tuple[Array, ...]]:
        W, b = (self.parameters[LAYER.format(i, name)] for name in ("weight", "bias"))
        c, before = state
        W_kept = dropout(W, self.config.weight_dropout, randomness)
        sums = Linear().apply_fwd(Windows().apply_fwd(x_TBD, before), W_kept, b)
        every_SBD = np.concatenate([before.out_tensor.swapaxes(0, 1), x_TBD.out_tensor])
        if reads_at_once(randomness):
            layer = QrnnLayer().apply_fwd(sums, c)
            return layer, (*layer.states, every_SBD)
        steps = [(c, c)]
        for t in range(len(sums.out_tensor)):
            steps.append(qrnn(Slice(t).apply_fwd(sums), steps[-1][1]))
        _, c_SBH = stacked(steps)
        return Stack(axis=0).apply_fwd(*(h for h, _ in steps[1:])), (c_SBH, every_SBD)

    def _after(self, lengths_B: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        c_SBH, every_SBD = states
        rows_B1, kept = np.arange(len(lengths_B))[:, None], np.arange(self.config.kernel - 1)
        return *super()._after(lengths_B, (c_SBH,)), every_SBD[lengths_B[:, None] + kept, rows_B1]

    def _first(self, batch_size: int, memory: RecurrentMemory | None = None) -> list[CellState]:
        states = super()._first(batch_size, memory)
        if memory is not None:
            return states
        dtype, below = self.table.out_tensor.dtype, [self.config.embedding, *self.config.widths]
        shapes = [(batch_size, self.config.kernel - 1, size) for size in below]
        # before the first token there were zeros
        pairs = zip(states, shapes, strict=False)
        return [(c, Value(np.zeros(shape, dtype), "state")) for (c,), shape in pairs]
