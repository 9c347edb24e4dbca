"""`GPT2LMHeadModel`: its weights and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from chainrule.interop.weights import (
    WITH_LAYERNORM,
    Architecture,
    even_heads,
    expect,
    from_published,
    state_of,
    to_published,
)
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

GPT2 = Architecture(
    "GPT2LMHeadModel",
    title="GPT-2",
    model_type="gpt2",
    sizes={"n_positions": "window", "n_embd": "width", "n_layer": "layers", "n_head": "heads"},
    options={
        "n_inner": ("hidden", None),  # 4 width, with us as with them
        "layer_norm_epsilon": ("norm_eps", 1e-5),
        "resid_pdrop": ("dropout", 0.1),
        "embd_pdrop": ("embedding_dropout", 0.1),
        "attn_pdrop": ("attention_dropout", 0.1),
        "tie_word_embeddings": ("tied", True),
        "initializer_range": ("initial_std", 0.02),
    },
    weights={
        "embedding": "transformer.wte.weight",
        "positions.added_TD": "transformer.wpe.weight",
        "blocks.{}.attention_norm.*": "transformer.h.{}.ln_1.*",
        "blocks.{}.attention.qkv.*": "transformer.h.{}.attn.c_attn.*ᵀ",
        "blocks.{}.attention.out.*": "transformer.h.{}.attn.c_proj.*ᵀ",
        "blocks.{}.feedforward_norm.*": "transformer.h.{}.ln_2.*",
        "blocks.{}.feedforward.up.*": "transformer.h.{}.mlp.c_fc.*ᵀ",
        "blocks.{}.feedforward.out.*": "transformer.h.{}.mlp.c_proj.*ᵀ",
        "norm.*": "transformer.ln_f.*",
        "head.weight": "lm_head.weight",
    },
    allowed={**WITH_LAYERNORM, "placement": ("pre",), "embedding_norm": (False,)},
    expected={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    activation=("activation_function", "gelu_new"),
    unread=(".attn.bias", ".attn.masked_bias"),  # the mask of attention, which older files have
)


def to_gpt2_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and configuration of a `GPT2LMHeadModel`; tables have `rows` rows, or one a token."""
    config, rows = network.config, rows or network.head.vocab_size
    expect(config, "gpt2", {**GPT2.allowed, **even_heads(config)})
    return to_published(state_of(network), GPT2.pairs(config), rows, config), GPT2.described(config, rows)


def from_gpt2_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """Return a network with the weights and the configuration of a `GPT2LMHeadModel`; `vocab_size` may add rows."""
    config, rows = TransformerConfig(preset="gpt2", **GPT2.settings(described)), described["vocab_size"]
    pairs = GPT2.pairs(config)
    if "wte.weight" in weights:  # the files of the first release leave the prefix out
        pairs = [
            pair._replace(theirs=[name.removeprefix("transformer.") for name in pair.theirs]) for pair in pairs
        ]
    return from_published(
        lambda: Transformer(config, vocab_size or rows, bos), weights, pairs, rows=rows, unread=GPT2.unread
    )
