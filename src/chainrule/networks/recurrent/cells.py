"""Recurrent cells, one step at a time: the lecture's equations as they are.

`fused_layer.py` computes the same with torch's fused functions, from the same weights; tests hold the two equal.
The weights are laid out as in torch, with the gates of a cell stacked in one matrix:

    elman    W [H, D]    U [H, H]
    lstm     W [4H, D]   U [4H, H]     input, forget, candidate, output
    gru      W [3H, D]   U [3H, H]     reset, update, candidate
    qrnn     W [3H, kD]                candidate, forget, output

and each has two biases, b beside W and d beside U; with one bias, d is 0. A state is (h,), for an LSTM (h, c). A
QRNN has no U and no d; its state is its memory c and the last k-1 inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from chainrule.networks.config import Reset

CellState: TypeAlias = tuple[Tensor, ...]


class CellWeights(NamedTuple):
    """The weights of a layer, in torch's order."""

    W: Tensor
    U: Tensor
    b: Tensor
    d: Tensor


Step: TypeAlias = Callable[[Tensor, CellState, CellWeights], CellState]


def elman(
    x_BD: Tensor, state: CellState, weights: CellWeights, f: Callable[[Tensor], Tensor] = torch.tanh
) -> CellState:
    """Take a step of the simple recurrent network (Elman 1990); f is its activation."""
    (h_BH,) = state
    # h_t = f(W x_t + b + U h_{t-1} + d)
    return (f(_affine(x_BD, weights.W, weights.b) + _affine(h_BH, weights.U, weights.d)),)


def lstm(x_BD: Tensor, state: CellState, weights: CellWeights) -> CellState:
    """Take a step of long short-term memory (Hochreiter and Schmidhuber 1997; Gers and others 2000)."""
    h_BH, c_BH = state
    sums = _affine(x_BD, weights.W, weights.b) + _affine(h_BH, weights.U, weights.d)
    input_BH, forget_BH, candidate_BH, output_BH = sums.chunk(4, dim=-1)
    # i_t = σ(W_i x_t + U_i h_{t-1} + b_i), and f_t and o_t likewise
    i_BH, f_BH, o_BH = torch.sigmoid(input_BH), torch.sigmoid(forget_BH), torch.sigmoid(output_BH)
    # g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)
    g_BH = torch.tanh(candidate_BH)
    # c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
    c_BH = f_BH * c_BH + i_BH * g_BH
    # h_t = o_t ⊙ tanh(c_t)
    return o_BH * torch.tanh(c_BH), c_BH


def gru(x_BD: Tensor, state: CellState, weights: CellWeights, reset: Reset = "after") -> CellState:
    """Take a step of the gated recurrent unit (Cho and others 2014).

    In the paper and in lectures the reset gate is applied to h_{t-1}, before the product with U_n. cuDNN and torch
    apply it to U_n h_{t-1} + d_n, after the product, so that all three products with h_{t-1} are computed at once.
    """
    (h_BH,) = state
    reset_x, update_x, candidate_x = _affine(x_BD, weights.W, weights.b).chunk(3, dim=-1)
    (U_r, U_z, U_n), (d_r, d_z, d_n) = weights.U.chunk(3), weights.d.chunk(3)
    # r_t = σ(W_r x_t + U_r h_{t-1} + b_r),  z_t = σ(W_z x_t + U_z h_{t-1} + b_z)
    r_BH = torch.sigmoid(reset_x + _affine(h_BH, U_r, d_r))
    z_BH = torch.sigmoid(update_x + _affine(h_BH, U_z, d_z))
    if reset == "before":
        # n_t = tanh(W_n x_t + b_n + U_n (r_t ⊙ h_{t-1}) + d_n)
        n_BH = torch.tanh(candidate_x + _affine(r_BH * h_BH, U_n, d_n))
    else:
        # n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + d_n))
        n_BH = torch.tanh(candidate_x + r_BH * _affine(h_BH, U_n, d_n))
    # h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}
    return ((1 - z_BH) * n_BH + z_BH * h_BH,)


def qrnn_gates(sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the candidate, the forget and the output gate of a QRNN from W [x_{t-k+1}; ...; x_t] + b."""
    z, f, o = sums.chunk(3, dim=-1)
    return torch.tanh(z), torch.sigmoid(f), torch.sigmoid(o)


def qrnn(inputs_BK: Tensor, c_BH: Tensor, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Take a step of a quasi-recurrent network (Bradbury and others 2016), from its last k inputs side by side.

    Return h and c. Nothing is multiplied by a matrix on the way from c_{t-1} to c_t.
    """
    z_BH, f_BH, o_BH = qrnn_gates(_affine(inputs_BK, W, b))
    # c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t
    c_BH = f_BH * c_BH + (1 - f_BH) * z_BH
    # h_t = o_t ⊙ c_t
    return o_BH * c_BH, c_BH


def read_by_steps(
    step: Step, x_BTD: Tensor, state: CellState, weights: CellWeights, lengths_B: Tensor | None = None
) -> tuple[Tensor, CellState]:
    """Return a layer's output at each time step, [B, T, H], and its state after each row's last token."""
    outputs = []
    for t in range(x_BTD.shape[1]):
        new = step(x_BTD[:, t], state, weights)
        outputs.append(new[0])
        state = new if lengths_B is None else keep_where(t < lengths_B, new, state)
    return torch.stack(outputs, dim=1), state


def keep_where(goes_on_B: Tensor, new: CellState, old: CellState) -> CellState:
    """Return the new state of the rows that go on, the old one of the others."""
    return tuple(torch.where(goes_on_B[:, None], n, o) for n, o in zip(new, old, strict=True))


def _affine(x_BD: Tensor, W_HD: Tensor, b_H: Tensor) -> Tensor:
    return x_BD @ W_HD.T + b_H
