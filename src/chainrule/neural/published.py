"""Weights to and from the names and shapes that GPT-2 and Llama are published with, as in the transformers library.

A design is a list of pairs: one weight of ours, and the published weights that are stacked in it, row upon row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chainrule.designs.transformer import TransformerConfig
from chainrule.errors import SettingsError
from chainrule.neural.networks.transformer.decoder import Transformer


class _Pair(NamedTuple):
    ours: str
    theirs: list[str]
    is_transposed: bool = False
    is_table: bool = False
    """Whether it has a row for each token; ours then has padding rows as well."""


def to_gpt2_weights(network: Transformer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `GPT2LMHeadModel`, and its configuration."""
    config = network.config
    _expect_design(config, "gpt2")
    described = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": network.head.vocab_size,
        "n_positions": config.window,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "activation_function": "gelu_new" if config.activation == "gelu" else "relu",
        "layer_norm_epsilon": config.norm_eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.embedding_dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tied,
        "initializer_range": config.initial_std,
    }
    return _to_published(network, _gpt2_pairs(config)), described


def from_gpt2_weights(weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int) -> Transformer:
    """A network with the weights and the configuration of a `GPT2LMHeadModel`."""
    activation = described.get("activation_function", "gelu_new")
    activations = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
    if activation not in activations:
        raise SettingsError(
            f"the activation of a GPT-2 should be one of {', '.join(activations)}, not {activation!r}"
        )
    for name, expected in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if described.get(name, expected) != expected:
            raise SettingsError(f"{name} of a GPT-2 should be {expected}, not {described[name]!r}")
    config = TransformerConfig(
        preset="gpt2",
        layers=described["n_layer"],
        width=described["n_embd"],
        heads=described["n_head"],
        window=described["n_positions"],
        hidden=described.get("n_inner"),  # type: ignore[arg-type]  # None: 4 width, with us as with them
        activation=activations[activation],  # type: ignore[arg-type]
        tied=described.get("tie_word_embeddings", True),
        norm_eps=described.get("layer_norm_epsilon", 1e-5),
        dropout=described.get("resid_pdrop", 0.1),
        embedding_dropout=described.get("embd_pdrop", 0.1),
        attention_dropout=described.get("attn_pdrop", 0.1),
    )
    # the files of the first release leave the prefix out
    if "wte.weight" in weights:
        weights = {name if name == "lm_head.weight" else f"transformer.{name}": w for name, w in weights.items()}
    return _from_published(config, described["vocab_size"], bos, weights, _gpt2_pairs(config))


def to_llama_weights(network: Transformer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `LlamaForCausalLM`, and its configuration."""
    config = network.config
    _expect_design(config, "llama")
    described = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": network.head.vocab_size,
        "max_position_embeddings": config.window,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.width // config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.attention_dropout,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rotary_base,
        "tie_word_embeddings": config.tied,
        "initializer_range": config.initial_std,
    }
    return _to_published(network, _llama_pairs(config)), described


def from_llama_weights(weights: Mapping[str, Tensor], described: Mapping[str, Any], bos: int) -> Transformer:
    """A network with the weights and the configuration of a `LlamaForCausalLM`."""
    rope = described.get("rope_parameters") or described.get("rope_scaling") or {}
    heads, width = described["num_attention_heads"], described["hidden_size"]
    stretched = rope.get("rope_type", rope.get("type", "default"))  # configurations of older versions say `type`
    if stretched != "default":
        raise SettingsError(f"rotary positions should not be stretched, but are by {stretched!r}")
    for name, expected in (("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu")):
        if described.get(name, expected) != expected:
            raise SettingsError(f"{name} of a Llama should be {expected}, not {described[name]!r}")
    if (described.get("head_dim") or width // heads) != width // heads:
        raise SettingsError(
            f"head_dim should be hidden_size / heads = {width // heads}, not {described['head_dim']}"
        )
    config = TransformerConfig(
        preset="llama",
        layers=described["num_hidden_layers"],
        width=width,
        heads=heads,
        kv_heads=described.get("num_key_value_heads") or heads,
        window=described["max_position_embeddings"],
        hidden=described["intermediate_size"],
        tied=described.get("tie_word_embeddings", False),
        norm_eps=described.get("rms_norm_eps", 1e-6),
        rotary_base=float(rope.get("rope_theta", described.get("rope_theta", 10000.0))),
        attention_dropout=described.get("attention_dropout", 0.0),
    )
    return _from_published(config, described["vocab_size"], bos, weights, _llama_pairs(config))


def _gpt2_pairs(config: TransformerConfig) -> Iterator[_Pair]:
    yield _Pair("embedding", ["transformer.wte.weight"], is_table=True)
    yield _Pair("positions.added_TD", ["transformer.wpe.weight"])
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
        for kind in ("weight", "bias"):
            yield _Pair(f"{ours}.attention_norm.{kind}", [f"{theirs}.ln_1.{kind}"])
            yield _Pair(f"{ours}.feedforward_norm.{kind}", [f"{theirs}.ln_2.{kind}"])
            # published matrices are [in, out], ours [out, in]
            is_matrix = kind == "weight"
            yield _Pair(f"{ours}.attention.qkv.{kind}", [f"{theirs}.attn.c_attn.{kind}"], is_matrix)
            yield _Pair(f"{ours}.attention.out.{kind}", [f"{theirs}.attn.c_proj.{kind}"], is_matrix)
            yield _Pair(f"{ours}.feedforward.up.{kind}", [f"{theirs}.mlp.c_fc.{kind}"], is_matrix)
            yield _Pair(f"{ours}.feedforward.out.{kind}", [f"{theirs}.mlp.c_proj.{kind}"], is_matrix)
    yield _Pair("norm.weight", ["transformer.ln_f.weight"])
    yield _Pair("norm.bias", ["transformer.ln_f.bias"])
    if not config.tied:
        yield _Pair("head.weight", ["lm_head.weight"], is_table=True)


def _llama_pairs(config: TransformerConfig) -> Iterator[_Pair]:
    yield _Pair("embedding", ["model.embed_tokens.weight"], is_table=True)
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        yield _Pair(f"{ours}.attention_norm.weight", [f"{theirs}.input_layernorm.weight"])
        yield _Pair(f"{ours}.feedforward_norm.weight", [f"{theirs}.post_attention_layernorm.weight"])
        yield _Pair(f"{ours}.attention.qkv.weight", [f"{theirs}.self_attn.{x}_proj.weight" for x in "qkv"])
        yield _Pair(f"{ours}.attention.out.weight", [f"{theirs}.self_attn.o_proj.weight"])
        yield _Pair(f"{ours}.feedforward.up.weight", [f"{theirs}.mlp.{x}_proj.weight" for x in ("gate", "up")])
        yield _Pair(f"{ours}.feedforward.out.weight", [f"{theirs}.mlp.down_proj.weight"])
    yield _Pair("norm.weight", ["model.norm.weight"])
    if not config.tied:
        yield _Pair("head.weight", ["lm_head.weight"], is_table=True)


def _to_published(network: Transformer, pairs: Iterator[_Pair]) -> dict[str, Tensor]:
    config, state = network.config, network.state_dict()
    head_size = config.width // config.heads
    weights = {}
    for pair in pairs:
        weight = state[pair.ours][: network.head.vocab_size] if pair.is_table else state[pair.ours]
        if len(pair.theirs) == 3:
            sizes = [config.width, config.kv_heads * head_size, config.kv_heads * head_size]
        else:
            sizes = [len(weight) // len(pair.theirs)] * len(pair.theirs)
        for name, part in zip(pair.theirs, weight.split(sizes), strict=True):
            weights[name] = (part.T if pair.is_transposed else part).contiguous()
    return weights


def _from_published(
    config: TransformerConfig, vocab_size: int, bos: int, weights: Mapping[str, Tensor], pairs: Iterator[_Pair]
) -> Transformer:
    network = Transformer(config, vocab_size, bos)
    state = network.state_dict()
    for pair in pairs:
        missing = [name for name in pair.theirs if name not in weights]
        if missing:
            raise SettingsError(
                f"the weights should have {missing[0]!r}, but have only {', '.join(sorted(weights))}"
            )
        parts = [weights[name].T if pair.is_transposed else weights[name] for name in pair.theirs]
        weight = torch.cat(parts)
        if pair.is_table:
            weight = _with_rows(weight[:vocab_size], len(state[pair.ours]))
        if weight.shape != state[pair.ours].shape:
            expected, found = list(state[pair.ours].shape), list(weight.shape)
            raise SettingsError(f"{', '.join(pair.theirs)} should make {expected}, not {found}")
        state[pair.ours].copy_(weight)
    return network


def _with_rows(table_VD: Tensor, rows: int) -> Tensor:
    """The table, padded to `rows` rows with the mean of its own.

    New rows have the mean of all logits, and e^mean(z) <= mean(e^z): none is more likely than the average token.
    """
    return torch.cat([table_VD, table_VD.mean(dim=0, keepdim=True).expand(rows - len(table_VD), -1)])


def _expect_design(config: TransformerConfig, preset: str) -> None:
    """Refuse settings that the published design cannot express."""
    design = TransformerConfig(preset=preset)  # type: ignore[arg-type]
    names = ["norm", "placement", "gain", "positions", "bias", "qk_norm", "scaled_embedding"]
    if preset == "gpt2" and config.kv_heads != config.heads:
        raise SettingsError(f"a gpt2 has as many kv_heads as heads ({config.heads}), not {config.kv_heads}")
    if preset == "llama" or config.activation not in ("gelu", "relu"):
        names.append("activation")
    for name in names:
        if getattr(config, name) != getattr(design, name):
            expected, found = getattr(design, name), getattr(config, name)
            raise SettingsError(f"a {preset} has {name}={expected}, this network {name}={found}")
