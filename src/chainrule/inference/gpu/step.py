"""A Transformer's step by the kernels of step_kernels.py: `Transformer.step` at memory bandwidth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from chainrule.networks.transformer.blocks import Block, Norm
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import has_triton

MOST_ROWS = 128
"""The largest batch for the kernels; with more rows, the products are large enough for those of torch."""
_ACTIVATIONS = {"gelu": 1, "relu": 2, "relu2": 3, "swiglu": 4}
_TILE = 8192  # elements of a weight matrix that one program loads at once
_FEW_ROWS = 16  # for which a program keeps all its weights in registers, up to _PIECES times _PIECE of each output
_PIECE, _PIECES, _WARPS = 1024, 4, 4


def is_available(network: Transformer, batch_size: int) -> bool:
    """Return True if the kernels can run on the network's device, for its design and this batch size."""
    weight = network.embedding
    if batch_size > MOST_ROWS or weight.device.type != "cuda" or weight.dtype == torch.float64:
        return False
    return suits(network.config) and has_triton()


def suits(config: TransformerConfig) -> bool:
    """Return True if the kernels, and those that choose a token and embed it, compute this design."""
    if config.placement != "pre" or not config.residual or config.qk_gain or config.embedding_norm:
        return False
    return config.activation in _ACTIVATIONS and config.heads * config.head_size == config.width


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


class FusedStep:
    """The step of one network for batches of one size; the kernels' intermediate results have fixed addresses."""

    def __init__(self, network: Transformer, batch_size: int) -> None:
        config = network.config
        self.network, self.config, self.rows = network, config, batch_size
        self.head_size = config.head_size
        self.span = max(128, power_of_two(config.window) // 32)
        self.parts = -(-config.window // self.span)
        like = network.embedding.detach()
        self.qkv = like.new_empty(batch_size, (config.heads + 2 * config.kv_heads) * self.head_size)
        self.q = like.new_empty(batch_size, config.width)
        self.normed = like.new_empty(batch_size, config.width)
        self.taken = like.new_empty(batch_size, config.width)
        self.hidden = like.new_empty(batch_size, config.hidden)
        queries = self.parts, batch_size * config.heads
        self.ahead, self.launch = launch_options(like.device)
        self.spans = SpanSums(
            torch.empty(queries, device=like.device),
            torch.empty(queries, device=like.device),
            torch.empty(*queries, self.head_size, device=like.device),
        )

    def __call__(self, ids_B: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D] of one token a row; write keys and values in place, at position lengths_B."""
        x_BD = self.network.embed(ids_B[:, None], lengths_B[:, None])[:, 0].contiguous()
        features_BD: Tensor = self.network.norm(self.read(x_BD, keys_LBGSK, values_LBGSK, lengths_B))
        return features_BD

    def read(self, x_BD: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the output of the last block for the embeddings x_BD; keys and values are written in place."""
        for layer, block in enumerate(self.network.blocks):
            assert isinstance(block, Block)
            attention, feedforward = block.attention, block.feedforward
            self._linear(x_BD, attention.qkv, self.qkv, norm=block.attention_norm)
            self._attend(keys_LBGSK[layer], values_LBGSK[layer], lengths_B)
            x_BD = self._linear(self.taken, attention.out, torch.empty_like(x_BD), residual=x_BD)
            bend = _ACTIVATIONS[self.config.activation]
            self._linear(x_BD, feedforward.up, self.hidden, norm=block.feedforward_norm, activation=bend)
            x_BD = self._linear(self.hidden, feedforward.out, torch.empty_like(x_BD), residual=x_BD)
        return x_BD

    def _linear(
        self,
        x: Tensor,
        layer: nn.Linear,
        out: Tensor,
        *,
        norm: Norm | None = None,
        activation: int = 0,
        residual: Tensor | None = None,
    ) -> Tensor:
        """φ(W Norm(x) + b) + residual, written to `out`."""
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
                x, layer.weight, bias, *normed.vectors, added, out, normed.eps, N, K, normed.how, activation,
                has_bias, *normed.has, has_residual, block_n, block_k, self.ahead, num_warps=8, **self.launch,
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
        stages = 4 if B * x.dtype.itemsize <= 256 else 2  # more would not fit into shared memory
        kernels.linear[(-(-N // block_n),)](
            x, layer.weight, bias, added, out, B, N, K, activation, has_bias, has_residual,
            max(power_of_two(B), 16), block_n, 128, self.ahead, num_warps=4, num_stages=stages, **self.launch,
        )  # fmt: skip
        return out

    def _attend(self, keys_BGSK: Tensor, values_BGSK: Tensor, lengths_B: Tensor) -> None:
        """Attention from `qkv` to `taken`; the new keys and values are written at position lengths_B."""
        from chainrule.inference.gpu import step_kernels as kernels

        config, positions, K = self.config, self.network.positions, self.head_size
        H, G, block_k = config.heads, config.kv_heads, max(power_of_two(K), 16)  # tl.dot takes no side below 16
        strides = keys_BGSK.stride(0), keys_BGSK.stride(1)
        cos, sin = (self.q if table is None else table for table in (positions.cos_TK, positions.sin_TK))
        kernels.place_heads[(self.rows, H + 2 * G)](
            self.qkv, self.q, keys_BGSK, values_BGSK, lengths_B, cos, sin, *strides, config.norm_eps,
            H, G, K, block_k, config.qk_norm, positions.cos_TK is not None, self.ahead, num_warps=1, **self.launch,
        )  # fmt: skip
        sharing = H // G
        slopes = self.q if positions.slopes_H is None else positions.slopes_H
        kernels.attend_part[(self.rows * G, self.parts)](
            self.q, keys_BGSK, values_BGSK, lengths_B, slopes, self.spans, *strides,
            K**-0.5, G, sharing, K, max(power_of_two(sharing), 16), block_k,
            self.span, 64, positions.slopes_H is not None, self.ahead, num_warps=4, **self.launch,
        )  # fmt: skip
        kernels.join_parts[(self.rows * H,)](
            self.spans, self.taken, self.parts,
            K, power_of_two(self.parts), block_k, self.ahead, num_warps=1, **self.launch,
        )  # fmt: skip


def launch_options(device: torch.device) -> tuple[bool, dict[str, bool]]:
    """Return whether a kernel may start ahead of the results that it waits for, and the options that say so."""
    ahead = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return ahead, {"launch_pdl": True} if ahead else {}


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
