"""One token through a Transformer's block on a GPU: a few Triton kernels.

With one token a row, a step can be as fast as the weights come out of memory. So norms, biases, activations and
residual sums are fused into the matrix products, and attention looks at no more keys than there are. Where the GPU
can start a kernel before the one it depends on has ended (AHEAD: programmatic dependent launch), weights are
prefetched. `step.py` puts the kernels together; `Transformer.step` says what they compute.

Axes: b rows of the batch, d features, n outputs, k inputs of a product or numbers of a head, s positions, r queries
that share a head of keys.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LAYER_NORM = tl.constexpr(2)  # 1 is RMSNorm, 0 none
GELU, RELU, RELU2, SWIGLU, GELU_ERF, TANH = (tl.constexpr(number) for number in (1, 2, 3, 4, 5, 6))  # 0 is none


@triton.jit
def await_inputs(AHEAD: tl.constexpr):
    """If kernels start ahead: let the next one start, and wait for the results of those before."""
    if AHEAD:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def vector_of_token(
    table_ptr, places_ptr, token, place, scale, d, D: tl.constexpr, HAS_PLACES: tl.constexpr
):  # fmt: skip
    """x⁰ = scale E[token] + position, of one row."""
    x = tl.load(table_ptr + token * D + d, mask=d < D, other=0.0).to(tl.float32) * scale
    if HAS_PLACES:
        x += tl.load(places_ptr + place * D + d, mask=d < D, other=0.0).to(tl.float32)
    return x


@triton.jit
def embed_rows(
    ids_ptr, lengths_ptr, table_ptr, places_ptr, x_ptr, scale, D: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_PLACES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """x⁰ of one token a row, which stands behind those that the row has read."""
    await_inputs(AHEAD)
    b, d = tl.program_id(0), tl.arange(0, BLOCK_D)
    token, place = tl.load(ids_ptr + b), tl.load(lengths_ptr + b)
    x = vector_of_token(table_ptr, places_ptr, token, place, scale, d, D, HAS_PLACES)
    tl.store(x_ptr + b * D + d, x.to(x_ptr.dtype.element_ty), mask=d < D)


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
    x_ptr, weight_ptr, bias_ptr, gain_ptr, shift_ptr, residual_ptr, normed_ptr, y_ptr, eps, N: tl.constexpr,
    K: tl.constexpr, NORM: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_GAIN: tl.constexpr,
    HAS_SHIFT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, KEEPS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y = φ(W Norm(x) + b) + residual for a batch of one; BLOCK_N rows of W per program.

    With KEEPS, one program also writes Norm(x): in a post-norm block that is what a later result is added to.
    """
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
        if KEEPS:
            tl.store(normed_ptr + k, x.to(normed_ptr.dtype.element_ty), mask=(k < K) & (tl.program_id(0) == 0))
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
    elif ACTIVATION == GELU_ERF:
        z = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    elif ACTIVATION == TANH:
        z = 2.0 * tl.sigmoid(2.0 * z) - 1.0
    return z


@triton.jit
def linear(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, y_ptr, B, N: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y = φ(W x + b) + residual for a whole batch; BLOCK_N rows of W, and BLOCK_B of the batch, per program.

    x was normalised by a kernel of its own, `norm_of_rows`: here each program would have to do it again.
    """
    await_inputs(AHEAD)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    b = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
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
    _put(z, gate, b, n, bias_ptr, residual_ptr, y_ptr, B, N, ACTIVATION, HAS_BIAS, HAS_RESIDUAL)


@triton.jit
def _put(
    z, gate, b, n, bias_ptr, residual_ptr, y_ptr, B, N: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Write y = φ(z + b) + residual for the outputs n of the rows b; with SwiGLU φ has a gate as well."""
    if HAS_BIAS:
        if ACTIVATION == SWIGLU:
            gate += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
            bias_ptr += N
        z += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == SWIGLU:
        z = gate * tl.sigmoid(gate) * z
    z = _bend(z, ACTIVATION)
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
        tl.sum(z, 0), tl.sum(gate, 0), tl.arange(0, BLOCK_B), n, bias_ptr, residual_ptr, y_ptr, B, N, ACTIVATION,
        HAS_BIAS, HAS_RESIDUAL,
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
def prepared(
    head_ptr, k, inside, place, cos_ptr, sin_ptr, eps, K: tl.constexpr, QK_NORM: tl.constexpr, ROTARY: tl.constexpr
):  # fmt: skip
    """Return heads of queries or keys at one position, [heads, K]; normalised and rotated if the design does so."""
    x = tl.load(head_ptr + k, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / K + eps)[:, None]
    if ROTARY:
        other = tl.load(head_ptr + (k + K // 2) % K, mask=inside, other=0.0).to(tl.float32)
        cos = tl.load(cos_ptr + place * K + k, mask=k < K, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + place * K + k, mask=k < K, other=0.0).to(tl.float32)
        x = x * cos + other * sin
    if QK_NORM:
        x *= scale  # a rotation is linear, and keeps the length
    return x


@triton.jit
def place_heads(
    qkv_ptr, q_ptr, keys_ptr, values_ptr, lengths_ptr, cos_ptr, sin_ptr, stride_b, stride_g, eps,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, QK_NORM: tl.constexpr,
    ROTARY: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Copy one head of one row to the queries, or to the next position of the cache if it is a key or a value.

    For rows that share a cache, whose queries see keys of other rows: all of them are written before attention.
    """
    await_inputs(AHEAD)
    b, head = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, BLOCK_K)[None, :]
    inside = k < K
    length = tl.load(lengths_ptr + b)
    source = qkv_ptr + (b * (H + 2 * G) + head) * K
    place = b.to(tl.int64) * stride_b + length * K + k
    if head < H + G:
        x = prepared(source, k, inside, length, cos_ptr, sin_ptr, eps, K, QK_NORM, ROTARY)
        if head < H:
            tl.store(q_ptr + (b * H + head) * K + k, x.to(q_ptr.dtype.element_ty), mask=inside)
        else:
            tl.store(keys_ptr + (head - H) * stride_g + place, x.to(keys_ptr.dtype.element_ty), mask=inside)
    else:
        x = tl.load(source + k, mask=inside, other=0.0)
        tl.store(values_ptr + (head - H - G) * stride_g + place, x.to(values_ptr.dtype.element_ty), mask=inside)


@triton.jit
def attend_part(
    q_ptr, keys_ptr, values_ptr, lasts_ptr, cos_ptr, sin_ptr, slopes_ptr, spans, out_ptr,
    stride_b, stride_g, stride_s, scale, eps, G: tl.constexpr, R: tl.constexpr, K: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, SPAN: tl.constexpr, BLOCK_S: tl.constexpr,
    APPENDS: tl.constexpr, QK_NORM: tl.constexpr, ROTARY: tl.constexpr, ALIBI: tl.constexpr, WHOLE: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Attention of the R queries that share a head of keys to one span of the positions 0..last of their row.

    With APPENDS, `q_ptr` has queries, keys and values of the newest token of each row: its key and value are
    written to position `last` by the program that has this position, and reach no other one through memory.

    Writes into `spans`, a SpanSums of step.py, for each query: Σ e^s v over the span, the total Σ e^s, and the
    largest score, which is subtracted from every score s. With WHOLE there is one span: its result is the output.
    """
    await_inputs(AHEAD)
    row, part = tl.program_id(0), tl.program_id(1)
    b, g = row // G, row % G
    r, k = tl.arange(0, BLOCK_R)[:, None], tl.arange(0, BLOCK_K)[None, :]
    inside = (r < R) & (k < K)
    last = tl.load(lasts_ptr + b)
    best = tl.full([BLOCK_R], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_R], tl.float32)
    taken = tl.zeros([BLOCK_R, BLOCK_K], tl.float32)
    if part * SPAN <= last:
        base = b.to(tl.int64) * stride_b + g * stride_g
        heads = G * (R + 2) if APPENDS else G * R
        row_ptr = q_ptr + b * heads * K
        q = prepared(
            row_ptr + (g * R + r) * K, k, inside, last, cos_ptr, sin_ptr, eps, K, QK_NORM, ROTARY
        ).to(keys_ptr.dtype.element_ty)  # fmt: skip
        if ALIBI:
            slope = tl.load(slopes_ptr + g * R + r, mask=r < R, other=0.0).to(tl.float32)
        known = last + 1
        if APPENDS:
            known = last
            key = prepared(
                row_ptr + (G * R + g) * K, k, k < K, last, cos_ptr, sin_ptr, eps, K, QK_NORM, ROTARY
            ).to(keys_ptr.dtype.element_ty)  # fmt: skip
            value = tl.load(row_ptr + (G * R + G + g) * K + k, mask=k < K, other=0.0)
            is_here = last < part * SPAN + SPAN
            newest = base + last * stride_s + k
            tl.store(keys_ptr + newest, key, mask=(k < K) & is_here)
            tl.store(values_ptr + newest, value.to(values_ptr.dtype.element_ty), mask=(k < K) & is_here)
            score = tl.sum(q.to(tl.float32) * key.to(tl.float32), 1) * scale
            best = tl.where(is_here, score, best)
            total = tl.where(is_here, 1.0, total)
            taken = tl.where(is_here, value.to(tl.float32) + taken, taken)
        for s0 in range(part * SPAN, tl.minimum(part * SPAN + SPAN, known), BLOCK_S):
            s = s0 + tl.arange(0, BLOCK_S)
            place = base + s[:, None] * stride_s + k
            seen = (s[:, None] < known) & (k < K)
            # softmax(Q Kᵀ / sqrt(d_k)) V, with the largest score so far subtracted
            keys = tl.load(keys_ptr + place, mask=seen, other=0.0)
            scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
            if ALIBI:
                scores -= slope * (last - s)[None, :].to(tl.float32)
            scores = tl.where(s[None, :] < known, scores, -float("inf"))
            higher = tl.maximum(best, tl.max(scores, 1))
            weight = tl.exp(scores - higher[:, None])
            shrink = tl.exp(best - higher)
            total = total * shrink + tl.sum(weight, 1)
            values = tl.load(values_ptr + place, mask=seen, other=0.0)
            taken = taken * shrink[:, None] + tl.dot(weight.to(values.dtype), values, input_precision="ieee")
            best = higher
    if WHOLE:
        result = taken / total[:, None]
        tl.store(out_ptr + (row * R + r) * K + k, result.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        query = tl.arange(0, BLOCK_R)
        place = (part * tl.num_programs(0) + row) * R + query
        tl.store(spans.best + place, best, mask=query < R)
        tl.store(spans.total + place, total, mask=query < R)
        tl.store(spans.taken + place[:, None] * K + k, taken, mask=inside)


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
