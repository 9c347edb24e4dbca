"""Recurrent language models on the tape: a state of fixed size carries all that was read.

    h_t = cell(E x_t, h_{t-1})                   an Elman network, an LSTM or a GRU (cells.py), in layers
    p(next | all tokens before) = softmax(U h_t + c)

Gradients flow back through the tokens that are read at once, and no further: what is remembered of earlier ones
comes in as data (truncated back-propagation through time). `neural/recurrent.py` is the same in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from chainrule.autodiff.cells import CellState, find_cell
from chainrule.autodiff.gradients import Array
from chainrule.autodiff.modules import Add, Linear, MatMul, Mean, Multiply, Scale
from chainrule.autodiff.moves import Slice, Stack, Transpose
from chainrule.autodiff.network import Chance, Memory, Reading, TapeNetwork, dropout
from chainrule.autodiff.nodes import Node, Value
from chainrule.autodiff.tape import Module
from chainrule.neural.designs import PARTS, RecurrentConfig

LAYER = "layers.{}.weights.{}_l0"
"""The name of a layer's weight."""

Values: TypeAlias = tuple[Array, ...]
"""A state as arrays: h, of an LSTM h and c, each [B, H]."""


@dataclass(frozen=True)
class States(Memory):
    """The state of each layer."""

    layers: tuple[Values, ...]

    def select(self, rows_B: Array) -> States:
        return States(tuple(tuple(part_BH[rows_B] for part_BH in state) for state in self.layers))


class TapeRecurrent(TapeNetwork):
    """Reads one token after the other, in one state after the other."""

    def __init__(self, config: RecurrentConfig, vocab_size: int, bos: int, tensors: Mapping[str, Array]) -> None:
        super().__init__(vocab_size, bos, tensors, tied=config.tied)
        self.config, self.cell = config, find_cell(config.cell, config.activation)

    def begin(self, batch_size: int) -> States:
        return States(tuple(tuple(_value(part) for part in state) for state in self._first(batch_size)))

    def read(
        self,
        ids_BT: Array,
        memory: States | None = None,
        is_token_BT: Array | None = None,
        chance: Chance | None = None,
    ) -> Reading:
        """As every network reads. Padding, which only what is not recorded can have, leaves states as they are."""
        config = self.config
        states = self._first(len(ids_BT)) if memory is None else _as_nodes(memory)
        # time first: then a step is one piece of memory
        x: Node = self.embed(ids_BT.T, config.embedding_dropout, chance)
        x = dropout(x, config.input_dropout, chance, _one_mask(x))
        after = []
        for i, state in enumerate(states):
            below = dropout(x, config.hidden_dropout, chance, _one_mask(x)) if i else x
            x, state = self._layer(i, below, state, None if is_token_BT is None else is_token_BT.T, chance)
            after.append(tuple(_value(part) for part in state))
        dropped = dropout(x, config.output_dropout, chance, _one_mask(x))
        features = self.project(Transpose(0, 1).apply_fwd(dropped))
        return Reading(features, States(tuple(after)), None if chance is None else (x, dropped))

    def penalise(self, activations: tuple[Node, Node], is_token_BT: Array) -> Module | None:
        """α mean h_t² of what is left after dropout, and β mean (h_t - h_{t-1})² of what there was before it."""
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
        self, i: int, x_TBD: Node, state: CellState, is_token_TB: Array | None, chance: Chance | None
    ) -> tuple[Module, CellState]:
        """What a layer gives out at each time, [T, B, H], and its state after each row's last token."""
        W, U, b, d = (
            self.parameters[LAYER.format(i, name)] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        U_kept = dropout(U, self.config.weight_dropout, chance)
        # W x_t + b does not depend on the state: all times at once
        Wx = Linear().apply_fwd(x_TBD, W, b)
        outputs = []
        for t in range(len(Wx.out_tensor)):
            Uh = Linear().apply_fwd(state[0], U_kept, d)
            # h_t = cell(x_t, h_{t-1})
            new = self.cell(Slice(t).apply_fwd(Wx), Uh, state)
            outputs.append(new[0])
            state = new if is_token_TB is None else _keep_where(is_token_TB[t], new, state)
        return Stack(axis=0).apply_fwd(*outputs), state

    def _first(self, batch_size: int) -> list[CellState]:
        """The states before anything was read: zeros, or what was learned."""
        parts, widths = range(PARTS[self.config.cell]), self.config.widths
        if not self.config.learned_start:
            dtype = self.table.out_tensor.dtype
            return [tuple(Value(np.zeros((batch_size, width), dtype), "state") for _ in parts) for width in widths]
        ones_B1 = np.ones((batch_size, 1))
        starts = [self.parameters[f"starts.{i}"] for i in range(len(widths))]
        # the same for every row: 1 sᵀ
        return [
            tuple(MatMul().apply_fwd(ones_B1, Slice(np.s_[n : n + 1]).apply_fwd(start)) for n in parts)
            for start in starts
        ]


def _mean_square(x_TBD: Node, counts_TB: Array) -> Module:
    """Over the places that count."""
    squares = Multiply().apply_fwd(x_TBD, x_TBD)
    if not counts_TB.all():
        # of n places m count: Σ x² / m is the mean of x² n / m, and 0 for the others
        share = counts_TB.size / max(int(counts_TB.sum()), 1)
        weights_TB1 = (counts_TB * share)[..., None].astype(x_TBD.out_tensor.dtype)
        squares = Multiply().apply_fwd(squares, Value(weights_TB1, "counted"))
    return Mean().apply_fwd(squares)


def _one_mask(x_TBD: Node) -> tuple[int, ...]:
    """The shape of a mask that is the same all along a sequence (Gal and Ghahramani 2016)."""
    return (1, *x_TBD.out_tensor.shape[1:])


def _keep_where(goes_on_B: Array, new: CellState, old: CellState) -> CellState:
    """The new state of the rows that go on, the old one of the others: values only, through which nothing flows."""
    pairs = zip(new, old, strict=True)
    return tuple(Value(np.where(goes_on_B[:, None], n.out_tensor, o.out_tensor), "state") for n, o in pairs)


def _value(part: Node) -> Array:
    """In an array of its own: those of a tape are used again."""
    return part.out_tensor.copy()


def _as_nodes(memory: States) -> list[CellState]:
    return [tuple(Value(part_BH, "state") for part_BH in state) for state in memory.layers]
