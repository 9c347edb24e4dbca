"""`GPT2LMHeadModel`: its weights and its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from chainrule.interop.weights import (
    ACTIVATIONS,
    Pair,
    activation_of,
    completed,
    described_by,
    even_heads,
    expect,
    expect_values,
    from_published,
    settings_of,
    to_published,
    whole_numbers,
)
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

_SIZES = ("n_layer", "n_embd", "n_head", "n_positions")
_NAMES = {
    "n_positions": "window",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "n_inner": "hidden",
    "layer_norm_epsilon": "norm_eps",
    "resid_pdrop": "dropout",
    "embd_pdrop": "embedding_dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tied",
    "initializer_range": "initial_std",
}
"""The settings of a GPT-2 by their names there."""
_DEFAULTS = {
    "hidden": None,  # 4 width, with us as with them
    "norm_eps": 1e-5,
    "dropout": 0.1,
    "embedding_dropout": 0.1,
    "attention_dropout": 0.1,
    "tied": True,
    "initial_std": 0.02,
}
_UNREAD = (".attn.bias", ".attn.masked_bias")  # the mask of attention, which older files have
_CAN = {
    "norm": ("layernorm",),
    "placement": ("pre",),
    "positions": ("learned", "sinusoidal", "none"),
    "qk_norm": (False,),
    "activation": tuple(ACTIVATIONS),
    "embedding_norm": (False,),
}


def to_gpt2_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `GPT2LMHeadModel`, and its configuration; tables have `rows` rows, or one for each token."""
    config, rows = network.config, rows or network.head.vocab_size
    expect(config, "gpt2", {**_CAN, **even_heads(config)})
    described = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": rows,
        "activation_function": ACTIVATIONS[config.activation],
        **described_by(config, _NAMES),
    }
    return to_published(completed(network), _pairs(config), rows, config), described


def from_gpt2_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """A network with the weights and the configuration of a `GPT2LMHeadModel`; `vocab_size` may add rows."""
    activation = activation_of(described.get("activation_function", "gelu_new"), "GPT-2")
    whole_numbers(described, _SIZES)
    expect_values(described, "GPT-2", {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False})
    settings = settings_of(described, _NAMES, _DEFAULTS)
    config = TransformerConfig(preset="gpt2", activation=activation, **settings)  # type: ignore[arg-type]
    pairs = list(_pairs(config))
    if "wte.weight" in weights:  # the files of the first release leave the prefix out
        pairs = [
            pair._replace(theirs=[name.removeprefix("transformer.") for name in pair.theirs]) for pair in pairs
        ]
    rows, unread = described["vocab_size"], [*_UNREAD, *(["lm_head.weight"] if config.tied else [])]
    return from_published(
        lambda: Transformer(config, vocab_size or rows, bos), weights, pairs, rows=rows, unread=unread
    )


def _pairs(config: TransformerConfig) -> Iterator[Pair]:
    yield Pair("embedding", ["transformer.wte.weight"], is_table=True)
    yield Pair("positions.added_TD", ["transformer.wpe.weight"])
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
        for kind in ("weight", "bias"):
            yield Pair(f"{ours}.attention_norm.{kind}", [f"{theirs}.ln_1.{kind}"])
            yield Pair(f"{ours}.feedforward_norm.{kind}", [f"{theirs}.ln_2.{kind}"])
            # published matrices are [in, out], ours [out, in]
            is_matrix = kind == "weight"
            yield Pair(f"{ours}.attention.qkv.{kind}", [f"{theirs}.attn.c_attn.{kind}"], is_matrix)
            yield Pair(f"{ours}.attention.out.{kind}", [f"{theirs}.attn.c_proj.{kind}"], is_matrix)
            yield Pair(f"{ours}.feedforward.up.{kind}", [f"{theirs}.mlp.c_fc.{kind}"], is_matrix)
            yield Pair(f"{ours}.feedforward.out.{kind}", [f"{theirs}.mlp.c_proj.{kind}"], is_matrix)
    yield Pair("norm.weight", ["transformer.ln_f.weight"])
    yield Pair("norm.bias", ["transformer.ln_f.bias"])
    if not config.tied:
        yield Pair("head.weight", ["lm_head.weight"], is_table=True)
