"""One token through a Transformer's block on a GPU: a few Triton kernels.

With one token a row, a step can be as fast as the weights come out of memory. So norms, biases, activations and
residual sums are fused into the matrix products, and attention looks at no more keys than there are. Where the GPU
can start a kernel before the one it depends on has ended (AHEAD: programmatic dependent launch), weights are
prefetched. `step.py` puts the kernels together; `Transformer.step` says what they compute.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LAYER_NORM = tl.constexpr(2)  # 1 is RMSNorm, 0 none
GELU, RELU, RELU2, SWIGLU = (tl.constexpr(number) for number in (1, 2, 3, 4))  # 0 is none


@triton.jit
def await_inputs(AHEAD: tl.constexpr):
    """If kernels start ahead: let the next one start, and wait for the results of those before."""
    if AHEAD:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def normalised(
    x, gain_ptr, shift_ptr, eps, k, K: tl.constexpr, NORM: tl.constexpr, HAS_GAIN: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Return Norm(x) of one row of K numbers, which is padded with 0."""
    if NORM == LAYER_NORM:
        x = tl.where(k < K, x - tl.sum(x, 0) / K, 0.0)
    x *= tl.rsqrt(tl.sum(x * x, 0) / K + eps)
    if HAS_GAIN:
        x *= tl.load(gain_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    if HAS_SHIFT:
        x += tl.load(shift_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    return x


@triton.jit
def norm_of_rows(
    x_ptr, gain_ptr, shift_ptr, y_ptr, eps, K: tl.constexpr, BLOCK_K: tl.constexpr, NORM: tl.constexpr,
    HAS_GAIN: tl.constexpr, HAS_SHIFT: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y = Norm(x), one row per program."""
    await_inputs(AHEAD)
    b, k = tl.program_id(0), tl.arange(0, BLOCK_K)
    x = tl.load(x_ptr + b * K + k, mask=k < K, other=0.0).to(tl.float32)
    x = normalised(x, gain_ptr, shift_ptr, eps, k, K, NORM, HAS_GAIN, HAS_SHIFT)
    tl.store(y_ptr + b * K + k, x.to(y_ptr.dtype.element_ty), mask=k < K)


@triton.jit
def linear_of_row(
    x_ptr, weight_ptr, bias_ptr, gain_ptr, shift_ptr, residual_ptr, y_ptr, eps, N: tl.constexpr, K: tl.constexpr,
    NORM: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_GAIN: tl.constexpr,
    HAS_SHIFT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """y = φ(W Norm(x) + b) + residual for a batch of one; BLOCK_N rows of W per program."""
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    rows = weight_ptr + n[:, None].to(tl.int64) * K + k[None, :]
    is_weight = (n[:, None] < N) & (k[None, :] < K)
    # prefetched, before x is known
    weight = tl.load(rows, mask=is_weight, other=0.0)
    if ACTIVATION == SWIGLU:
        through = tl.load(rows + N * K, mask=is_weight, other=0.0)
    await_inputs(AHEAD)
    x = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        x = normalised(x, gain_ptr, shift_ptr, eps, k, K, NORM, HAS_GAIN, HAS_SHIFT)
    z = tl.sum(weight.to(tl.float32) * x[None, :], 1)
    if HAS_BIAS:
        z += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    if ACTIVATION == SWIGLU:
        z2 = tl.sum(through.to(tl.float32) * x[None, :], 1)
        if HAS_BIAS:
            z2 += tl.load(bias_ptr + N + n, mask=n < N, other=0.0).to(tl.float32)
        z = z * tl.sigmoid(z) * z2
    z = _bend(z, ACTIVATION)
    if HAS_RESIDUAL:
        z += tl.load(residual_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + n, z.to(y_ptr.dtype.element_ty), mask=n < N)


@triton.jit
def _bend(z, ACTIVATION: tl.constexpr):
    """φ(z) of one argument; SwiGLU, which takes two, is computed by the caller."""
    if ACTIVATION == GELU:
        z = z * tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))  # 2 sqrt(2/π): (1 + tanh u) / 2 = σ(2u)
    elif ACTIVATION == RELU:
        z = tl.maximum(z, 0.0)
    elif ACTIVATION == RELU2:
        z = tl.maximum(z, 0.0) * tl.maximum(z, 0.0)
    return z


@triton.jit
def linear(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, y_ptr, B, N: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y = φ(W x + b) + residual for a whole batch; BLOCK_N rows of W per program.

    x was normalised by a kernel of its own, `norm_of_rows`: here each program would have to do it again.
    """
    await_inputs(AHEAD)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    b = tl.arange(0, BLOCK_B)
    z = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    gate = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        inside = (b[:, None] < B) & (k[None, :] < K)
        x = tl.load(x_ptr + b[:, None] * K + k[None, :], mask=inside, other=0.0)
        rows = weight_ptr + n[:, None].to(tl.int64) * K + k[None, :]
        is_weight = (n[:, None] < N) & (k[None, :] < K)
        if ACTIVATION == SWIGLU:
            gate += _product(x, tl.load(rows, mask=is_weight, other=0.0))
            rows += N * K
        z += _product(x, tl.load(rows, mask=is_weight, other=0.0))
    _put(z, gate, n, bias_ptr, residual_ptr, y_ptr, B, N, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, BLOCK_B)


@triton.jit
def _put(
    z, gate, n, bias_ptr, residual_ptr, y_ptr, B, N: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Write y = φ(z + b) + residual for the outputs n of all rows; with SwiGLU φ has a gate as well."""
    if HAS_BIAS:
        if ACTIVATION == SWIGLU:
            gate += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
            bias_ptr += N
        z += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == SWIGLU:
        z = gate * tl.sigmoid(gate) * z
    z = _bend(z, ACTIVATION)
    b = tl.arange(0, BLOCK_B)
    place = b[:, None] * N + n[None, :]
    inside = (b[:, None] < B) & (n[None, :] < N)
    if HAS_RESIDUAL:
        z += tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + place, z.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _product(x, weight):
    """Return x Wᵀ of a tile.

    For float32, three products of TF32 are added: that is faster than a chain of float32 additions, and more exact.
    """
    return tl.dot(x.to(weight.dtype), tl.trans(weight), input_precision="tf32x3")


@triton.jit
def linear_of_few(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, y_ptr, B, N: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    WARPS: tl.constexpr, SLICE: tl.constexpr, PIECES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Compute `linear` for so few rows that waiting for memory takes longest; a program has BLOCK_N rows of W.

    Each warp adds up a slice of K of its own: the tiles have a first axis of WARPS slices, over which the sum is
    taken last. All weights are prefetched, before x is known.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    b = tl.arange(0, BLOCK_B)[None, :, None]
    k = tl.arange(0, WARPS)[:, None, None] * SLICE + tl.arange(0, SLICE)[None, None, :]
    if ACTIVATION == SWIGLU:
        gates = _weights(weight_ptr, n, k, N, K, WARPS * SLICE, PIECES)
        weight_ptr += N * K
    weights = _weights(weight_ptr, n, k, N, K, WARPS * SLICE, PIECES)
    await_inputs(AHEAD)
    z = tl.zeros([WARPS, BLOCK_B, BLOCK_N], tl.float32)
    gate = tl.zeros([WARPS, BLOCK_B, BLOCK_N], tl.float32)
    for piece in tl.static_range(PIECES):
        inside = (b < B) & (k + piece * WARPS * SLICE < K)
        x = tl.load(x_ptr + b * K + k + piece * WARPS * SLICE, mask=inside, other=0.0)
        if ACTIVATION == SWIGLU:
            gate = tl.dot(x, tl.permute(gates[piece], 0, 2, 1), gate)
        z = tl.dot(x, tl.permute(weights[piece], 0, 2, 1), z)
    _put(
        tl.sum(z, 0), tl.sum(gate, 0), n, bias_ptr, residual_ptr, y_ptr, B, N, ACTIVATION, HAS_BIAS, HAS_RESIDUAL,
        BLOCK_B,
    )  # fmt: skip


@triton.jit
def _weights(weight_ptr, n, k, N: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, PIECES: tl.constexpr):
    """Return the rows n of W, as a tuple of tiles: slices, rows, and numbers of a slice."""
    rows = weight_ptr + n[None, :, None].to(tl.int64) * K + k
    tiles = ()
    for piece in tl.static_range(PIECES):
        inside = (n[None, :, None] < N) & (k + piece * STRIDE < K)
        tiles = tiles + (tl.load(rows + piece * STRIDE, mask=inside, other=0.0),)  # noqa: RUF005 (Triton's tuples)
    return tiles


@triton.jit
def place_heads(
    qkv_ptr, q_ptr, keys_ptr, values_ptr, lengths_ptr, cos_ptr, sin_ptr, stride_b, stride_g, eps,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, QK_NORM: tl.constexpr,
    ROTARY: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Copy one head of one row to the queries, or to the next position of the cache if it is a key or a value.

    Queries and keys are normalised and rotated first, if the design does that.
    """
    await_inputs(AHEAD)
    b, head = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, BLOCK_K)
    inside = k < K
    length = tl.load(lengths_ptr + b)
    source = qkv_ptr + (b * (H + 2 * G) + head) * K
    x = tl.load(source + k, mask=inside, other=0.0).to(tl.float32)
    if head < H + G:
        other = tl.load(source + (k + K // 2) % K, mask=inside, other=0.0).to(tl.float32)
        if QK_NORM:
            scale = tl.rsqrt(tl.sum(x * x) / K + eps)
            x *= scale
            other *= scale
        if ROTARY:
            cos = tl.load(cos_ptr + length * K + k, mask=inside, other=0.0).to(tl.float32)
            sin = tl.load(sin_ptr + length * K + k, mask=inside, other=0.0).to(tl.float32)
            x = x * cos + other * sin
    place = b.to(tl.int64) * stride_b + length * K + k
    if head < H:
        tl.store(q_ptr + (b * H + head) * K + k, x.to(q_ptr.dtype.element_ty), mask=inside)
    elif head < H + G:
        tl.store(keys_ptr + (head - H) * stride_g + place, x.to(keys_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(values_ptr + (head - H - G) * stride_g + place, x.to(values_ptr.dtype.element_ty), mask=inside)


@triton.jit
def attend_part(
    q_ptr, keys_ptr, values_ptr, lengths_ptr, slopes_ptr, spans, stride_b, stride_g, scale, G: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, SPAN: tl.constexpr,
    BLOCK_S: tl.constexpr, ALIBI: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Attention of the R queries that share a head of keys to one span of positions.

    Writes into `spans`, a SpanSums of step.py, for each query: Σ e^s v over the span, the total Σ e^s, and the
    largest score, which is subtracted from every score s.
    """
    await_inputs(AHEAD)
    row, part = tl.program_id(0), tl.program_id(1)
    b, g = row // G, row % G
    r, k = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_K)
    inside = (r[:, None] < R) & (k[None, :] < K)
    last = tl.load(lengths_ptr + b)  # the position of the newest token, which sees itself
    best = tl.full([BLOCK_R], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_R], tl.float32)
    taken = tl.zeros([BLOCK_R, BLOCK_K], tl.float32)
    if part * SPAN <= last:
        q = tl.load(q_ptr + (row * R + r[:, None]) * K + k[None, :], mask=inside, other=0.0)
        if ALIBI:
            slope = tl.load(slopes_ptr + g * R + r, mask=r < R, other=0.0).to(tl.float32)
        base = b.to(tl.int64) * stride_b + g * stride_g
        for s0 in range(part * SPAN, tl.minimum(part * SPAN + SPAN, last + 1), BLOCK_S):
            s = s0 + tl.arange(0, BLOCK_S)
            place = base + s[:, None] * K + k[None, :]
            seen = (s[:, None] <= last) & (k[None, :] < K)
            # softmax(Q Kᵀ / sqrt(d_k)) V, with the largest score so far subtracted
            keys = tl.load(keys_ptr + place, mask=seen, other=0.0)
            scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
            if ALIBI:
                scores -= slope[:, None] * (last - s)[None, :].to(tl.float32)
            scores = tl.where(s[None, :] <= last, scores, -float("inf"))
            higher = tl.maximum(best, tl.max(scores, 1))
            weight = tl.exp(scores - higher[:, None])
            shrink = tl.exp(best - higher)
            total = total * shrink + tl.sum(weight, 1)
            values = tl.load(values_ptr + place, mask=seen, other=0.0)
            taken = taken * shrink[:, None] + tl.dot(weight.to(values.dtype), values, input_precision="ieee")
            best = higher
    place = (part * tl.num_programs(0) + row) * R + r
    tl.store(spans.best + place, best, mask=r < R)
    tl.store(spans.total + place, total, mask=r < R)
    tl.store(spans.taken + place[:, None] * K + k[None, :], taken, mask=inside)


@triton.jit
def join_parts(
    spans, out_ptr, PARTS, K: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Write the attention output of one query, from the results of `attend_part` for all spans."""
    await_inputs(AHEAD)
    query, queries = tl.program_id(0), tl.num_programs(0)
    part, k = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_K)
    place = part * queries + query
    best = tl.load(spans.best + place, mask=part < PARTS, other=-float("inf"))
    weight = tl.exp(best - tl.max(best, 0))
    total = tl.sum(weight * tl.load(spans.total + place, mask=part < PARTS, other=0.0), 0)
    inside = (part[:, None] < PARTS) & (k[None, :] < K)
    taken = tl.load(spans.taken + place[:, None] * K + k[None, :], mask=inside, other=0.0)
    result = tl.sum(weight[:, None] * taken, 0) / total
    tl.store(out_ptr + query * K + k, result.to(out_ptr.dtype.element_ty), mask=k < K)
