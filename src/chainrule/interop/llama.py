"""`LlamaForCausalLM` and `Qwen3ForCausalLM`, which is a Llama that normalises queries and keys.

Their feed-forward part has a gate: down(φ(gate x) ⊙ up x). With φ = silu that is swiglu. The activation relu2,
max(0, z)², has no gate, but is one nevertheless: with φ = relu and gate = up, relu(z) z = relu(z)².
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import (
    Pair,
    completed,
    described_by,
    expect,
    expect_values,
    from_published,
    settings_of,
    to_published,
    whole_numbers,
)
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "intermediate_size")
_NAMES = {
    "max_position_embeddings": "window",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "rms_norm_eps": "norm_eps",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tied",
    "initializer_range": "initial_std",
}
"""The settings of a Llama by their names there; those of heads and rotations follow rules of their own."""
_DEFAULTS = {"norm_eps": 1e-6, "attention_dropout": 0.0, "tied": False, "initial_std": 0.02}
_UNREAD = ("rotary_emb.inv_freq",)  # computed from the configuration; older files have them
_CAN: Mapping[str, tuple[Any, ...]] = {
    "norm": ("rmsnorm",),
    "placement": ("pre",),
    "positions": ("rotary",),
    "activation": ("swiglu", "relu2"),
    "embedding_norm": (False,),
}
_GATE, _UP = "mlp.gate_proj.weight", "mlp.up_proj.weight"


def to_llama_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `LlamaForCausalLM`, and its configuration; tables have `rows` rows, or all."""
    expect(network.config, "llama", {**_CAN, "qk_norm": (False,)})
    described = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "mlp_bias": network.config.bias}
    return _to(network, rows, described)


def to_qwen3_weights(network: Transformer, rows: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `Qwen3ForCausalLM`, and its configuration; tables have `rows` rows, or all."""
    config = network.config
    expect(config, "qwen3", {**_CAN, "qk_norm": (True,), "bias": (False,)})
    described = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "use_sliding_window": False}
    weights, described = _to(network, rows, described)
    if not config.qk_gain:
        for i in range(config.layers):
            for part in "qk":
                weights[f"model.layers.{i}.self_attn.{part}_norm.weight"] = torch.ones(config.head_size)
    return weights, described


def _to(
    network: Transformer, rows: int | None, described: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    config, rows = network.config, rows or network.head.vocab_size
    described |= {
        "vocab_size": rows,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu" if config.activation == "swiglu" else "relu",
        "attention_bias": config.bias,
        "rope_theta": config.rotary_base,
        **described_by(config, _NAMES),
    }
    return to_published(completed(network), _pairs(config, to_publish=True), rows, config), described


def from_llama_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """A network with the weights and the configuration of a `LlamaForCausalLM`; `vocab_size` may add rows."""
    attention, feedforward = bool(described.get("attention_bias")), bool(described.get("mlp_bias"))
    if attention != feedforward:
        raise SettingsError(f"mlp_bias of a Llama should be as attention_bias, {attention}, not {feedforward}")
    return _from(weights, described, bos, vocab_size, "Llama", bias=attention)


def from_qwen3_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int, vocab_size: int | None = None
) -> Transformer:
    """The same of a `Qwen3ForCausalLM`."""
    whole_numbers(described, _SIZES)
    expect_values(described, "Qwen3", {"attention_bias": False, "use_sliding_window": False})
    names = (
        f"model.layers.{i}.self_attn.{x}_norm.weight" for i in range(described["num_hidden_layers"]) for x in "qk"
    )
    gains = any(name in weights and not bool((weights[name].float() == 1).all()) for name in names)
    unread = () if gains else ("q_norm.weight", "k_norm.weight")
    return _from(weights, described, bos, vocab_size, "Qwen3", unread, qk_norm=True, qk_gain=gains)


def _from(
    weights: Mapping[str, Tensor],
    described: Mapping[str, Any],
    bos: int,
    vocab_size: int | None,
    name: str,
    unread: Sequence[str] = (),
    **design: Any,
) -> Transformer:
    whole_numbers(described, _SIZES)
    rope = described.get("rope_parameters") or described.get("rope_scaling") or {}
    heads, width = described["num_attention_heads"], described["hidden_size"]
    stretched = rope.get("rope_type", rope.get("type", "default"))  # configurations of older versions say `type`
    if stretched != "default":
        raise SettingsError(f"rotary positions should not be stretched, but are by {stretched!r}")
    config = TransformerConfig(
        preset="llama",
        kv_heads=described.get("num_key_value_heads") or heads,
        head_size=described.get("head_dim") or width // heads,
        activation=_activation(weights, described, name),  # type: ignore[arg-type]
        rotary_base=float(rope.get("rope_theta", described.get("rope_theta", 10000.0))),
        **settings_of(described, _NAMES, _DEFAULTS),
        **design,
    )
    rows, unread = described["vocab_size"], [*_UNREAD, *unread, *(["lm_head.weight"] if config.tied else [])]
    size = vocab_size or rows
    return from_published(
        lambda: Transformer(config, size, bos), weights, list(_pairs(config)), rows=rows, unread=unread
    )


def _activation(weights: Mapping[str, Tensor], described: Mapping[str, Any], name: str) -> str:
    """Ours for `hidden_act`: relu is relu2 where the gate lets through what it is made of."""
    found = described.get("hidden_act", "silu")
    if found == "silu":
        return "swiglu"
    layers = [f"model.layers.{i}." for i in range(described["num_hidden_layers"])]
    is_square = found == "relu" and all(
        layer + _GATE in weights and torch.equal(weights[layer + _GATE], weights[layer + _UP]) for layer in layers
    )
    if not is_square:
        raise SettingsError(f"hidden_act of a {name} should be silu, not {found!r}")
    return "relu2"


def _pairs(config: TransformerConfig, *, to_publish: bool = False) -> Iterator[Pair]:
    kinds = ("weight", "bias") if config.bias else ("weight",)
    yield Pair("embedding", ["model.embed_tokens.weight"], is_table=True)
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        if config.gain or to_publish:
            yield Pair(f"{ours}.attention_norm.weight", [f"{theirs}.input_layernorm.weight"])
            yield Pair(f"{ours}.feedforward_norm.weight", [f"{theirs}.post_attention_layernorm.weight"])
        if config.qk_gain:
            yield from (Pair(f"{ours}.attention.{x}_gain_K", [f"{theirs}.self_attn.{x}_norm.weight"]) for x in "qk")
        for kind in kinds:
            yield Pair(f"{ours}.attention.qkv.{kind}", [f"{theirs}.self_attn.{x}_proj.{kind}" for x in "qkv"])
            yield Pair(f"{ours}.attention.out.{kind}", [f"{theirs}.self_attn.o_proj.{kind}"])
            names = [f"{theirs}.mlp.{x}_proj.{kind}" for x in ("gate", "up")]
            if config.activation == "swiglu":
                yield Pair(f"{ours}.feedforward.up.{kind}", names)
            else:
                yield from (Pair(f"{ours}.feedforward.up.{kind}", [name]) for name in names)
            yield Pair(f"{ours}.feedforward.out.{kind}", [f"{theirs}.mlp.down_proj.{kind}"])
    yield Pair("norm.weight", ["model.norm.weight"])
    if not config.tied:
        yield Pair("head.weight", ["lm_head.weight"], is_table=True)
