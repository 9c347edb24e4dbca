"""One token on its way through a Transformer: its vector after the embedding and after each part of each block.

The values are those that a forward pass left on the tape. What the head would predict from the vector after each
block (the "logit lens") shows where on the way the prediction is made.

Axes: T tokens, D features, H heads, K features of a head, I hidden features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.autodiff import Add, Linear, Module, Node, ScaledDotProductAttention, Value, no_grad
from chainrule.autodiff.networks.transformer import TapeTransformer


@dataclass(frozen=True, eq=False)
class Attended:
    """The attention of the last token in one layer: its queries against the keys, and the mean of the values."""

    query_HK: np.ndarray
    keys_HTK: np.ndarray
    """The keys of all tokens; heads that share keys have the same."""
    values_HTK: np.ndarray
    scores_HT: np.ndarray
    """q·k / sqrt(K), with the bias of positions, for each token that it may look at."""
    weights_HT: np.ndarray
    """The softmax of the scores."""

    def of_token(self) -> dict[str, np.ndarray]:
        """Return query, key and value of the last token itself by each head, and its scores of all tokens."""
        key_HK, value_HK = self.keys_HTK[:, -1], self.values_HTK[:, -1]
        return {"query": self.query_HK, "key": key_HK, "value": value_HK, "scores": self.scores_HT}


def attended_by_last(attention: ScaledDotProductAttention) -> Attended:
    """Return what the last of the tokens, which are all keys and queries, attended to; the arrays are copies."""
    heads = attention.weights.reshape(-1, *attention.weights.shape[-2:])
    q_HTK, k_HTK, v_HTK = (
        # heads that share keys and values stand in two axes
        np.repeat(one, len(heads) // len(one), axis=0)
        for one in (node.out_tensor.reshape(-1, *node.out_tensor.shape[-2:]) for node in attention.in_modules)
    )
    scores_HT = np.einsum("hk,htk->ht", q_HTK[:, -1], k_HTK) / np.sqrt(q_HTK.shape[-1])
    if attention.bias is not None:
        scores_HT = scores_HT + attention.bias.reshape(-1, *attention.bias.shape[-2:])[:, -1]
    return Attended(q_HTK[:, -1], k_HTK, v_HTK, scores_HT, heads[:, -1].copy())


@dataclass(frozen=True, eq=False)
class FollowedBlock:
    """What one block does to the last token."""

    attended: Attended
    head_norms_H: np.ndarray
    """The length of the vector that each head adds."""
    attention_D: np.ndarray
    """What attention adds to the vector of the token."""
    middle_D: np.ndarray
    """The vector after attention."""
    hidden_I: np.ndarray
    """The hidden features of the feed-forward part, after the activation."""
    feedforward_D: np.ndarray
    """What the feed-forward part adds."""
    out_D: np.ndarray
    """The vector after the block."""


@dataclass(frozen=True, eq=False)
class Followed:
    """The way of the last token that a Transformer reads."""

    embedding_D: np.ndarray
    """E[id], scaled where the design says so."""
    position_D: np.ndarray | None
    """The vector of its position, where one is added."""
    first_D: np.ndarray
    """The vector before the first block."""
    blocks: tuple[FollowedBlock, ...]
    log_probs_SV: np.ndarray
    """ln p by the head, from the vector before the first block and after each block."""


def follow(network: TapeTransformer, modules: Sequence[Module], embedded: Module) -> Followed:
    """Follow the last token through the modules that `read` left on the tape; `embedded` are the embeddings."""
    products = {one.in_modules[1].name: one for one in modules if isinstance(one, Linear)}
    attention = [one for one in modules if isinstance(one, ScaledDotProductAttention)]
    is_pre = network.config.placement == "pre"

    def after(added: Module) -> Module:
        """Return the vector after this part of a block: x + f(x), or its norm."""
        total = added
        if network.config.residual:
            total = next(one for one in modules if isinstance(one, Add) and one.in_modules[1] is added)
        if is_pre:
            return total
        return next(one for one in modules if one.in_modules and one.in_modules[0] is total)

    blocks = []
    for layer, attended in enumerate(attention):
        mixed, transformed = (
            products[f"blocks.{layer}.{part}.out.weight"] for part in ("attention", "feedforward")
        )
        # z = W_out [A_1; ...; A_H]: head h adds its own columns of W_out times A_h
        taken_HK = _last(mixed.in_modules[0]).reshape(network.config.heads, -1)
        columns_DHK = mixed.in_modules[1].out_tensor.reshape(-1, *taken_HK.shape)
        added_HD = np.einsum("dhk,hk->hd", columns_DHK, taken_HK)
        blocks.append(
            FollowedBlock(
                attended_by_last(attended),
                head_norms_H=np.linalg.norm(added_HD, axis=-1),
                attention_D=_last(mixed),
                middle_D=_last(after(mixed)),
                hidden_I=_last(transformed.in_modules[0]),
                feedforward_D=_last(transformed),
                out_D=_last(after(transformed)),
            )
        )
    # the first block reads x⁰, or its norm
    first: Node = products["blocks.0.attention.qkv.weight"].in_modules[0]
    if is_pre:
        assert isinstance(first, Module)
        first = first.in_modules[0]
    added = [one for one in modules if isinstance(one, Add) and one.in_modules[0] is embedded]
    has_vector = network.config.positions in ("learned", "sinusoidal")
    x_SD = np.stack([_last(first), *(block.out_D for block in blocks)])
    with no_grad():
        x = Value(x_SD, "x")
        features = network.norm("norm", x) if is_pre else x
        logits_SV = network.logits(features).out_tensor
    # ln p = z - ln Σ e^z
    shifted_SV = logits_SV - logits_SV.max(axis=-1, keepdims=True)
    return Followed(
        embedding_D=_last(embedded),
        position_D=added[0].in_modules[1].out_tensor[-1] if has_vector else None,
        first_D=_last(first),
        blocks=tuple(blocks),
        log_probs_SV=shifted_SV - np.log(np.exp(shifted_SV).sum(axis=-1, keepdims=True)),
    )


def _last(node: Node) -> np.ndarray:
    """Return the row of the last token of the only text, [1, T, D]."""
    row: np.ndarray = node.out_tensor[0, -1]
    return row
