"""Whole recurrent layers as single modules: the same numbers as `networks/cells.py` step by step, far faster.

A step of a cell on the tape is a dozen modules. Training needs none of their names, so a layer reads all times in
one module, with one product for each time. `cells.py` is the reference.

    inputs: Wx_TBG = W x_t + b for all times, U [G, H], d [G], and the state before: h_BH, for an LSTM c_BH too
    value:  h_TBH, the outputs at all times; `last` is the state after the last one

Axes: T time, B batch, G gates side by side, H units.
"""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.tape.nodes import Array
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import LEAK


class _RecurrentLayer(Module):
    last: tuple[Array, ...]

    def _inputs(self) -> tuple[Array, ...]:
        return tuple(node.out_tensor for node in self.in_modules)

    def _weight_gradients(self, g_TBG: Array, h_TBH: Array) -> tuple[Array, Array]:
        """Return dL/dU and dL/dd from the gradient of U h_{t-1} + d at all times."""
        _, U, _, h_BH, *_ = self._inputs()
        before_TBH = self.empty(h_TBH.shape, h_TBH.dtype)
        before_TBH[0], before_TBH[1:] = h_BH, h_TBH[:-1]
        rows = g_TBG.reshape(-1, len(U))
        return rows.T @ before_TBH.reshape(len(rows), -1), rows.sum(axis=0)


class ElmanLayer(_RecurrentLayer):
    """h_t = f(W x_t + b + U h_{t-1} + d), where f is tanh, σ, ReLU or leaky ReLU."""

    formula = "f({0} + {1} h_{{t-1}} + {2})"

    def __init__(self, activation: str = "tanh") -> None:
        self.activation = activation

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array) -> Array:
        h_TBH = self.empty(Wx_TBG.shape, Wx_TBG.dtype)
        for Wx, h in zip(Wx_TBG, h_TBH, strict=True):
            np.matmul(h_BH, U.T, out=h)
            h += Wx
            h += d
            if self.activation == "tanh":
                np.tanh(h, out=h)
            elif self.activation == "sigmoid":
                _activate(h)
            else:
                np.maximum(h, self._leak * h, out=h)
            h_BH = h
        self.last = (h_BH,)
        return h_TBH

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        _, U, *_ = self._inputs()
        h_TBH = self.out_tensor
        g_TBG, dh = self.empty(g.shape, g.dtype), np.zeros_like(g[0])
        for t in reversed(range(len(g))):
            np.multiply(g[t] + dh, self._slope(h_TBH[t]), out=g_TBG[t])
            dh = g_TBG[t] @ U
        return g_TBG, *self._weight_gradients(g_TBG, h_TBH), dh

    @property
    def _leak(self) -> float:
        return LEAK if self.activation == "leaky-relu" else 0.0

    def _slope(self, h_BH: Array) -> Array:
        """Return df/dx where h = f(x)."""
        if self.activation == "tanh":
            return 1 - h_BH**2
        return h_BH * (1 - h_BH) if self.activation == "sigmoid" else np.where(h_BH > 0, 1, self._leak)


class LstmLayer(_RecurrentLayer):
    """c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t and h_t = o_t ⊙ tanh(c_t), with i, f, o = σ(...) and g = tanh(...)."""

    formula = "LSTM of {0} + {1} h_{{t-1}} + {2}"

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array, c_BH: Array) -> Array:
        T, B, G = Wx_TBG.shape
        H, dtype = G // 4, Wx_TBG.dtype
        gates_TBG, h_TBH, tanh_TBH = (self.empty((T, B, n), dtype) for n in (G, H, H))
        c_TBH = self.empty((T + 1, B, H), dtype)
        c_TBH[0] = c_BH
        for t in range(T):
            gates = np.matmul(h_BH, U.T, out=gates_TBG[t])
            gates += Wx_TBG[t]
            gates += d
            _activate(gates, slice(2 * H, 3 * H))
            i, f, g, o = (gates[:, n * H : (n + 1) * H] for n in range(4))
            np.multiply(f, c_TBH[t], out=c_TBH[t + 1])
            c_TBH[t + 1] += i * g
            h_BH = np.multiply(o, np.tanh(c_TBH[t + 1], out=tanh_TBH[t]), out=h_TBH[t])
        self.last, self._kept = (h_BH, c_TBH[T]), (gates_TBG, c_TBH, tanh_TBH)
        return h_TBH

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        _, U, *_ = self._inputs()
        gates_TBG, c_TBH, tanh_TBH = self._kept
        T, _, H = g.shape
        g_TBG, dh, dc = self.empty(gates_TBG.shape, g.dtype), np.zeros_like(g[0]), np.zeros_like(g[0])
        for t in reversed(range(T)):
            (i, f, candidate, o), (di, df, dg, do) = (
                [part[:, n * H : (n + 1) * H] for n in range(4)] for part in (gates_TBG[t], g_TBG[t])
            )
            dh = g[t] + dh
            dc = dc + dh * o * (1 - tanh_TBH[t] ** 2)
            np.multiply(dc * candidate, i * (1 - i), out=di)
            np.multiply(dc * c_TBH[t], f * (1 - f), out=df)
            np.multiply(dc * i, 1 - candidate**2, out=dg)
            np.multiply(dh * tanh_TBH[t], o * (1 - o), out=do)
            dc, dh = dc * f, g_TBG[t] @ U
        return g_TBG, *self._weight_gradients(g_TBG, self.out_tensor), dh, dc


class GruLayer(_RecurrentLayer):
    """h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1} with n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + d_n))."""

    formula = "GRU of {0} and {1} h_{{t-1}} + {2}"

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array) -> Array:
        T, B, G = Wx_TBG.shape
        H, dtype = G // 3, Wx_TBG.dtype
        gates_TBG, Uh_TBH, h_TBH = (self.empty((T, B, n), dtype) for n in (G, H, H))
        for t in range(T):
            gates = np.matmul(h_BH, U.T, out=gates_TBG[t])
            gates += d
            Uh_TBH[t] = gates[:, 2 * H :]
            gates[:, : 2 * H] += Wx_TBG[t, :, : 2 * H]
            _activate(gates[:, : 2 * H])
            r, z, n = (gates[:, m * H : (m + 1) * H] for m in range(3))
            np.multiply(r, Uh_TBH[t], out=n)
            n += Wx_TBG[t, :, 2 * H :]
            np.tanh(n, out=n)
            h_BH = np.add(n, z * (h_BH - n), out=h_TBH[t])
        self.last, self._kept = (h_BH,), (gates_TBG, Uh_TBH)
        return h_TBH

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        _, U, _, h_BH = self._inputs()
        (gates_TBG, Uh_TBH), h_TBH = self._kept, self.out_tensor
        T, _, H = g.shape
        g_TBG, gU_TBG, dh = (
            self.empty(gates_TBG.shape, g.dtype),
            self.empty(gates_TBG.shape, g.dtype),
            np.zeros_like(g[0]),
        )
        for t in reversed(range(T)):
            r, z, n = (gates_TBG[t, :, m * H : (m + 1) * H] for m in range(3))
            dr, dz, dn = (g_TBG[t, :, m * H : (m + 1) * H] for m in range(3))
            dh = g[t] + dh
            np.multiply(dh * (1 - z), 1 - n**2, out=dn)
            np.multiply(dh * ((h_TBH[t - 1] if t else h_BH) - n), z * (1 - z), out=dz)
            np.multiply(dn * Uh_TBH[t], r * (1 - r), out=dr)
            gU_TBG[t] = g_TBG[t]
            gU_TBG[t, :, 2 * H :] *= r
            dh = dh * z + gU_TBG[t] @ U
        return g_TBG, *self._weight_gradients(gU_TBG, h_TBH), dh


class GruResetBeforeLayer(_RecurrentLayer):
    """The same, with n_t = tanh(W_n x_t + b_n + U_n (r_t ⊙ h_{t-1}) + d_n)."""

    formula = "GRU, reset before, of {0} and {1} h_{{t-1}} + {2}"

    def forward(self, Wx_TBG: Array, U: Array, d: Array, h_BH: Array) -> Array:
        T, B, G = Wx_TBG.shape
        H, dtype = G // 3, Wx_TBG.dtype
        gates_TBG, rh_TBH, h_TBH = (self.empty((T, B, n), dtype) for n in (G, H, H))
        for t in range(T):
            rz, n = gates_TBG[t, :, : 2 * H], gates_TBG[t, :, 2 * H :]
            rz[:] = h_BH @ U[: 2 * H].T + d[: 2 * H] + Wx_TBG[t, :, : 2 * H]
            _activate(rz)
            np.multiply(rz[:, :H], h_BH, out=rh_TBH[t])
            np.tanh(rh_TBH[t] @ U[2 * H :].T + d[2 * H :] + Wx_TBG[t, :, 2 * H :], out=n)
            h_BH = np.add(n, rz[:, H:] * (h_BH - n), out=h_TBH[t])
        self.last, self._kept = (h_BH,), (gates_TBG, rh_TBH)
        return h_TBH

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        _, U, _, h_BH = self._inputs()
        (gates_TBG, rh_TBH), h_TBH = self._kept, self.out_tensor
        T, _, H = g.shape
        g_TBG, dh = self.empty(gates_TBG.shape, g.dtype), np.zeros_like(g[0])
        for t in reversed(range(T)):
            r, z, n = (gates_TBG[t, :, m * H : (m + 1) * H] for m in range(3))
            dr, dz, dn = (g_TBG[t, :, m * H : (m + 1) * H] for m in range(3))
            before_BH, dh = h_TBH[t - 1] if t else h_BH, g[t] + dh
            np.multiply(dh * (1 - z), 1 - n**2, out=dn)
            np.multiply(dh * (before_BH - n), z * (1 - z), out=dz)
            drh = dn @ U[2 * H :]
            np.multiply(drh * before_BH, r * (1 - r), out=dr)
            dh = dh * z + drh * r + g_TBG[t, :, : 2 * H] @ U[: 2 * H]
        dU, dd = self._weight_gradients(g_TBG, h_TBH)
        # U_n was multiplied by r_t ⊙ h_{t-1}
        dU[2 * H :] = g_TBG[..., 2 * H :].reshape(-1, H).T @ rh_TBH.reshape(-1, H)
        return g_TBG, dU, dd, dh


class QrnnLayer(Module):
    """c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t and h_t = o_t ⊙ c_t, with z = tanh(...) and f, o = σ(...).

    Its inputs are the sums z, f, o side by side, [T, B, 3H], which need no state, and c_BH; `c_SBH` is the memory
    before the first time and after each one, S = T + 1.
    """

    formula = "QRNN of {0}"
    c_SBH: Array

    def forward(self, sums_TBG: Array, c_BH: Array) -> Array:
        T, B, G = sums_TBG.shape
        H, dtype = G // 3, sums_TBG.dtype
        gates_TBG, c_SBH, h_TBH = (self.empty(shape, dtype) for shape in ((T, B, G), (T + 1, B, H), (T, B, H)))
        gates_TBG[:] = sums_TBG
        _activate(gates_TBG, slice(0, H))
        z, f, o = (gates_TBG[..., n * H : (n + 1) * H] for n in range(3))
        c_SBH[0] = c_BH
        for t in range(T):
            np.subtract(c_SBH[t], z[t], out=c_SBH[t + 1])
            c_SBH[t + 1] *= f[t]
            c_SBH[t + 1] += z[t]
        self.c_SBH, self._gates_TBG = c_SBH, gates_TBG
        return np.multiply(o, c_SBH[1:], out=h_TBH)

    def backward(self, g: Array) -> tuple[Array | None, ...]:
        gates_TBG, c_SBH, H = self._gates_TBG, self.c_SBH, g.shape[-1]
        g_TBG = self.empty(gates_TBG.shape, g.dtype)
        z, f, o = (gates_TBG[..., n * H : (n + 1) * H] for n in range(3))
        dz, df, do = (g_TBG[..., n * H : (n + 1) * H] for n in range(3))
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
