"""Multi-head self-attention: each token compares its query with the keys of the tokens so far.

    [Q; K; V] = W x + b                          for each head
    A = softmax(Q Kᵀ / sqrt(d_k)) V              a mean of the values, weighted by how well the keys match
    z = W_out [A_1; ...; A_H] + b_out

Query heads may share a head of keys and values: each has its own (multi-head), all share one (multi-query), or
groups of them do (grouped-query).

Axes: T tokens, D features, H heads of queries, G heads of keys and values, R = H / G, K features of a head.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chainrule.autodiff.networks.network import Randomness, keep_mask
from chainrule.autodiff.networks.transformer.positions import Places
from chainrule.autodiff.tape.attention import MergeHeads, Rotate, ScaledDotProductAttention, SplitHeads
from chainrule.autodiff.tape.modules import Linear, RMSNorm
from chainrule.autodiff.tape.moves import Reshape, Slice
from chainrule.autodiff.tape.nodes import Array, Node, Parameter
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.transformer.config import TransformerConfig


def linear(parameters: Mapping[str, Parameter], name: str, x: Node) -> Module:
    """W x + b, or W x if there is no bias of that name."""
    learned = [parameters[f"{name}.weight"], parameters.get(f"{name}.bias")]
    return Linear().apply_fwd(x, *(each for each in learned if each is not None))


def self_attention(
    parameters: Mapping[str, Parameter],
    name: str,
    config: TransformerConfig,
    x: Node,
    places: Places,
    randomness: Randomness | None = None,
) -> Module:
    """Attention of each token x_t to the tokens up to t: x and the result are [..., T, D]."""
    H, G, size = config.heads, config.kv_heads, config.head_size
    qkv = linear(parameters, f"{name}.qkv", x)
    # queries, keys and values stand side by side in one matrix
    q, k, v = (
        SplitHeads(heads).apply_fwd(Slice(np.s_[..., first * size : (first + heads) * size]).apply_fwd(qkv))
        for first, heads in ((0, H), (H, G), (H + G, G))
    )
    gains = (parameters[f"{name}.{each}_gain_K"] if config.qk_gain else None for each in "qk")
    query, key = (_placed(each, config, places, gain) for each, gain in zip((q, k), gains, strict=True))
    taken = _attend(query, key, v, config, places.bias_HTT, randomness)
    return linear(parameters, f"{name}.out", MergeHeads().apply_fwd(taken))


def _placed(x: Module, config: TransformerConfig, places: Places, gain_K: Node | None) -> Module:
    """Queries or keys [..., T, K], normalised and rotated where the design says so."""
    if config.qk_norm:
        x = RMSNorm(config.norm_eps).apply_fwd(*(x,) if gain_K is None else (x, gain_K))
    return x if places.rotation is None else Rotate(*places.rotation).apply_fwd(x)


def _attend(
    q: Module,
    k: Module,
    v: Module,
    config: TransformerConfig,
    bias_HTT: Array | None,
    randomness: Randomness | None,
) -> Module:
    """softmax(Q Kᵀ / sqrt(d_k) + B) V, [..., H, T, K]: head h of the queries goes with head h // R of the keys."""
    G, R = config.kv_heads, config.heads // config.kv_heads
    *leading, H, T, K = shape = q.out_tensor.shape
    bias, scores = bias_HTT, (*leading, H, T, T)
    if R > 1:
        # an axis of length 1 in keys and values serves all R heads of a group
        q = Reshape(*leading, G, R, T, K).apply_fwd(q)
        k, v = (Reshape(*leading, G, 1, T, K).apply_fwd(each) for each in (k, v))
        bias, scores = None if bias is None else bias.reshape(G, R, T, T), (*leading, G, R, T, T)
    share = config.attention_dropout
    keep = keep_mask(scores, share, randomness) if randomness is not None and share else None
    taken: Module = ScaledDotProductAttention(causal=True, bias=bias, keep=keep).apply_fwd(q, k, v)
    return Reshape(*shape).apply_fwd(taken) if R > 1 else taken
