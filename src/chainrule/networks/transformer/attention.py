"""Attention: each token compares its query with the keys of the tokens so far, and takes a mean of their values.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V

Query heads may share a head of keys and values: each has its own (multi-head), all share one (multi-query), or
groups of them do (grouped-query).

Axes: B batch, H heads of queries, G heads of keys and values, T queries, S keys, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.networks.layers import Linear, rms_norm
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.positions import Rotation, rotate

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function from q_BHTK, and the k_BGTK and v_BGTK of the same tokens, to the attention output, [B, H, T, K]."""

Kept: TypeAlias = list[Tensor] | None
"""A list to which the attention weights of each layer, [B, H, T, S], are appended; None: nobody asks for them."""


def attention_weights(q_BHTK: Tensor, k_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the attention weight of each key for each query, [B, H, T, S]; a row sums to one.

    A boolean mask says which keys each query sees, [..., T, S]; a mask of floats is added to the scores.
    """
    k_BHSK = k_BGSK.repeat_interleave(q_BHTK.shape[1] // k_BGSK.shape[1], dim=1)
    # softmax(Q Kᵀ / sqrt(d_k))
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.shape[-1])
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores_BHTS + mask
    return scores_BHTS.softmax(dim=-1)


def textbook_attention(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the output of attention, [B, H, T, K], by the equation; the reference in tests."""
    v_BHSK = v_BGSK.repeat_interleave(q_BHTK.shape[1] // v_BGSK.shape[1], dim=1)
    # softmax(Q Kᵀ / sqrt(d_k)) V
    return attention_weights(q_BHTK, k_BGSK, mask) @ v_BHSK


def fused_attention(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSK: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
    is_usual: bool = False,
) -> Tensor:
    """Return the same as `textbook_attention`, but by torch's fused kernels.

    `is_causal` stands for the mask that hides keys s > t, and is faster. `is_usual`: most calls have this shape.
    """
    shared = q_BHTK.shape[1] != k_BGSK.shape[1]
    varies = q_BHTK.device.type == "cuda" and not is_usual
    with _without_plans() if varies and not torch.compiler.is_compiling() else nullcontext():
        return F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=shared
        )


@contextmanager
def _without_plans() -> Iterator[None]:
    """Keep torch from calling cuDNN for attention within the block.

    cuDNN makes a plan for each shape, which takes 10 to 40 ms. Windows of one shape repay that many times; lines,
    sources and targets, and texts that grow, come in new shapes all the time.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def single_query_attention(q_BH1K: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same as `textbook_attention`, but for one query per row.

    The R = H / G query heads that share keys take the place of the time axis in one product.
    """
    B, H, _, K = q_BH1K.shape
    G, S = k_BGSK.shape[1:3]
    scores_BGRS = q_BH1K.view(B, G, H // G, K) @ k_BGSK.transpose(-2, -1) * K**-0.5
    if mask is not None:
        mask = mask.expand(B, H, 1, S).reshape(B, G, H // G, S)
        scores_BGRS = scores_BGRS.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores_BGRS + mask
    taken_BGRK: Tensor = scores_BGRS.softmax(dim=-1) @ v_BGSK
    return taken_BGRK.view(B, H, 1, K)


class SelfAttention(nn.Module):
    """Multi-head self-attention: queries, keys and values of the same tokens, and a layer that mixes the heads."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_size = config.head_size
        self.qk_norm, self.norm_eps = config.qk_norm, config.norm_eps
        if config.qk_gain:
            self.q_gain_K, self.k_gain_K = (nn.Parameter(torch.ones(self.head_size)) for _ in range(2))
        # one product for all three is faster than three
        self.qkv = Linear(config.width, (self.heads + 2 * self.kv_heads) * self.head_size, bias=config.bias)
        self.out = Linear(self.heads * self.head_size, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        B, T, _ = x_BTD.shape
        qkv_BTHK = self.qkv(x_BTD).view(B, T, self.heads + 2 * self.kv_heads, self.head_size)
        if self.qk_norm or rotation is not None:
            # queries and keys are treated alike, so both at once
            qk_BTHK, v_BTGK = qkv_BTHK.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
            if self.qk_norm:
                qk_BTHK = rms_norm(qk_BTHK, self.norm_eps)
            if hasattr(self, "q_gain_K"):
                gains = self.q_gain_K.expand(self.heads, -1), self.k_gain_K.expand(self.kv_heads, -1)
                qk_BTHK = qk_BTHK * torch.cat(gains)
            if rotation is not None:
                qk_BTHK = rotate(qk_BTHK, *rotation)
            q_BTHK, k_BTGK = qk_BTHK.split([self.heads, self.kv_heads], dim=2)
        else:
            q_BTHK, k_BTGK, v_BTGK = qkv_BTHK.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        taken_BHTK = attend(q_BTHK.transpose(1, 2), k_BTGK.transpose(1, 2), v_BTGK.transpose(1, 2))
        mixed: Tensor = self.out(taken_BHTK.transpose(1, 2).reshape(B, T, self.heads * self.head_size))
        return mixed


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to a source: its own queries, and keys and values of the encoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_size = config.head_size
        self.qk_norm, self.norm_eps = config.qk_norm, config.norm_eps
        self.q = Linear(config.width, self.heads * self.head_size, bias=config.bias)
        self.kv = Linear(config.width, 2 * self.kv_heads * self.head_size, bias=config.bias)
        self.out = Linear(self.heads * self.head_size, config.width, bias=config.bias)

    def keys_values(self, source_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the encoder's features, [B, S, G, K] each, for every token of the target."""
        k_BSGK, v_BSGK = self.kv(source_BSD).unflatten(-1, (2 * self.kv_heads, self.head_size)).chunk(2, dim=2)
        return rms_norm(k_BSGK, self.norm_eps) if self.qk_norm else k_BSGK, v_BSGK

    def forward(self, x_BTD: Tensor, source: SourceView) -> Tensor:
        q_BTHK = self.q(x_BTD).unflatten(-1, (self.heads, self.head_size))
        if self.qk_norm:
            q_BTHK = rms_norm(q_BTHK, self.norm_eps)
        # rows that share a source are queries of one row
        q_NQHK = q_BTHK.reshape(len(source.is_token_NS), -1, self.heads, self.head_size)
        taken_NHQK = source.attend(q_NQHK.transpose(1, 2))
        mixed: Tensor = self.out(taken_NHQK.transpose(1, 2).reshape(*x_BTD.shape[:2], self.heads * self.head_size))
        return mixed


class SourceView(NamedTuple):
    """The view that one layer of a decoder has of N sources; equally many successive rows share each source."""

    k_NGSK: Tensor
    v_NGSK: Tensor
    is_token_NS: Tensor
    dropout: float = 0.0
    kept: Kept = None

    def attend(self, q_NHQK: Tensor) -> Tensor:
        """Return the output of attention to the tokens of each source."""
        mask_N11S = self.is_token_NS[:, None, None]
        if self.kept is not None:
            self.kept.append(attention_weights(q_NHQK, self.k_NGSK, mask_N11S))
        return fused_attention(q_NHQK, self.k_NGSK, self.v_NGSK, mask_N11S, dropout=self.dropout)
