"""Attention: each token compares its query with the keys of the tokens so far, and takes a mean of their values.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V

Query heads may share a head of keys and values: each has its own (multi-head), all share one (multi-query), or
groups of them do (grouped-query).

Axes: B batch, H heads of queries, G heads of keys and values, T queries, S keys, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.designs.transformer import TransformerConfig
from chainrule.neural.networks.transformer.norms import rms_norm
from chainrule.neural.networks.transformer.positions import rotate

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function from q_BHTK, and the k_BGTK and v_BGTK of the same tokens, to the attention output, [B, H, T, K]."""


def attention_weights(q_BHTK: Tensor, k_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The attention weight of each key for each query, [B, H, T, S]; a row sums to one.

    A boolean mask says which keys each query sees, [..., T, S]; a mask of floats is added to the scores.
    """
    k_BHSK = k_BGSK.repeat_interleave(q_BHTK.shape[1] // k_BGSK.shape[1], dim=1)
    # softmax(Q Kᵀ / sqrt(d_k))
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.shape[-1])
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores_BHTS + mask
    return scores_BHTS.softmax(dim=-1)


def textbook_attention(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The output of attention, [B, H, T, K], by the equation; the reference in tests."""
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
) -> Tensor:
    """The same as `textbook_attention`, but by torch's fused kernels.

    `is_causal` stands for the mask that hides keys s > t, and is faster.
    """
    shared = q_BHTK.shape[1] != k_BGSK.shape[1]
    return F.scaled_dot_product_attention(
        q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=shared
    )


def single_query_attention(q_BH1K: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same as `textbook_attention`, but for one query per row.

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
        self.head_size = config.width // config.heads
        self.qk_norm, self.norm_eps = config.qk_norm, config.norm_eps
        # one product for all three is faster than three
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.kv_heads) * self.head_size, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor, rotation: tuple[Tensor, Tensor] | None, attend: Attend) -> Tensor:
        B, T, _ = x_BTD.shape
        qkv_BTHK = self.qkv(x_BTD).view(B, T, self.heads + 2 * self.kv_heads, self.head_size)
        if self.qk_norm or rotation is not None:
            # queries and keys are treated alike, so both at once
            qk_BTHK, v_BTGK = qkv_BTHK.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
            if self.qk_norm:
                qk_BTHK = rms_norm(qk_BTHK, self.norm_eps)
            if rotation is not None:
                qk_BTHK = rotate(qk_BTHK, *rotation)
            q_BTHK, k_BTGK = qk_BTHK.split([self.heads, self.kv_heads], dim=2)
        else:
            q_BTHK, k_BTGK, v_BTGK = qkv_BTHK.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        taken_BHTK = attend(q_BTHK.transpose(1, 2), k_BTGK.transpose(1, 2), v_BTGK.transpose(1, 2))
        mixed: Tensor = self.out(taken_BHTK.transpose(1, 2).reshape(x_BTD.shape))
        return mixed
