"""Recurrent cells on the tape, one step at a time: the lecture's equations as they are.

A cell takes W x_t + b, with the gates side by side in the order of `networks/recurrent/cells.py`, the matrix U and
perhaps the bias d of the state before, and that state: (h,), for an LSTM (h, c). It returns the state after. Gates
and states carry the lecture's letters, by which a picture or a diagnosis finds them on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from chainrule.autodiff import Add, LeakyReLU, Linear, Module, Multiply, Node, ReLU, Scale, Sigmoid, Slice, Tanh
from chainrule.networks.config import RecurrentConfig

CellState: TypeAlias = tuple[Node, ...]
Cell: TypeAlias = Callable[[Node, Sequence[Node], CellState], CellState]
"""A function of W x_t + b, of U and perhaps d, and of the state before."""
ACTIVATIONS: Mapping[str, type[Module]] = {"tanh": Tanh, "sigmoid": Sigmoid, "relu": ReLU, "leaky-relu": LeakyReLU}
_Applied = TypeVar("_Applied", bound=Module)


def elman(Wx: Node, U_d: Sequence[Node], state: CellState, f: type[Module] = Tanh) -> CellState:
    """Compute a step of the simple recurrent network (Elman 1990), with activation f."""
    Uh = Linear().apply_fwd(state[0], *U_d)
    # h_t = f(W x_t + b + U h_{t-1} + d)
    return (_named("h", f().apply_fwd(Add().apply_fwd(Wx, Uh))),)


def lstm(Wx: Node, U_d: Sequence[Node], state: CellState) -> CellState:
    """Compute a step of long short-term memory (Hochreiter and Schmidhuber 1997; Gers and others 2000)."""
    h, c = state
    sums = _gates(Add().apply_fwd(Wx, Linear().apply_fwd(h, *U_d)), 4)
    # i_t = σ(W_i x_t + U_i h_{t-1} + b_i), and f_t and o_t likewise; g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)
    i = _named("i", Sigmoid().apply_fwd(sums[0]), "input")
    f = _named("f", Sigmoid().apply_fwd(sums[1]), "forget")
    g = _named("g", Tanh().apply_fwd(sums[2]), "candidate")
    o = _named("o", Sigmoid().apply_fwd(sums[3]), "output")
    # c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
    c = _named("c", Add().apply_fwd(Multiply().apply_fwd(f, c), Multiply().apply_fwd(i, g)))
    # h_t = o_t ⊙ tanh(c_t)
    return _named("h", Multiply().apply_fwd(o, Tanh().apply_fwd(c))), c


def gru(Wx: Node, U_d: Sequence[Node], state: CellState) -> CellState:
    """Compute a step of the GRU (Cho and others 2014), with the reset gate after the product, as in torch."""
    (h,) = state
    (r_x, z_x, n_x), (r_h, z_h, n_h) = _gates(Wx, 3), _gates(Linear().apply_fwd(h, *U_d), 3)
    # r_t = σ(W_r x_t + U_r h_{t-1} + b_r),  z_t = σ(W_z x_t + U_z h_{t-1} + b_z)
    r = _named("r", Sigmoid().apply_fwd(Add().apply_fwd(r_x, r_h)), "reset")
    z = _named("z", Sigmoid().apply_fwd(Add().apply_fwd(z_x, z_h)), "update")
    # n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + d_n))
    n = _named("n", Tanh().apply_fwd(Add().apply_fwd(n_x, Multiply().apply_fwd(r, n_h))), "candidate")
    return _updated(z, n, h)


def gru_reset_before(Wx: Node, U_d: Sequence[Node], state: CellState) -> CellState:
    """Compute a step of the GRU with the reset gate before the product, as in the paper."""
    (h,) = state
    (r_x, z_x, n_x), last = _gates(Wx, 3), len(U_d[0].out_tensor) // 3 * 2
    U_rz, U_n = ([Slice(rows).apply_fwd(one) for one in U_d] for rows in (slice(0, last), slice(last, None)))
    r_h, z_h = _gates(Linear().apply_fwd(h, *U_rz), 2)
    # r_t = σ(W_r x_t + U_r h_{t-1} + b_r),  z_t = σ(W_z x_t + U_z h_{t-1} + b_z)
    r = _named("r", Sigmoid().apply_fwd(Add().apply_fwd(r_x, r_h)), "reset")
    z = _named("z", Sigmoid().apply_fwd(Add().apply_fwd(z_x, z_h)), "update")
    # n_t = tanh(W_n x_t + b_n + U_n (r_t ⊙ h_{t-1}) + d_n)
    n_h = Linear().apply_fwd(Multiply().apply_fwd(r, h), *U_n)
    n = _named("n", Tanh().apply_fwd(Add().apply_fwd(n_x, n_h)), "candidate")
    return _updated(z, n, h)


def _updated(z: Node, n: Node, h: Node) -> CellState:
    # h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}
    new = Multiply().apply_fwd(Scale(-1, 1).apply_fwd(z), n)
    return (_named("h", Add().apply_fwd(new, Multiply().apply_fwd(z, h))),)


def qrnn(sums: Node, c: Node) -> tuple[Node, Node]:
    """Compute a step of the quasi-recurrent network (Bradbury and others 2016), from W [...; x_t] + b."""
    gates = _gates(sums, 3)
    z = _named("z", Tanh().apply_fwd(gates[0]), "candidate")
    f = _named("f", Sigmoid().apply_fwd(gates[1]), "forget")
    o = _named("o", Sigmoid().apply_fwd(gates[2]), "output")
    # c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t
    new = Multiply().apply_fwd(Scale(-1, 1).apply_fwd(f), z)
    c = _named("c", Add().apply_fwd(Multiply().apply_fwd(f, c), new))
    # h_t = o_t ⊙ c_t
    return _named("h", Multiply().apply_fwd(o, c)), c


def find_cell(config: RecurrentConfig) -> Cell:
    if config.cell == "elman":
        return partial(elman, f=ACTIVATIONS[config.activation])
    return {"lstm": lstm, "gru": gru if config.reset == "after" else gru_reset_before}[config.cell]


def _named(symbol: str, module: _Applied, gate: str = "") -> _Applied:
    module.symbol, module.gate = symbol, gate
    return module


def _gates(sums: Node, count: int) -> list[Module]:
    """Split the last axis into `count` gates of equal width."""
    width = sums.out_tensor.shape[-1] // count
    return [Slice(np.s_[..., n * width : (n + 1) * width]).apply_fwd(sums) for n in range(count)]
