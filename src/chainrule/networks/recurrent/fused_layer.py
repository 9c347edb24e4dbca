"""A recurrent layer that reads a whole batch of sequences in one call: the equations of cells.py, computed fast.

torch computes all time steps of a layer in one function (cuDNN's on a GPU). Its modules, such as nn.LSTM, call that
function with their own weights; here it is called directly, because the weights may have to be changed first: some
dropped (weight dropout), or all cast to the dtype of autocast.

torch has no such function for an Elman layer with another activation than tanh and ReLU, nor for a GRU whose reset
gate comes before the product: these are computed step by step, which is several times slower.

A few long sequences without gradients are read on a GPU by a kernel of our own (stream.py), for every activation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from chainrule.networks.config import GATES, Activation, CellName, Reset
from chainrule.networks.initial_weights import orthogonal_
from chainrule.networks.layers import ACTIVATIONS
from chainrule.networks.precision import working_type
from chainrule.networks.recurrent import cells
from chainrule.networks.recurrent.cells import CellState, CellWeights, keep_where, read_by_steps
from chainrule.networks.recurrent.stream import Stream


class FusedLayer(nn.Module):
    """One recurrent layer, computed by torch's fused function for its cell, or step by step where there is none."""

    SHARES: ClassVar[tuple[str, ...]] = ("weight_dropout",)

    def __init__(
        self,
        cell: CellName,
        activation: Activation,
        below: int,
        width: int,
        weight_dropout: float,
        *,
        reset: Reset = "after",
        biases: int = 2,
        orthogonal: bool = True,
    ) -> None:
        super().__init__()
        self.cell, self.weight_dropout, self.biases = cell, weight_dropout, biases
        self._run: Any
        self._run, self.step = _functions(cell, activation, reset)
        self.stream = Stream(cell, activation, reset)
        # never called: it holds the weights by their usual names
        module = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.weights: nn.RNNBase = module(below, width)
        if biases == 1:
            del self.weights.bias_hh_l0
        self._initialise(orthogonal)

    def forward(self, x_BTD: Tensor, state: CellState, lengths_B: Tensor | None = None) -> tuple[Tensor, CellState]:
        """Return the output at each time step, [B, T, H], and the state after each row's last token.

        Row b has `lengths_B[b]` tokens, then padding, whose outputs mean nothing; None: there is no padding.
        """
        dtype = working_type(self._own().U)
        is_autocast = dtype != self._own().U.dtype
        weights = self._weights(dtype)
        x_BTD, state = x_BTD.to(dtype), tuple(part_BH.to(dtype) for part_BH in state)
        with torch.autocast(x_BTD.device.type, enabled=False) if is_autocast else contextlib.nullcontext():
            if lengths_B is None and (read := self.stream.read(x_BTD, state, weights)) is not None:
                return read
            if self._run is None:
                return read_by_steps(self.step, x_BTD, state, weights, lengths_B)
            hx = [part_BH[None].contiguous() for part_BH in state]
            if lengths_B is not None and x_BTD.shape[1] > 1:
                out_BTH, new = self._read_packed(x_BTD, hx, lengths_B, list(weights))
            else:
                out_BTH, new = self._read(x_BTD, hx, list(weights))
        return out_BTH, new if lengths_B is None else keep_where(lengths_B > 0, new, state)

    def read_by_cells(
        self, x_BTD: Tensor, state: CellState, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, CellState]:
        """Return the same as `forward`, but step by step by the equations of cells.py: the slow reference."""
        return read_by_steps(self.step, x_BTD, state, self._weights(x_BTD.dtype), lengths_B)

    def _read(self, x_BTD: Tensor, hx: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, CellState]:
        batch_first = False  # as torch computes, and as Recurrent lays its arrays out in memory
        x_TBD = x_BTD.transpose(0, 1)
        out_TBH, *after = self._run(x_TBD, self._given(hx), weights, *self._options(), batch_first)
        return out_TBH.transpose(0, 1), tuple(part_1BH[0] for part_1BH in after)

    def _read_packed(
        self, x_BTD: Tensor, hx: list[Tensor], lengths_B: Tensor, weights: list[Tensor]
    ) -> tuple[Tensor, CellState]:
        # a row without tokens cannot be packed: it reads one of padding, and `forward` discards the state after it
        packed = pack_padded_sequence(x_BTD, lengths_B.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        order_B, back_B = packed.sorted_indices, packed.unsorted_indices
        assert order_B is not None and back_B is not None
        sorted_hx = self._given([part_1BH[:, order_B] for part_1BH in hx])
        data, *after = self._run(packed.data, packed.batch_sizes, sorted_hx, weights, *self._options())
        out = PackedSequence(data, packed.batch_sizes, order_B, back_B)
        out_BTH, _ = pad_packed_sequence(out, batch_first=True, total_length=x_BTD.shape[1])
        return out_BTH, tuple(part_1BH[0, back_B] for part_1BH in after)

    def _given(self, hx: list[Tensor]) -> Any:
        return tuple(hx) if self.cell == "lstm" else hx[0]

    def _options(self) -> tuple[bool, int, float, bool, bool]:
        """Arguments of torch's function: has biases, number of layers, dropout, trains, is bidirectional."""
        return True, 1, 0.0, torch.is_grad_enabled(), False

    def _own(self) -> CellWeights:
        W, U, b, *d = self.weights.parameters()
        return CellWeights(W, U, b, d[0] if d else torch.zeros_like(b))

    def _weights(self, dtype: torch.dtype) -> CellWeights:
        """Return the weights of one call: the layer's own, or a copy with what torch's function needs of them."""
        weights = self._own()
        if self.training and self.weight_dropout:
            weights = weights._replace(U=functional.dropout(weights.U, self.weight_dropout))
        elif weights.U.dtype == dtype and (self.biases == 2 or self._run is None):
            return weights
        return _laid_out(weights, dtype)

    @torch.no_grad()
    def lay_out(self) -> None:
        """Move the layer's own weights to one piece of memory, as cuDNN wants them; copying them takes them apart.

        `flatten_parameters` of torch's modules does this too, but not for bfloat16.
        """
        if self.biases == 2:  # a single bias is completed at every call, in new memory
            own = self._own()
            for weight, part in zip(own, _laid_out(own, own.U.dtype), strict=True):
                weight.data = part

    def _apply(self, *arguments: Any, **others: Any) -> Self:
        """Move or cast the weights, as every module does; on a GPU, lay them out for cuDNN."""
        super()._apply(*arguments, **others)  # type: ignore[no-untyped-call]
        if self.weights.weight_hh_l0.is_cuda:
            self.lay_out()
        return self

    @torch.no_grad()
    def _initialise(self, orthogonal: bool) -> None:
        weights = self._own()
        for W, U in zip(weights.W.chunk(GATES[self.cell]), weights.U.chunk(GATES[self.cell]), strict=True):
            nn.init.xavier_uniform_(W)
            # an orthogonal matrix keeps the length of a vector, also when they are multiplied again and again
            orthogonal_(U) if orthogonal else nn.init.xavier_uniform_(U)
        nn.init.zeros_(weights.b)
        nn.init.zeros_(weights.d)
        if self.cell == "lstm":
            # a forget gate that begins open lets gradients through (Jozefowicz and others 2015)
            nn.init.ones_(weights.b.chunk(4)[1])


def _laid_out(weights: CellWeights, dtype: torch.dtype) -> CellWeights:
    """Return the weights in one piece of memory, in cuDNN's order: others it copies at every call, and warns."""
    flat = torch.cat([part.flatten() for part in weights]).to(dtype)
    parts = torch.split(flat, [part.numel() for part in weights])
    return CellWeights(*(part.view_as(like) for part, like in zip(parts, weights, strict=True)))


def _functions(
    cell: CellName, activation: Activation, reset: Reset
) -> tuple[Callable[..., Any] | None, cells.Step]:
    """torch's fused function for a layer of this cell, if there is one, and one step from cells.py."""
    if cell == "lstm":
        return torch.lstm, cells.lstm
    if cell == "gru":
        return torch.gru if reset == "after" else None, partial(cells.gru, reset=reset)
    fused = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}
    return fused.get(activation), partial(cells.elman, f=ACTIVATIONS[activation])
