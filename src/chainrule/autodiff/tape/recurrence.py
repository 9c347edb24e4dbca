"""Whole recurrent layers as single modules: the same numbers as `networks/cells.py` step by step, far faster.

A step of a cell on the tape is a dozen modules. Training needs none of their names, so a layer reads all times in
one module, with one product for each time. `cells.py` is the reference.

    inputs: Wx_TBG = W x_t + b for all times, U [G, H], d [G], and the state before: h_BH, for an LSTM c_BH too
    value:  h_TBH, the outputs at all times

Axes: T time, S = T + 1 the time before the first one and all times, B batch, G gates side by side, H units.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.nodes import Array
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import LEAK, Reset


class _RecurrentLayer(Module):
    states: tuple[Array, ...]
    """The parts of the state, before the first time and after each one, [S, B, H] each."""

    def _begin(self, x_TBG: Array, *state: Array) -> tuple[Array, ...]:
        """Make room for the states of all times, and write the first one."""
        self.states = tuple(self.empty((len(x_TBG) + 1, *part_BH.shape), x_TBG.dtype) for part_BH in state)
        for part_SBH, part_BH in zip(self.states, state, strict=True):
            part_SBH[0] = part_BH
        return self.states

    def _weight_gradients(self, g_TBG: Array) -> tuple[Array, Array]:
        """Return dL/dU and dL/dd from the gradient of U h_{t-1} + d at all times."""
        rows, h_SBH = g_TBG.reshape(-1, g_TBG.shape[-1]), self.states[0]
        return rows.T @ h_SBH[:-1].reshape(len(rows), -1), rows.sum(axis=0)


class ElmanLayer(_RecurrentLayer):
    """h_t = f(W x_t + b + U h_{t-1} + d), where f is tanh, σ, ReLU or leaky ReLU."""

    formula = "f({0} + {1} h_{{t-1}} + {2})"

    def __init__(self, activation: str = "tanh") -> None:
        self.activation, self._leak = activation, LEAK if activation == "leaky-relu" else 0.0

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array) -> Array:
        (h_SBH,) = self._begin(Wx_TBG, h_BH)
        for t, Wx in enumerate(Wx_TBG):
            h = np.matmul(h_SBH[t], U.T, out=h_SBH[t + 1])
            h += Wx
            h += d
            if self.activation == "tanh":
                np.tanh(h, out=h)
            elif self.activation == "sigmoid":
                _activate(h)
            else:
                np.maximum(h, self._leak * h, out=h)
        return h_SBH[1:]

    def backward(self, Wx: Array, U: Array, d: Array, h_BH: Array, h_TBH: Array, g: Array) -> tuple[Array, ...]:
        g_TBG, dh = self.empty(g.shape, g.dtype), np.zeros_like(g[0])
        for t in reversed(range(len(g))):
            np.multiply(g[t] + dh, self._slope(h_TBH[t]), out=g_TBG[t])
            dh = g_TBG[t] @ U
        return g_TBG, *self._weight_gradients(g_TBG), dh

    def _slope(self, h_BH: Array) -> Array:
        """Return df/dx where h = f(x)."""
        if self.activation == "tanh":
            return 1 - h_BH**2
        return h_BH * (1 - h_BH) if self.activation == "sigmoid" else np.where(h_BH > 0, 1, self._leak)


class LstmLayer(_RecurrentLayer):
    """c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t and h_t = o_t ⊙ tanh(c_t), with i, f, o = σ(...) and g = tanh(...)."""

    formula = "LSTM of {0} + {1} h_{{t-1}} + {2}"

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array, c_BH: Array) -> Array:
        h_SBH, c_SBH = self._begin(Wx_TBG, h_BH, c_BH)
        gates_TBG, tanh_TBH = self.empty(Wx_TBG.shape, Wx_TBG.dtype), self.empty(h_SBH[1:].shape, Wx_TBG.dtype)
        i, f, g, o = np.split(gates_TBG, 4, axis=-1)
        H = h_BH.shape[-1]
        for t, Wx in enumerate(Wx_TBG):
            gates = np.matmul(h_SBH[t], U.T, out=gates_TBG[t])
            gates += Wx
            gates += d
            _activate(gates, slice(2 * H, 3 * H))
            np.multiply(f[t], c_SBH[t], out=c_SBH[t + 1])
            c_SBH[t + 1] += i[t] * g[t]
            np.multiply(o[t], np.tanh(c_SBH[t + 1], out=tanh_TBH[t]), out=h_SBH[t + 1])
        self._kept = gates_TBG, tanh_TBH
        return h_SBH[1:]

    def backward(self, g: Array) -> tuple[Array, ...]:
        U, (gates_TBG, tanh_TBH), (_, c_SBH) = self.in_modules[1].out_tensor, self._kept, self.states
        g_TBG, dh, dc = self.empty(gates_TBG.shape, g.dtype), np.zeros_like(g[0]), np.zeros_like(g[0])
        i, f, candidate, o = np.split(gates_TBG, 4, axis=-1)
        di, df, dg, do = np.split(g_TBG, 4, axis=-1)
        for t in reversed(range(len(g))):
            dh = g[t] + dh
            dc = dc + dh * o[t] * (1 - tanh_TBH[t] ** 2)
            np.multiply(dc * candidate[t], i[t] * (1 - i[t]), out=di[t])
            np.multiply(dc * c_SBH[t], f[t] * (1 - f[t]), out=df[t])
            np.multiply(dc * i[t], 1 - candidate[t] ** 2, out=dg[t])
            np.multiply(dh * tanh_TBH[t], o[t] * (1 - o[t]), out=do[t])
            dc, dh = dc * f[t], g_TBG[t] @ U
        return g_TBG, *self._weight_gradients(g_TBG), dh, dc


class GruLayer(_RecurrentLayer):
    """h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}, where the reset gate comes after the product with U_n, or before it.

    after:   n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + d_n))
    before:  n_t = tanh(W_n x_t + b_n + U_n (r_t ⊙ h_{t-1}) + d_n)
    """

    formula = "GRU of {0} and {1} h_{{t-1}} + {2}"

    def __init__(self, reset: Reset = "after") -> None:
        self.reset = reset

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array) -> Array:
        (h_SBH,) = self._begin(Wx_TBG, h_BH)
        gates_TBG, inner_TBH = self.empty(Wx_TBG.shape, Wx_TBG.dtype), self.empty(h_SBH[1:].shape, Wx_TBG.dtype)
        r, z, n = np.split(gates_TBG, 3, axis=-1)
        last = 2 * h_BH.shape[-1]
        for t, Wx in enumerate(Wx_TBG):
            gates, inner = gates_TBG[t], inner_TBH[t]
            if self.reset == "after":
                np.matmul(h_SBH[t], U.T, out=gates)
                gates += d
                inner[:] = n[t]
                gates[:, :last] += Wx[:, :last]
                _activate(gates[:, :last])
                np.multiply(r[t], inner, out=n[t])
            else:
                gates[:, :last] = h_SBH[t] @ U[:last].T + d[:last] + Wx[:, :last]
                _activate(gates[:, :last])
                np.multiply(r[t], h_SBH[t], out=inner)
                n[t] = inner @ U[last:].T + d[last:]
            n[t] += Wx[:, last:]
            np.tanh(n[t], out=n[t])
            np.add(n[t], z[t] * (h_SBH[t] - n[t]), out=h_SBH[t + 1])
        # U_n h_{t-1} + d_n, or r_t ⊙ h_{t-1}
        self._kept = gates_TBG, inner_TBH
        return h_SBH[1:]

    def backward(self, g: Array) -> tuple[Array, ...]:
        U, (gates_TBG, inner_TBH), (h_SBH,) = self.in_modules[1].out_tensor, self._kept, self.states
        last = 2 * h_SBH.shape[-1]
        g_TBG, dh = self.empty(gates_TBG.shape, g.dtype), np.zeros_like(g[0])
        # the gradient of U h_{t-1} + d, where r_t is a factor of the last part
        gU_TBG = self.empty(gates_TBG.shape, g.dtype) if self.reset == "after" else g_TBG
        (r, z, n), (dr, dz, dn) = (np.split(each, 3, axis=-1) for each in (gates_TBG, g_TBG))
        for t in reversed(range(len(g))):
            dh = g[t] + dh
            np.multiply(dh * (1 - z[t]), 1 - n[t] ** 2, out=dn[t])
            np.multiply(dh * (h_SBH[t] - n[t]), z[t] * (1 - z[t]), out=dz[t])
            if self.reset == "after":
                np.multiply(dn[t] * inner_TBH[t], r[t] * (1 - r[t]), out=dr[t])
                gU_TBG[t] = g_TBG[t]
                gU_TBG[t, :, last:] *= r[t]
                dh = dh * z[t] + gU_TBG[t] @ U
            else:
                drh = dn[t] @ U[last:]
                np.multiply(drh * h_SBH[t], r[t] * (1 - r[t]), out=dr[t])
                dh = dh * z[t] + drh * r[t] + g_TBG[t, :, :last] @ U[:last]
        dU, dd = self._weight_gradients(gU_TBG)
        if self.reset == "before":  # U_n was multiplied by r_t ⊙ h_{t-1}
            rows = dn.reshape(-1, dn.shape[-1])
            dU[last:] = rows.T @ inner_TBH.reshape(len(rows), -1)
        return g_TBG, dU, dd, dh


class QrnnLayer(_RecurrentLayer):
    """c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t and h_t = o_t ⊙ c_t, with z = tanh(...) and f, o = σ(...).

    Its inputs are the sums z, f, o side by side, [T, B, 3H], which need no state, and c_BH; its state is c.
    """

    formula = "QRNN of {0}"

    def forward(self, sums_TBG: Array, c_BH: Array) -> Array:
        (c_SBH,) = self._begin(sums_TBG, c_BH)
        self._gates_TBG = gates_TBG = self.empty(sums_TBG.shape, sums_TBG.dtype)
        gates_TBG[:] = sums_TBG
        _activate(gates_TBG, slice(0, c_BH.shape[-1]))
        z, f, o = np.split(gates_TBG, 3, axis=-1)
        for t in range(len(sums_TBG)):
            np.subtract(c_SBH[t], z[t], out=c_SBH[t + 1])
            c_SBH[t + 1] *= f[t]
            c_SBH[t + 1] += z[t]
        h_TBH: Array = np.multiply(o, c_SBH[1:], out=self.empty(o.shape, o.dtype))
        return h_TBH

    def backward(self, g: Array) -> tuple[Array, ...]:
        g_TBG, (c_SBH,) = self.empty(self._gates_TBG.shape, g.dtype), self.states
        (z, f, o), (dz, df, do) = (np.split(each, 3, axis=-1) for each in (self._gates_TBG, g_TBG))
        dc_TBH = g * o
        for t in reversed(range(len(g) - 1)):
            dc_TBH[t] += dc_TBH[t + 1] * f[t + 1]
        np.multiply(dc_TBH * (1 - f), 1 - z**2, out=dz)
        np.multiply(dc_TBH * (c_SBH[:-1] - z), f * (1 - f), out=df)
        np.multiply(g * c_SBH[1:], o * (1 - o), out=do)
        return g_TBG, dc_TBH[0] * f[0]


def _activate(sums_BG: Array, tanh: slice | None = None) -> None:
    """Apply σ to all columns in place, and tanh to the columns of one gate: σ(x) = tanh(x / 2) / 2 + 1/2."""
    sums_BG *= 0.5
    if tanh is not None:
        sums_BG[..., tanh] *= 2
    np.tanh(sums_BG, out=sums_BG)
    candidate = None if tanh is None else sums_BG[..., tanh].copy()
    sums_BG *= 0.5
    sums_BG += 0.5
    if tanh is not None:
        sums_BG[..., tanh] = candidate
