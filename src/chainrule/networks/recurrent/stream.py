"""Long sequences on a GPU, a few at a time: the kernel of stream_kernels.py instead of cuDNN.

In a layer each token waits for the one before, and cuDNN takes 12 µs for one token of one row, in any precision
(1,024 units, on an H200). If the recurrent weights fit into the registers of all multiprocessors together, they are
read once, and then only the state has to move:

    x_t = W e_t + b                 for all times, one product of matrices
    h_t = cell(x_t, U h_{t-1} + d)  by programs that each keep some rows of U

`FusedLayer` gives the same without it, and the equations of cells.py are the reference of both.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from chainrule.networks.config import GATES, LEAK, Activation, CellName, Reset
from chainrule.networks.recurrent.cells import CellState, CellWeights
from chainrule.system.devices import current_device, has_triton

FEWEST_TOKENS = 64
"""The shortest sequence for which the kernel is launched: for a few tokens cuDNN has less to prepare."""
MOST_ROWS = 8
_BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
_ACTIVATIONS: dict[Activation, int] = {"tanh": 0, "sigmoid": 1, "relu": 2, "leaky-relu": 3}
_WARPS = 8  # of a program
_WARPS_AT_ONCE = 8  # of a multiprocessor: each may then have 255 registers of 128 bytes
_REGISTERS = 16 << 10  # bytes of those of a warp that are for weights
_PATIENCE = 1 << 20  # readings of a state, half a second: others may use the GPU, too

_has_failed = threading.Event()
"""Set once the kernel failed: it is not tried again."""


class StreamError(RuntimeError):
    """The programs of the kernel did not run at the same time."""


class Shares(NamedTuple):
    """How a layer is divided: among programs, by units; and in a program, the sum over the states of all units."""

    programs: int
    units: int
    warps: int
    pieces: int
    piece: int


def shares(width: int, units: int, warps: int, itemsize: int) -> Shares:
    """Return the division of a layer of `width` units, `units` for each program of so many warps."""
    # Each of the 32 threads of a warp reads up to 16 bytes at once, as far as rows of U begin at such places. No
    # number may be read by two threads: one could find it written and the other not, and one speaks for both.
    whole = 1 << (width - 1).bit_length()
    piece = 32 * min(16 // itemsize, width & -width, max(1, whole // (32 * warps)))
    return Shares(-(-width // units), units, warps, max(warps, whole // piece), piece)


def best_shares(cell: CellName, width: int, itemsize: int, processors: int) -> Shares | None:
    """Return the division for a GPU of so many multiprocessors; None if the weights do not fit into them."""
    programs, units = processors * (_WARPS_AT_ONCE // _WARPS), _WARPS
    while units * programs < width:
        units *= 2
    found = shares(width, units, _WARPS, itemsize)
    weights = GATES[cell] * units * found.pieces * found.piece
    return found if weights * torch.float32.itemsize <= _WARPS * _REGISTERS else None


class Stream:
    """The kernel for the layers of one cell."""

    def __init__(self, cell: CellName, activation: Activation, reset: Reset) -> None:
        self.cell, self.activation = cell, activation
        # with the reset gate before the product, a step would wait for the other programs twice
        self.suits = cell != "gru" or reset == "after"

    def read(self, x_BTD: Tensor, state: CellState, weights: CellWeights) -> tuple[Tensor, CellState] | None:
        """Return the output at each time step, [B, T, H], and the last state; None if the kernel is not for it."""
        divided = self.shares_for(x_BTD, weights)
        if divided is None or _has_failed.is_set():
            return None
        try:
            return self.by_kernel(x_BTD, state, weights, divided)
        except Exception as error:  # what compilers, drivers and libraries raise has no common class
            _has_failed.set()
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            warnings.warn(f"a fast path failed; the plain way is used ({reason})", RuntimeWarning, stacklevel=2)
            return None

    def shares_for(self, x_BTD: Tensor, weights: CellWeights) -> Shares | None:
        """Return the division among programs for this input; None if the kernel is not for it."""
        if (
            x_BTD.device.type != "cuda"
            or not self.suits
            or torch.is_grad_enabled()
            or torch.compiler.is_compiling()
        ):
            return None
        (rows, length, _), width = x_BTD.shape, weights.U.shape[1]
        if length < FEWEST_TOKENS or not 0 < rows <= MOST_ROWS or x_BTD.dtype not in _BITS or not has_triton():
            return None
        if torch.cuda.is_current_stream_capturing():  # the host asks at the end whether all went well
            return None
        processors = torch.cuda.get_device_properties(x_BTD.device).multi_processor_count
        return best_shares(self.cell, width, x_BTD.dtype.itemsize, processors)

    def by_kernel(
        self, x_BTD: Tensor, state: CellState, weights: CellWeights, divided: Shares
    ) -> tuple[Tensor, CellState]:
        """Return what `read` does, by programs that each keep their share of the weights."""
        from chainrule.networks.recurrent import stream_kernels as kernels

        (rows, length, _), width, dtype = x_BTD.shape, weights.U.shape[1], x_BTD.dtype
        inputs_TBG = functional.linear(x_BTD.transpose(0, 1), weights.W, weights.b).contiguous()
        states_TBH = torch.empty(length + 1, rows, width, dtype=dtype, device=x_BTD.device)
        bits_TBH = states_TBH.view(_BITS[dtype])
        bits_TBH.fill_(kernels.UNWRITTEN.value)
        states_TBH[0] = state[0].masked_fill(state[0].isnan(), torch.nan)  # which has not all bits
        nan = torch.iinfo(bits_TBH.dtype).max  # another pattern that is not a number
        memory_BH = state[-1].float().contiguous().clone()
        gave_up = torch.zeros((), dtype=torch.int32, device=x_BTD.device)
        # the driver starts all programs at once, or refuses
        together: dict[str, Any] = {"launch_cooperative_grid": True} if x_BTD.is_cuda else {}
        with current_device(x_BTD.device):
            kernels.read_stream[(divided.programs,)](
                inputs_TBG, weights.U, weights.d, bits_TBH, memory_BH, gave_up, length, width, GATES[self.cell],
                _ACTIVATIONS[self.activation], LEAK, rows, divided.units, divided.pieces, divided.piece, nan,
                _PATIENCE, num_warps=divided.warps, **together,
            )  # fmt: skip
        if gave_up.item():
            raise StreamError("programs that wait for each other did not run at the same time")
        h_BH = states_TBH[-1].clone()  # not a view, which would keep the states of all times
        after = (h_BH, memory_BH.to(dtype)) if self.cell == "lstm" else (h_BH,)
        return states_TBH[1:].transpose(0, 1), after
