"""Recurrent language models on the tape: a state of fixed size stands for all tokens read.

    h_t = cell(E x_t, h_{t-1})                   an Elman network, an LSTM or a GRU (cells.py), in layers
    p(next | all tokens before) = softmax(U h_t + c)

Gradients flow back through the tokens that are read at once, and no further: the memory of earlier tokens comes in
as data (truncated back-propagation through time). `networks/recurrent/` has the same networks in torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from chainrule.autodiff.networks.cells import CellState, find_cell, qrnn
from chainrule.autodiff.networks.network import (
    Randomness,
    Reading,
    Shape,
    TapeNetwork,
    dropout,
    fill_table,
    shapes_with_tables,
)
from chainrule.autodiff.tape.modules import Add, Linear, MatMul, Mean, Multiply, Scale
from chainrule.autodiff.tape.moves import Slice, Stack, Transpose, Windows
from chainrule.autodiff.tape.nodes import Array, Node, Value
from chainrule.autodiff.tape.recurrence import ElmanLayer, GruLayer, LstmLayer, QrnnLayer
from chainrule.autodiff.tape.tape import Module, current_tape
from chainrule.networks.config import GATES, PARTS, QrnnConfig, RecurrentConfig
from chainrule.networks.memory import RecurrentMemory

LAYER = "layers.{}.weights.{}_l0"
QRNN_LAYER = "layers.{}.weights.{}"
"""The name of a layer's parameter, from the index of the layer and torch's name of the parameter."""


class TapeRecurrent(TapeNetwork):
    """A recurrent network: layers of cells that read one token after the other."""

    config: RecurrentConfig

    @classmethod
    def shapes(cls, config: RecurrentConfig, vocab_size: int) -> dict[str, Shape]:
        found: dict[str, Shape] = {}
        below, gates = config.embedding, GATES[config.cell]
        for i, width in enumerate(config.widths):
            found[LAYER.format(i, "weight_ih")] = gates * width, below
            found[LAYER.format(i, "weight_hh")] = gates * width, width
            for bias in ("bias_ih", "bias_hh")[: config.biases]:
                found[LAYER.format(i, bias)] = (gates * width,)
            below = width
        if config.learned_start:
            found |= {f"starts.{i}": (PARTS[config.cell], width) for i, width in enumerate(config.widths)}
        return shapes_with_tables(config, vocab_size, found, below)

    @classmethod
    def fill(cls, weight: Array, name: str, config: RecurrentConfig, randomness: Generator) -> None:
        fill_table(weight, name, config, randomness)
        gates = np.split(weight, GATES[config.cell]) if name.startswith("layers") else []
        if "bias_ih" in name and config.cell == "lstm":
            # a forget gate that begins open lets gradients through (Jozefowicz and others 2015)
            gates[1][:] = 1
        elif weight.ndim == 2:
            for gate in gates:
                if "weight_hh" in name and config.orthogonal:
                    gate[:] = _orthogonal(len(gate), randomness)
                else:
                    gate[:] = randomness.uniform(-1, 1, gate.shape) * math.sqrt(6 / sum(gate.shape))

    def recurrent_matrices(self) -> list[Array]:
        found = (one.out_tensor for name, one in self.parameters.items() if "weight_hh" in name)
        return [gate for weight in found for gate in np.split(weight, GATES[self.config.cell])]

    def begin(self, batch_size: int) -> RecurrentMemory:
        # copies, since a tape reuses its arrays
        states = (tuple(part.out_tensor.copy() for part in state) for state in self._first(batch_size))
        return RecurrentMemory(tuple(states))

    def read(
        self, ids_BT: Array, memory: Any = None, is_token_BT: Array | None = None, randomness: Randomness = None
    ) -> Reading:
        config, after = self.config, []
        lengths_B = np.full(len(ids_BT), ids_BT.shape[1]) if is_token_BT is None else is_token_BT.sum(axis=1)
        # time first, so that a step is contiguous in memory
        x: Node = self.embed(ids_BT.T, config.embedding_dropout, randomness)
        x = dropout(x, config.input_dropout, randomness, _one_mask(x))
        for i, state in enumerate(self._first(len(ids_BT), memory)):
            below = dropout(x, config.hidden_dropout, randomness, _one_mask(x)) if i else x
            x, states = self._layer(i, below, state, randomness)
            after.append(self._after(lengths_B, states))
        dropped = dropout(x, config.output_dropout, randomness, _one_mask(x))
        features = self.project(Transpose(0, 1).apply_fwd(dropped))
        return Reading(features, RecurrentMemory(tuple(after)), None if randomness is None else (x, dropped))

    def penalise(self, activations: tuple[Node, Node], is_token_BT: Array) -> Module | None:
        """α mean h_t² of the outputs after dropout, plus β mean (h_t - h_{t-1})² of the outputs before dropout."""
        (raw, dropped), is_token_TB = activations, is_token_BT.T
        alpha, beta, terms = self.config.alpha, self.config.beta, []
        if alpha:
            # AR = α mean h_t²
            terms.append(Scale(alpha).apply_fwd(_mean_square(dropped, is_token_TB)))
        if beta and len(is_token_TB) > 1:
            # TAR = β mean (h_t - h_{t-1})²
            later, earlier = Slice(np.s_[1:]).apply_fwd(raw), Slice(np.s_[:-1]).apply_fwd(raw)
            change = Add().apply_fwd(later, Scale(-1).apply_fwd(earlier))
            terms.append(Scale(beta).apply_fwd(_mean_square(change, is_token_TB[1:])))
        if len(terms) == 2:
            return Add().apply_fwd(*terms)
        return terms[0] if terms else None

    def _layer(
        self, i: int, x_TBD: Node, state: CellState, randomness: Randomness
    ) -> tuple[Module, tuple[Array, ...]]:
        """Return the outputs of layer i at each time, [T, B, H], and its state before the first and after each."""
        W, U, b = (self.parameters[LAYER.format(i, name)] for name in ("weight_ih", "weight_hh", "bias_ih"))
        d = self.parameters.get(LAYER.format(i, "bias_hh"))
        U_kept = dropout(U, self.config.weight_dropout, randomness)
        # W x_t + b does not depend on the state: all times at once
        Wx = Linear().apply_fwd(x_TBD, W, b)
        if reads_at_once(randomness):
            zeros = Value(np.zeros_like(b.out_tensor), "zeros")
            layer = self._whole_layer().apply_fwd(Wx, U_kept, zeros if d is None else d, *state)
            return layer, layer.states
        cell, states, U_d = find_cell(self.config), [state], [U_kept] if d is None else [U_kept, d]
        for t in range(len(Wx.out_tensor)):
            # h_t = cell(x_t, h_{t-1})
            states.append(cell(Slice(t).apply_fwd(Wx), U_d, states[-1]))
        return Stack(axis=0).apply_fwd(*(h for h, *_ in states[1:])), stacked(states)

    def _whole_layer(self) -> ElmanLayer | LstmLayer | GruLayer:
        if self.config.cell == "elman":
            return ElmanLayer(self.config.activation)
        return LstmLayer() if self.config.cell == "lstm" else GruLayer(self.config.reset)

    def _after(self, lengths_B: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the state of a layer after each row's last token, in copies: a tape reuses its arrays."""
        return tuple(part_SBH[lengths_B, np.arange(len(lengths_B))] for part_SBH in states)

    def _first(self, batch_size: int, memory: RecurrentMemory | None = None) -> list[CellState]:
        """Return the state of each layer before the first token: that of the memory, zeros, or learned vectors."""
        if memory is not None:
            return [tuple(Value(part_BH, "state") for part_BH in state) for state in memory.states]
        parts, widths = range(PARTS[self.config.cell]), self.config.widths
        if not self.config.learned_start:
            dtype = self.table.out_tensor.dtype
            return [tuple(Value(np.zeros((batch_size, width), dtype), "state") for _ in parts) for width in widths]
        ones_B1 = np.ones((batch_size, 1), self.table.out_tensor.dtype)
        starts = [self.parameters[f"starts.{i}"] for i in range(len(widths))]
        # the same for every row: 1 sᵀ
        return [
            tuple(MatMul().apply_fwd(ones_B1, Slice(np.s_[n : n + 1]).apply_fwd(start)) for n in parts)
            for start in starts
        ]


class TapeQrnn(TapeRecurrent):
    """A quasi-recurrent network: a convolution, then a recurrence of single numbers.

    z_t, f_t, o_t = tanh, σ, σ of W [x_{t-k+1}; ...; x_t] + b
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t and h_t = o_t ⊙ c_t

    The state of a layer is its memory c and its last inputs.
    """

    config: QrnnConfig

    @classmethod
    def shapes(cls, config: QrnnConfig, vocab_size: int) -> dict[str, Shape]:  # type: ignore[override]
        found: dict[str, Shape] = {}
        below = config.embedding
        for i, width in enumerate(config.widths):
            found[QRNN_LAYER.format(i, "weight")] = 3 * width, config.kernel * below
            found[QRNN_LAYER.format(i, "bias")] = (3 * width,)
            below = width
        if config.learned_start:
            found |= {f"starts.{i}": (1, width) for i, width in enumerate(config.widths)}
        return shapes_with_tables(config, vocab_size, found, below)

    def _layer(
        self, i: int, x_TBD: Node, state: CellState, randomness: Randomness
    ) -> tuple[Module, tuple[Array, ...]]:
        W, b = (self.parameters[QRNN_LAYER.format(i, name)] for name in ("weight", "bias"))
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


def _mean_square(x_TBD: Node, counts_TB: Array) -> Module:
    """Return the mean of x² over the positions where `counts_TB` is true."""
    squares = Multiply().apply_fwd(x_TBD, x_TBD)
    if not counts_TB.all():
        # of n positions m count: Σ x² / m is the mean over all n of x² n / m, with 0 for those that do not count
        share = counts_TB.size / max(int(counts_TB.sum()), 1)
        weights_TB1 = (counts_TB * share)[..., None].astype(x_TBD.out_tensor.dtype)
        squares = Multiply().apply_fwd(squares, Value(weights_TB1, "counted"))
    return Mean().apply_fwd(squares)


def _one_mask(x_TBD: Node) -> tuple[int, ...]:
    """Return the shape of a mask that is the same all along a sequence (Gal and Ghahramani 2016)."""
    return (1, *x_TBD.out_tensor.shape[1:])


def reads_at_once(randomness: Randomness) -> bool:
    """Return True to read all times in one module; pictures and diagnoses record, and need every step."""
    return randomness is not None or not current_tape().is_recording


def stacked(states: Sequence[CellState]) -> tuple[Array, ...]:
    """Return the parts of the states of all steps, [S, B, H] each."""
    return tuple(np.stack([part.out_tensor for part in parts]) for parts in zip(*states, strict=True))


def _orthogonal(size: int, randomness: Generator) -> Array:
    """Return a random orthogonal matrix, which keeps the norm of a vector however often it is multiplied by it."""
    q, r = np.linalg.qr(randomness.normal(size=(size, size)))
    # multiplied by the signs of R's diagonal, Q is uniformly distributed over the orthogonal matrices
    signed: Array = q * np.sign(np.diag(r))
    return signed
