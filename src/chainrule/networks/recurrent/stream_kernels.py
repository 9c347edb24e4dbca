"""A Triton kernel that reads a few long sequences: a recurrent layer whose recurrent weights stay on the chip.

Each program keeps the weights of UNITS hidden units in its registers, over all times. At each time it needs the
hidden state of all units, which the other programs compute. A state is its own signal: the output begins as a
pattern of bits that no state has, UNWRITTEN, and a program reads h_{t-1} there again and again until no number has
this pattern. So a time costs one way to the GPU's shared cache and one way back; a barrier would cost several.

All programs have to run at once, since each waits for the others. `stream.py` sees to that; should it fail, a
program gives up after PATIENCE readings of one state, waits no more and says so.
"""

from __future__ import annotations

import triton
import triton.language as tl

ELMAN, GRU, LSTM = (tl.constexpr(number) for number in (1, 3, 4))  # the number of gates
TANH, SIGMOID, RELU, LEAKY_RELU = (tl.constexpr(number) for number in (0, 1, 2, 3))
UNWRITTEN = tl.constexpr(-1)  # all bits are 1: not a number, in every floating-point type


@triton.jit(do_not_specialize=["T"])
def read_stream(
    inputs_ptr, U_ptr, d_ptr, states_ptr, memory_ptr, gave_up_ptr, T, H: tl.constexpr, CELL: tl.constexpr,
    ACTIVATION: tl.constexpr, LEAK: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, PIECES: tl.constexpr,
    PIECE: tl.constexpr, NAN: tl.constexpr, PATIENCE: tl.constexpr,
):  # fmt: skip
    """Write h_1 ... h_T of all rows to `states`, [T + 1, B, H] as integers of the same bits, where h_0 is given.

    `inputs` is W x + b, [T, B, gates, H]; `memory` is c of an LSTM and h of a GRU, [B, H], before and after.
    """
    u = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    is_unit = u < H
    # A sum over H is one over pieces, within a thread, and then one over the PIECE columns, within a warp.
    columns = tl.arange(0, PIECES)[:, None] * PIECE + tl.arange(0, PIECE)[None, :]
    places, is_place = columns[None, :, :], (columns < H)[None, :, :]
    weights, biases, memories, ahead = (), (), (), ()
    for gate in tl.static_range(CELL):
        rows = U_ptr + (gate * H + u)[:, None, None] * H
        weight = tl.load(rows + places, mask=is_unit[:, None, None] & is_place, other=0.0)
        weights += (weight.to(tl.float32),)
        biases += (tl.load(d_ptr + gate * H + u, mask=is_unit, other=0.0).to(tl.float32),)
    for b in tl.static_range(ROWS):
        memories += (tl.load(memory_ptr + b * H + u, mask=is_unit, other=0.0),)
        for gate in tl.static_range(CELL):
            ahead += (tl.load(inputs_ptr + (b * CELL + gate) * H + u, mask=is_unit, other=0.0),)
    patience = PATIENCE
    for t in range(T):
        # the inputs of the next time are on their way while this one waits
        inputs, ahead = ahead, ()
        is_ahead = is_unit & (t + 1 < T)
        inputs_ptr += ROWS * CELL * H
        for b in tl.static_range(ROWS):
            for gate in tl.static_range(CELL):
                ahead += (tl.load(inputs_ptr + (b * CELL + gate) * H + u, mask=is_ahead, other=0.0),)
        before, memories = memories, ()
        # rows take turns: while one is computed, the states of the others are on their way
        for b in tl.static_range(ROWS):
            bits, patience = _await(states_ptr + b * H + columns, columns < H, patience)
            h = bits.to(U_ptr.dtype.element_ty, bitcast=True).to(tl.float32)
            sums, x = (), ()
            for gate in tl.static_range(CELL):
                # U h + d
                products = tl.sum(weights[gate] * h[None, :, :], 1)
                sums += (tl.sum(products, 1) + biases[gate],)
                x += (inputs[b * CELL + gate].to(tl.float32),)
            h, memory = _step(x, sums, before[b], CELL, ACTIVATION, LEAK)
            h = h.to(U_ptr.dtype.element_ty)
            if CELL == GRU:
                memory = h.to(tl.float32)
            memories += (memory,)
            bits = h.to(states_ptr.dtype.element_ty, bitcast=True)
            bits = tl.where(bits == UNWRITTEN, NAN, bits).to(states_ptr.dtype.element_ty)
            tl.store(states_ptr + (ROWS + b) * H + u, bits, mask=is_unit, cache_modifier=".cg")
        states_ptr += ROWS * H
    for b in tl.static_range(ROWS):
        tl.store(memory_ptr + b * H + u, memories[b], mask=is_unit)
    tl.store(gave_up_ptr, 1, mask=patience == 0)


@triton.jit
def _await(bits_ptr, is_place, patience):
    """Return the bits of a state once all are written, and the readings allowed from then on: 0 after giving up."""
    bits = tl.load(bits_ptr, mask=is_place, other=0, volatile=True)
    missing = tl.max((bits == UNWRITTEN).to(tl.int32))
    left = patience
    while (missing > 0) & (left > 0):
        bits = tl.load(bits_ptr, mask=is_place, other=0, volatile=True)
        missing = tl.max((bits == UNWRITTEN).to(tl.int32))
        left -= 1
    return bits, tl.where(missing > 0, 0, patience)


@triton.jit
def _step(x, sums, memory, CELL: tl.constexpr, ACTIVATION: tl.constexpr, LEAK: tl.constexpr):
    """Return h_t and the memory after it, from W x_t + b and U h_{t-1} + d of each gate: a step of cells.py."""
    if CELL == LSTM:
        i, f = tl.sigmoid(x[0] + sums[0]), tl.sigmoid(x[1] + sums[1])
        g, o = _tanh(x[2] + sums[2]), tl.sigmoid(x[3] + sums[3])
        memory = f * memory + i * g
        h = o * _tanh(memory)
    elif CELL == GRU:
        r, z = tl.sigmoid(x[0] + sums[0]), tl.sigmoid(x[1] + sums[1])
        n = _tanh(x[2] + r * sums[2])
        h = (1 - z) * n + z * memory
    else:
        h = x[0] + sums[0]
        if ACTIVATION == TANH:
            h = _tanh(h)
        elif ACTIVATION == SIGMOID:
            h = tl.sigmoid(h)
        else:
            h = tl.where(h < 0, h * (LEAK if ACTIVATION == LEAKY_RELU else 0.0), h)
    return h, memory


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1
