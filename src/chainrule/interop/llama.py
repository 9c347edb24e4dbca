"""`LlamaForCausalLM`; `Qwen3ForCausalLM`, which is a Llama that normalises queries and keys; `MistralForCausalLM`.

A Mistral is a Llama whose attention may reach back a number of tokens only (`sliding_window`); one that reaches all
tokens is read.

Their feed-forward part has a gate: down(φ(gate x) ⊙ up x). With φ = silu that is swiglu. The activation relu2,
max(0, z)², has no gate, but is one nevertheless: with φ = relu and gate = up, relu(z) z = relu(z)².
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import (
    USUAL_SIZES,
    Architecture,
    Pair,
    expect,
    from_published,
    state_of,
    to_published,
)
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

LLAMA = Architecture(
    "LlamaForCausalLM",
    title="Llama",
    model_type="llama",
    sizes=USUAL_SIZES,
    # those of heads and rotations follow rules of their own
    options={
        "rms_norm_eps": ("norm_eps", 1e-6),
        "attention_dropout": ("attention_dropout", 0.0),
        "tie_word_embeddings": ("tied", False),
        "initializer_range": ("initial_std", 0.02),
    },
    weights={
        "embedding": "model.embed_tokens.weight",
        "blocks.{}.attention_norm.weight": "model.layers.{}.input_layernorm.weight",
        "blocks.{}.attention.q_gain_K": "model.layers.{}.self_attn.q_norm.weight",
        "blocks.{}.attention.k_gain_K": "model.layers.{}.self_attn.k_norm.weight",
        "blocks.{}.attention.qkv.*": "model.layers.{}.self_attn.[q|k|v]_proj.*",
        "blocks.{}.attention.out.*": "model.layers.{}.self_attn.o_proj.*",
        "blocks.{}.feedforward_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
        "blocks.{}.feedforward.up.*": "model.layers.{}.mlp.[gate|up]_proj.*",
        "blocks.{}.feedforward.out.*": "model.layers.{}.mlp.down_proj.*",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    },
    allowed={
        "norm": ("rmsnorm",),
        "placement": ("pre",),
        "positions": ("rotary",),
        "activation": ("swiglu", "relu2"),
        "embedding_norm": (False,),
        "qk_norm": (False,),
    },
    unread=("rotary_emb.inv_freq",),  # computed from the configuration; older files have them
)
QWEN3 = replace(
    LLAMA,
    name="Qwen3ForCausalLM",
    title="Qwen3",
    model_type="qwen3",
    allowed={**LLAMA.allowed, "qk_norm": (True,), "bias": (False,)},
    expected={"attention_bias": False, "use_sliding_window": False},
)

MISTRAL = replace(LLAMA, name="MistralForCausalLM", title="Mistral", model_type="mistral")
_USUAL_REACH = 4096  # what a configuration that does not say means


def to_llama_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a `LlamaForCausalLM`, and its configuration; tables have `rows` rows, or all."""
    return _to(LLAMA, network, rows, mlp_bias=network.config.bias)


def to_qwen3_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a `Qwen3ForCausalLM`, and its configuration; tables have `rows` rows, or all."""
    return _to(QWEN3, network, rows, use_sliding_window=False)


def _to(
    architecture: Architecture, network: Transformer, rows: int | None, **others: Any
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    config, rows = network.config, rows or network.head.vocab_size
    expect(config, architecture.model_type, architecture.allowed)
    others |= {
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu" if config.activation == "swiglu" else "relu",
        "attention_bias": config.bias,
        "rope_theta": config.rotary_base,
    }
    weights = to_published(state_of(network), _pairs(config), rows, config)
    return weights, architecture.described(config, rows, **others)


def from_llama_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """Return a network with the weights and configuration of a `LlamaForCausalLM`; `vocab_size` may add rows."""
    attention, feedforward = bool(described.get("attention_bias")), bool(described.get("mlp_bias"))
    if attention != feedforward:
        raise SettingsError(f"mlp_bias of a Llama should be as attention_bias, {attention}, not {feedforward}")
    return _from(LLAMA, weights, described, bos, vocab_size, bias=attention)


def from_qwen3_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """Return the same of a `Qwen3ForCausalLM`."""
    layers = range(QWEN3.settings(described)["layers"])
    names = [f"model.layers.{i}.self_attn.{part}_norm.weight" for i in layers for part in "qk"]
    gains = any(name in weights and not bool((weights[name].float() == 1).all()) for name in names)
    return _from(QWEN3, weights, described, bos, vocab_size, qk_norm=True, qk_gain=gains)


def from_mistral_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """Return the same of a `MistralForCausalLM` whose attention reaches all tokens."""
    reach, window = described.get("sliding_window", _USUAL_REACH), MISTRAL.settings(described)["window"]
    if reach is not None and reach < window:
        raise SettingsError(
            f"sliding_window of a Mistral should be null, or max_position_embeddings, {window}, not {reach!r}"
        )
    return _from(MISTRAL, weights, described, bos, vocab_size, bias=False)


def _from(
    architecture: Architecture,
    weights: Mapping[str, Tensor],
    described: Mapping[str, Any],
    bos: int,
    vocab_size: int | None,
    **design: Any,
) -> Transformer:
    settings = {**architecture.settings(described), **design}
    rope = described.get("rope_parameters") or described.get("rope_scaling") or {}
    stretched = rope.get("rope_type", rope.get("type", "default"))  # configurations of older versions say `type`
    if stretched != "default":
        raise SettingsError(f"rotary positions should not be stretched, but are by {stretched!r}")
    config = TransformerConfig(
        preset="llama",
        kv_heads=described.get("num_key_value_heads") or settings["heads"],
        head_size=described.get("head_dim") or settings["width"] // settings["heads"],
        activation=_activation(architecture, weights, described),  # type: ignore[arg-type]
        rotary_base=float(rope.get("rope_theta", described.get("rope_theta", 10000.0))),
        **settings,
    )
    rows, pairs = described["vocab_size"], list(_pairs(config))
    return from_published(
        lambda: Transformer(config, vocab_size or rows, bos), weights, pairs, rows=rows, unread=architecture.unread
    )


def _activation(architecture: Architecture, weights: Mapping[str, Tensor], described: Mapping[str, Any]) -> str:
    """Return our name of `hidden_act`; relu is relu2 if the gate has the weights of what it multiplies."""
    found = described.get("hidden_act", "silu")
    if found == "silu":
        return "swiglu"
    parts = [f"model.layers.{i}.mlp" for i in range(described["num_hidden_layers"])]
    is_square = found == "relu" and all(
        f"{part}.gate_proj.weight" in weights
        and torch.equal(weights[f"{part}.gate_proj.weight"], weights[f"{part}.up_proj.weight"])
        for part in parts
    )
    if not is_square:
        raise SettingsError(f"hidden_act of a {architecture.title} should be silu, not {found!r}")
    return "relu2"


def _pairs(config: TransformerConfig) -> Iterator[Pair]:
    for pair in LLAMA.pairs(config, bias=config.bias):
        if config.activation == "relu2" and ".feedforward.up." in pair.ours:
            yield from (pair._replace(theirs=[name]) for name in pair.theirs)  # each is all of ours
        else:
            yield pair
