"""A Transformer's step by the kernels of step_kernels.py: `Transformer.step` at memory bandwidth.

The decoder of an encoder-decoder takes the same step: its blocks attend to a source as well, by the same kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from chainrule.networks.layers import Table
from chainrule.networks.transformer.blocks import Block, Norm
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import has_triton

MOST_ROWS = 128
"""The largest batch for the kernels; with more rows, the products are large enough for those of torch."""
_MOST_ROWS_IF_NARROW, _NARROW = 512, 512  # rows and width with which the products are still small
_ACTIVATIONS = {"gelu": 1, "relu": 2, "relu2": 3, "swiglu": 4, "gelu_erf": 5}
TANH = 6  # as the kernels have it, for networks that have no such setting
_TILE = 8192  # elements of a weight matrix that one program loads at once
_FEW_ROWS = 16  # for which a program keeps all its weights in registers, up to _PIECES times _PIECE of each output
_PIECE, _PIECES, _WARPS = 1024, 4, 4
_WHOLE = 256  # positions that one program attends to as fast as several do, whose results are joined


def is_available(network: Transformer, batch_size: int) -> bool:
    """Return True if the kernels can run on the network's device, for its design and this batch size."""
    return suits(network.config) and are_available(network.embedding, batch_size)


def are_available(weight_VD: Tensor, batch_size: int) -> bool:
    """Return True if the kernels can run on the device of this table, for its width and this batch size."""
    most = _MOST_ROWS_IF_NARROW if weight_VD.shape[1] <= _NARROW else MOST_ROWS
    is_possible = weight_VD.device.type == "cuda" and weight_VD.dtype != torch.float64
    return batch_size <= most and is_possible and has_triton()


def suits(config: TransformerConfig) -> bool:
    """Return True if the kernels, and those that choose a token and embed it, compute this design."""
    if not config.residual or config.qk_gain or (config.embedding_norm and config.placement == "pre"):
        return False
    return config.heads * config.head_size == config.width


class NormArguments(NamedTuple):
    """A norm as arguments of a kernel."""

    how: int
    """The kind of norm: 0 none, 1 RMSNorm, 2 LayerNorm."""
    vectors: tuple[Tensor, Tensor]
    """Gain and shift; any tensor where there is none."""
    has: tuple[bool, bool]
    """True if there is a gain; True if there is a shift."""
    eps: float

    @classmethod
    def of(cls, norm: Norm | None, anything: Tensor) -> NormArguments:
        """Return the arguments for a norm, or for none; `anything` stands in for vectors that it lacks."""
        if norm is None:
            return cls(0, (anything, anything), (False, False), 0.0)
        gain, shift = (anything if vector is None else vector for vector in (norm.weight, norm.bias))
        has = norm.weight is not None, norm.bias is not None
        return cls(2 if norm.is_layernorm else 1, (gain, shift), has, norm.eps)


class SpanSums(NamedTuple):
    """The sums of each query over each span of positions, before the spans are joined; P spans, Q queries."""

    best: Tensor
    """The largest score, [P, Q]."""
    total: Tensor
    """Σ e^s over the span, [P, Q]."""
    taken: Tensor
    """Σ e^s v over the span, [P, Q, K]."""


class Source(NamedTuple):
    """The sources that the rows of a decoder look at, at fixed addresses."""

    arrays: tuple[Tensor, ...]
    """Keys and values of each layer in turn, [B, S, G, K] each."""
    lasts_B: Tensor
    """The position of the last token of each source."""


class Step:
    """What the steps of all networks have, for batches of one size: tables of embeddings, and matrix products."""

    last_norm: Norm | None = None
    """The norm that makes features of what `read` returns; None: those are the features."""
    keeps_normed = False
    """True if a product of one row leaves its normalised input in `normed`, as one of more rows does."""

    def __init__(self, table: Table, places_TD: Tensor | None, rows: int, width: int) -> None:
        """`places_TD` are the positions that are added to embeddings; None where there are none."""
        self.table, self.places_TD, self.rows = table, places_TD, rows
        like = table.weight_VD.detach()
        self.normed = like.new_empty(rows, width)
        self.ahead, self.launch = launch_options(like.device)

    def embed(self, ids_B: Tensor, lengths_B: Tensor) -> Tensor:
        """x⁰ = E[id] + position, of a token of each row that stands behind those that it has read."""
        from chainrule.inference.gpu import step_kernels as kernels

        x_BD = torch.empty_like(self.normed)
        width, has_places = x_BD.shape[1], self.places_TD is not None
        kernels.embed_rows[(self.rows,)](
            ids_B, lengths_B, self.table.weight_VD, self.places_TD if has_places else x_BD, x_BD, self.table.scale,
            width, power_of_two(width), has_places, self.ahead, num_warps=4, **self.launch,
        )  # fmt: skip
        return x_BD

    def linear(
        self,
        x: Tensor,
        layer: nn.Linear,
        out: Tensor,
        *,
        norm: Norm | None = None,
        activation: int = 0,
        residual: Tensor | None = None,
    ) -> Tensor:
        """φ(W Norm(x) + b) + residual, written to `out`; with `keeps_normed`, Norm(x) is in `normed` then."""
        from chainrule.inference.gpu import step_kernels as kernels

        B, K = x.shape
        N = out.shape[1]
        normed = NormArguments.of(norm, x)
        bias, added = (x if tensor is None else tensor for tensor in (layer.bias, residual))
        has_bias, has_residual = layer.bias is not None, residual is not None
        if B == 1:
            block_k = power_of_two(K)
            block_n = max(_TILE // block_k, 1)
            while block_n > 1 and N // block_n < 256:  # enough programs to occupy the GPU
                block_n //= 2
            kernels.linear_of_row[(-(-N // block_n),)](
                x, layer.weight, bias, *normed.vectors, added, self.normed, out, normed.eps, N, K, normed.how,
                activation, has_bias, *normed.has, has_residual, self.keeps_normed, block_n, block_k, self.ahead,
                num_warps=8, **self.launch,
            )  # fmt: skip
            return out
        if norm is not None:
            kernels.norm_of_rows[(B,)](
                x, *normed.vectors, self.normed, normed.eps, K, power_of_two(K), normed.how, *normed.has,
                self.ahead, num_warps=4, **self.launch,
            )  # fmt: skip
            x = self.normed
        if B <= _FEW_ROWS and x.dtype.itemsize == 2 and K <= _PIECES * _PIECE:
            piece = min(max(power_of_two(K), 16 * _WARPS), _PIECE)
            block_n = 8 if activation == _ACTIVATIONS["swiglu"] else 16
            kernels.linear_of_few[(-(-N // block_n),)](
                x, layer.weight, bias, added, out, B, N, K, activation, has_bias, has_residual, _FEW_ROWS, block_n,
                _WARPS, piece // _WARPS, -(-K // piece), self.ahead, num_warps=_WARPS, **self.launch,
            )  # fmt: skip
            return out
        block_n = 16 if N < 4096 else 32
        # of many rows, each program takes a part, so that there are enough programs
        block_b = max(power_of_two(B), 16) if B <= MOST_ROWS else MOST_ROWS // 2
        stages = 4 if block_b * x.dtype.itemsize <= 256 else 2  # more would not fit into shared memory
        kernels.linear[(-(-N // block_n), -(-B // block_b))](
            x, layer.weight, bias, added, out, B, N, K, activation, has_bias, has_residual,
            block_b, block_n, 128, self.ahead, num_warps=4, num_stages=stages, **self.launch,
        )  # fmt: skip
        return out


class FusedStep(Step):
    """The step of one network for batches of one size; the kernels' intermediate results have fixed addresses."""

    def __init__(self, network: Transformer, batch_size: int, source: Source | None = None) -> None:
        """`source` is what blocks look at that have attention to a source."""
        config = network.config
        super().__init__(network.table(), network.positions.added_TD, batch_size, config.width)
        self.network, self.config, self.source = network, config, source
        self.head_size = config.head_size
        self.is_pre = config.placement == "pre"
        self.keeps_normed = not self.is_pre
        blocks: list[Block] = list(network.blocks)  # type: ignore[arg-type]
        of_parts = [
            norm
            for block in blocks
            for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm)
            if norm is not None
        ]
        # a post-norm block normalises the sum that a part of it makes, which is done as the next part reads it
        norms = [*of_parts, network.norm] if self.is_pre else [network.embedding_norm, *of_parts]
        # of each part of each block the norm before it, and at last that of the features
        self.norms: list[Norm | None] = norms  # type: ignore[assignment]
        self.last_norm = self.norms[-1]
        like = network.embedding.detach()
        self.qkv = like.new_empty(batch_size, (config.heads + 2 * config.kv_heads) * self.head_size)
        self.q = like.new_empty(batch_size, config.width)
        self.taken = like.new_empty(batch_size, config.width)
        self.hidden = like.new_empty(batch_size, config.hidden)
        positions = [config.window] if source is None else [config.window, source.arrays[0].shape[1]]
        queries = max(_parts_of(count)[1] for count in positions), batch_size * config.heads
        self.spans = SpanSums(
            torch.empty(queries, device=like.device),
            torch.empty(queries, device=like.device),
            torch.empty(*queries, self.head_size, device=like.device),
        )

    def __call__(self, ids_B: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D] of one token a row; write keys and values in place, at position lengths_B."""
        assert self.last_norm is not None
        x_BD = self.embed(ids_B, lengths_B)
        features_BD: Tensor = self.last_norm(self.read(x_BD, keys_LBGSK, values_LBGSK, lengths_B))
        return features_BD

    def read(self, x_BD: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the sum that the last part of the last block makes, for x⁰; keys and values are written in place.

        `last_norm` makes features of it.
        """
        norms = iter(self.norms)
        for layer, block in enumerate(self.network.blocks):
            assert isinstance(block, Block)
            attention, feedforward = block.attention, block.feedforward
            before_BD = self._enter(x_BD, next(norms), attention.qkv, self.qkv)
            self._attend_to_itself(keys_LBGSK[layer], values_LBGSK[layer], lengths_B)
            x_BD = self.linear(self.taken, attention.out, torch.empty_like(x_BD), residual=before_BD)
            if block.cross is not None:
                assert self.source is not None
                before_BD = self._enter(x_BD, next(norms), block.cross.q, self.q)
                self._attend_to_source(*self.source.arrays[2 * layer : 2 * layer + 2])
                x_BD = self.linear(self.taken, block.cross.out, torch.empty_like(x_BD), residual=before_BD)
            bend = _ACTIVATIONS[self.config.activation]
            before_BD = self._enter(x_BD, next(norms), feedforward.up, self.hidden, activation=bend)
            x_BD = self.linear(self.hidden, feedforward.out, torch.empty_like(x_BD), residual=before_BD)
        return x_BD

    def _enter(
        self, x_BD: Tensor, norm: Norm | None, layer: nn.Linear, out: Tensor, *, activation: int = 0
    ) -> Tensor:
        """Write φ(W Norm(x) + b) to `out`, and return what the result of this part of a block is added to."""
        self.linear(x_BD, layer, out, norm=norm, activation=activation)
        return x_BD if self.is_pre or norm is None else self.normed

    def _attend_to_itself(self, keys_BGSK: Tensor, values_BGSK: Tensor, lengths_B: Tensor) -> None:
        """Attention from `qkv` to `taken`; the new keys and values are written at position lengths_B."""
        from chainrule.inference.gpu import step_kernels as kernels

        config, positions, K = self.config, self.network.positions, self.head_size
        H, G = config.heads, config.kv_heads
        strides = keys_BGSK.stride(0), keys_BGSK.stride(1)
        if strides[0]:
            self._attend(self.qkv, keys_BGSK, values_BGSK, lengths_B, (*strides, K), config.window, appends=True)
            return
        # the rows share their keys: those of all rows are written before any row looks at them
        cos, sin = (self.q if table is None else table for table in (positions.cos_TK, positions.sin_TK))
        kernels.place_heads[(self.rows, H + 2 * G)](
            self.qkv, self.q, keys_BGSK, values_BGSK, lengths_B, cos, sin, *strides, config.norm_eps,
            H, G, K, max(power_of_two(K), 16), config.qk_norm, positions.cos_TK is not None, self.ahead,
            num_warps=1, **self.launch,
        )  # fmt: skip
        self._attend(self.q, keys_BGSK, values_BGSK, lengths_B, (*strides, K), config.window, is_placed=True)

    def _attend_to_source(self, keys_BSGK: Tensor, values_BSGK: Tensor) -> None:
        """Attention of the queries `q` to the source, written to `taken`."""
        assert self.source is not None
        strides = keys_BSGK.stride(0), keys_BSGK.stride(2), keys_BSGK.stride(1)
        self._attend(self.q, keys_BSGK, values_BSGK, self.source.lasts_B, strides, keys_BSGK.shape[1])

    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        lasts_B: Tensor,
        strides: tuple[int, int, int],
        most: int,
        *,
        appends: bool = False,
        is_placed: bool = False,
    ) -> None:
        """Attention of each row to at most so many positions, up to the last one of the row, written to `taken`.

        `strides` are those of rows, heads and positions. `appends`: keys and values of the newest token stand
        behind its queries. `is_placed`: the queries are normalised and rotated.
        """
        from chainrule.inference.gpu import step_kernels as kernels

        config, positions, K = self.config, self.network.positions, self.head_size
        block_k = max(power_of_two(K), 16)  # tl.dot takes no side below 16
        is_own = appends or is_placed
        rotates = appends and positions.cos_TK is not None
        cos, sin = (self.q if table is None else table for table in (positions.cos_TK, positions.sin_TK))
        slopes = self.q if positions.slopes_H is None else positions.slopes_H
        sharing, (span, parts) = config.heads // config.kv_heads, _parts_of(most)
        kernels.attend_part[(self.rows * config.kv_heads, parts)](
            queries, keys, values, lasts_B, cos, sin, slopes, self.spans, self.taken, *strides, K**-0.5,
            config.norm_eps, config.kv_heads, sharing, K, max(power_of_two(sharing), 16), block_k,
            span, min(max(power_of_two(most), 16), 64), appends, config.qk_norm and not is_placed, rotates,
            is_own and positions.slopes_H is not None, parts == 1, self.ahead, num_warps=4, **self.launch,
        )  # fmt: skip
        if parts > 1:
            kernels.join_parts[(self.rows * config.heads,)](
                self.spans, self.taken, parts,
                K, power_of_two(parts), block_k, self.ahead, num_warps=1, **self.launch,
            )  # fmt: skip


def _parts_of(positions: int) -> tuple[int, int]:
    """Return the length of the spans that attention to so many positions is divided into, and their number."""
    span = _WHOLE if positions <= _WHOLE else max(128, power_of_two(positions) // 32)
    return span, -(-positions // span)


def launch_options(device: torch.device) -> tuple[bool, dict[str, bool]]:
    """Return whether a kernel may start ahead of the results that it waits for, and the options that say so."""
    ahead = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return ahead, {"launch_pdl": True} if ahead else {}


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
