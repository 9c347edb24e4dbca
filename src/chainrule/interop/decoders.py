"""Transformers that predict text: `GPT2LMHeadModel`, `LlamaForCausalLM`, `Qwen3ForCausalLM`, `MistralForCausalLM`.

A Qwen3 is a Llama that normalises queries and keys. A Mistral is a Llama whose attention may reach back a number of
tokens only (`sliding_window`); one that reaches all tokens is read.

The feed-forward part of these three has a gate: down(φ(gate x) ⊙ up x). With φ = silu that is swiglu. relu2,
max(0, z)², has no gate, but can be written with one: φ = relu and gate = up give relu(z) z = relu(z)².
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import USUAL_SIZES, WITH_LAYERNORM, Architecture, Pair, even_heads, expect, state_of
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
        "residual": (True,),
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
_USUAL_REACH = 4096  # the window of a configuration that gives none

DECODERS = {architecture.name: architecture for architecture in (GPT2, LLAMA, QWEN3, MISTRAL)}


def architecture_of(config: TransformerConfig) -> Architecture:
    """Return the architecture that a network is written in, which its norms decide."""
    if config.norm == "layernorm":
        return GPT2
    return QWEN3 if config.qk_norm else LLAMA


def to_weights(
    architecture: Architecture, network: Transformer, rows: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the published weights of a network, and its configuration; tables have `rows` rows, or one a token."""
    config, rows = network.config, rows or network.head.vocab_size
    others: dict[str, Any] = {}
    if architecture is GPT2:
        expect(config, architecture.model_type, {**architecture.allowed, **even_heads(config)})
    else:
        expect(config, architecture.model_type, architecture.allowed)
        others = {
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_size,
            "hidden_act": "silu" if config.activation == "swiglu" else "relu",
            "attention_bias": config.bias,
            "rope_theta": config.rotary_base,
            **({"use_sliding_window": False} if architecture is QWEN3 else {"mlp_bias": config.bias}),
        }
    return architecture.published(state_of(network), _pairs(architecture, config), config, rows, **others)


def from_weights(
    architecture: Architecture,
    weights: Mapping[str, Tensor],
    described: Mapping[str, Any],
    bos: int,
    vocab_size: int | None = None,
) -> Transformer:
    """Return a network with published weights and their configuration; `vocab_size` may add rows."""
    settings, rows = architecture.settings(described), described["vocab_size"]
    if architecture is GPT2:
        config = TransformerConfig(preset="gpt2", **settings)
    else:
        design = _llama_design(architecture, weights, described, settings)
        config = TransformerConfig(preset="llama", **settings, **design)
    pairs = _pairs(architecture, config)
    if "wte.weight" in weights:  # the files of GPT-2's first release leave the prefix out
        pairs = [
            pair._replace(theirs=[name.removeprefix("transformer.") for name in pair.theirs]) for pair in pairs
        ]
    return architecture.network(lambda: Transformer(config, vocab_size or rows, bos), weights, pairs, rows)


def _llama_design(
    architecture: Architecture,
    weights: Mapping[str, Tensor],
    described: Mapping[str, Any],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Return the settings of a Llama that follow rules of their own; refuse a design that no network here has."""
    rope = described.get("rope_parameters") or described.get("rope_scaling") or {}
    stretched = rope.get("rope_type", rope.get("type", "default"))  # configurations of older versions say `type`
    if stretched != "default":
        raise SettingsError(f"rotary positions should not be stretched, but are by {stretched!r}")
    design = {
        "kv_heads": described.get("num_key_value_heads") or settings["heads"],
        "head_size": described.get("head_dim") or settings["width"] // settings["heads"],
        "activation": _activation(architecture, weights, described),
        "rotary_base": float(rope.get("rope_theta", described.get("rope_theta", 10000.0))),
    }
    if architecture is QWEN3:
        names = [
            f"model.layers.{i}.self_attn.{part}_norm.weight" for i in range(settings["layers"]) for part in "qk"
        ]
        gains = any(name in weights and not bool((weights[name].float() == 1).all()) for name in names)
        return {**design, "qk_norm": True, "qk_gain": gains}
    if architecture is MISTRAL:
        reach, window = described.get("sliding_window", _USUAL_REACH), settings["window"]
        if reach is not None and reach < window:
            raise SettingsError(
                f"sliding_window of a Mistral should be null, or max_position_embeddings, {window}, not {reach!r}"
            )
        return {**design, "bias": False}
    attention, feedforward = bool(described.get("attention_bias")), bool(described.get("mlp_bias"))
    if attention != feedforward:
        raise SettingsError(f"mlp_bias of a Llama should be as attention_bias, {attention}, not {feedforward}")
    return {**design, "bias": attention}


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


def _pairs(architecture: Architecture, config: TransformerConfig) -> list[Pair]:
    """Return every weight of a network with its published ones; with relu2, gate and up are each all of ours."""
    pairs: list[Pair] = []
    for pair in architecture.pairs(config, bias=architecture is GPT2 or config.bias):
        is_apart = config.activation == "relu2" and ".feedforward.up." in pair.ours
        pairs += [pair._replace(theirs=[name]) for name in pair.theirs] if is_apart else [pair]
    return pairs
