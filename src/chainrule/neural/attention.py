"""Attention: each token asks the tokens before it, and takes from those that answer.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V

Heads of queries may share a head of keys and values: all have their own (multi-head), all share one (multi-query),
or something between (grouped-query).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.neural.norms import rms_norm
from chainrule.neural.positions import rotate
from chainrule.neural.presets import TransformerConfig

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From q_BHTK, and the k_BGTK and v_BGTK of the same tokens, what each query takes, [B, H, T, K]."""


def attention_weights(q_BHTK: Tensor, k_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much each query takes of each key, [B, H, T, S]; a row sums to one.

    A mask says which keys are seen, [..., T, S], or is added to the scores.
    """
    k_BHSK = k_BGSK.repeat_interleave(q_BHTK.shape[1] // k_BGSK.shape[1], dim=1)
    # softmax(Q Kᵀ / sqrt(d_k))
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.shape[-1])
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores_BHTS + mask
    return scores_BHTS.softmax(dim=-1)


def textbook_attention(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The equation, step by step; the reference in tests."""
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
    """The same by torch's fused kernels. `is_causal` is as the mask that hides s > t, and faster."""
    shared = q_BHTK.shape[1] != k_BGSK.shape[1]
    return F.scaled_dot_product_attention(
        q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=shared
    )


def single_query_attention(q_BH1K: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same for one query per row: the heads that share keys take the place of time in one product."""
    B, H, _, K = q_BH1K.shape
    G, S = k_BGSK.shape[1:3]
    scores_BGRS = q_BH1K.view(B, G, H // G, K) @ k_BGSK.transpose(-2, -1) * K**-0.5
    if mask is not None:
        mask = mask.expand(B, H, 1, S).reshape(B, G, H // G, S)
        scores_BGRS = scores_BGRS.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores_BGRS + mask
    taken_BGRK: Tensor = scores_BGRS.softmax(dim=-1) @ v_BGSK
    return taken_BGRK.view(B, H, 1, K)


class SelfAttention(nn.Module):
    """Queries, keys and values of the same tokens, many heads at once, and what they found mixed again."""

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
            # what is done to queries is done to keys
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
