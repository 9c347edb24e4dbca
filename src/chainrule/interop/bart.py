"""`BartForConditionalGeneration`: its weights and its configuration.

The position of a token is the row of its place in the table, after two rows that are of no use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import (
    ACTIVATIONS,
    Pair,
    activation_of,
    completed,
    expect_values,
    from_published,
    refuse,
    to_published,
    whole_numbers,
)
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.networks.seq2seq.transformer import TransformerEncoderDecoder

_TABLE, _BIAS = "model.shared.weight", "final_logits_bias"
_UNREAD = (_BIAS, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
"""The bias of the logits, which is 0, and the table under its other names."""
_SIZES = ("d_model", "max_position_embeddings", "vocab_size")
_SIDES = ("layers", "attention_heads", "ffn_dim")
_OFFSET = 2
_EPS = 1e-5  # of its norms, which no configuration changes
_OUTSIDE: Mapping[str, tuple[Any, ...]] = {
    "cell": ("transformer",),
    "shared": (True,),
    "tied": (True,),
    "pretrain": ("none",),
}
_CAN: Mapping[str, tuple[Any, ...]] = {
    "norm": ("layernorm",),
    "placement": ("post",),
    "positions": ("learned", "sinusoidal", "none"),
    "activation": tuple(ACTIVATIONS),
    "qk_norm": (False,),
    "embedding_norm": (True,),
    "norm_eps": (_EPS,),
}
_ALWAYS = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "normalize_embedding": True,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
}
"""What configurations of any version may say, and no network here has otherwise."""


def to_bart_weights(
    network: EncoderDecoder, config: Seq2SeqSettings, rows: int, before: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `BartForConditionalGeneration`, and its configuration; its table has `rows` rows.

    `before` is the id there of the token before a source, which is <s> here; None: the same one, or there is none.
    """
    found = {name: getattr(config, name) for name in _OUTSIDE}
    if not isinstance(network, TransformerEncoderDecoder):
        refuse("BartForConditionalGeneration", found, _OUTSIDE)
    assert isinstance(network, TransformerEncoderDecoder)
    design = network.decoder.config
    found |= {name: getattr(design, name) for name in _CAN}
    refuse("BartForConditionalGeneration", found, {**_OUTSIDE, **_CAN})
    state = {
        f"{side}.{name}": weight
        for side, half in (("encoder", network.encoder), ("decoder", network.decoder))
        for name, weight in completed(half).items()
    }
    # as it is: what is looked up is scaled there as well
    table_VD = network.decoder.embedding.detach().clone()
    if before is not None and network.source_start is not None:
        table_VD[before] = table_VD[network.source_start]
    state["decoder.embedding"] = table_VD
    described: dict[str, Any] = {
        "model_type": "bart",
        "architectures": ["BartForConditionalGeneration"],
        "vocab_size": rows,
        "d_model": design.width,
        "max_position_embeddings": design.window,
        "activation_function": ACTIVATIONS[design.activation],
        "scale_embedding": design.scaled_embedding,
        "dropout": design.dropout or 0.0,
        "attention_dropout": design.attention_dropout or 0.0,
        "activation_dropout": design.hidden_dropout or 0.0,
        "init_std": design.initial_std,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }
    for side in ("encoder", "decoder"):
        sizes = {"layers": design.layers, "attention_heads": design.heads, "ffn_dim": design.hidden}
        described |= {f"{side}_{name}": size for name, size in sizes.items()}
    weights = to_published(state, _pairs(design.layers), rows, design)
    return {**weights, _BIAS: torch.zeros(1, rows)}, described


def from_bart_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], vocab_size: int, bos: int, before: int | None
) -> tuple[TransformerEncoderDecoder, Seq2SeqSettings]:
    """A network with the weights and the configuration of a `BartForConditionalGeneration`, and its settings.

    `vocab_size` may add rows; `before` is the id of the token before a source, which <s> stands for here.
    """
    whole_numbers(described, [*_SIZES, *(f"{side}_{name}" for side in ("encoder", "decoder") for name in _SIDES)])
    expect_values(described, "BART", _ALWAYS)
    for name in _SIDES:
        one, other = (described[f"{side}_{name}"] for side in ("encoder", "decoder"))
        if one != other:
            raise SettingsError(f"decoder_{name} of a BART should be as encoder_{name}, {one}, not {other}")
    if _BIAS in weights and bool((weights[_BIAS] != 0).any()):
        raise SettingsError(f"{_BIAS} of a BART should be 0: an encoder-decoder here adds none to its logits")
    settings = Seq2SeqSettings(
        preset="bart",
        layers=described["encoder_layers"],
        width=described["d_model"],
        heads=described["encoder_attention_heads"],
        hidden=described["encoder_ffn_dim"],
        window=described["max_position_embeddings"],
        activation=activation_of(described.get("activation_function", "gelu"), "BART"),  # type: ignore[arg-type]
        scaled_embedding=bool(described.get("scale_embedding", False)),
        source_start=before is not None,
        dropout=described.get("dropout", 0.1),
        attention_dropout=described.get("attention_dropout", 0.0),
        token_dropout=0.0,
    )

    def make() -> TransformerEncoderDecoder:
        return TransformerEncoderDecoder(settings, vocab_size, bos, vocab_size, shares=True)

    network = from_published(
        make, weights, list(_pairs(settings.layers)), rows=described["vocab_size"], unread=_UNREAD
    )
    if before is not None:
        with torch.no_grad():
            network.decoder.embedding[bos] = network.decoder.embedding[before]
    return network, settings


def _pairs(layers: int) -> Iterator[Pair]:
    yield Pair("decoder.embedding", [_TABLE], is_table=True)
    for side in ("encoder", "decoder"):
        yield Pair(f"{side}.positions.added_TD", [f"model.{side}.embed_positions.weight"], skipped=_OFFSET)
        for kind in ("weight", "bias"):
            yield Pair(f"{side}.embedding_norm.{kind}", [f"model.{side}.layernorm_embedding.{kind}"])
            for i in range(layers):
                yield from _block(f"{side}.blocks.{i}", f"model.{side}.layers.{i}", kind, crosses=side == "decoder")


def _block(ours: str, theirs: str, kind: str, *, crosses: bool) -> Iterator[Pair]:
    yield Pair(f"{ours}.attention.qkv.{kind}", [f"{theirs}.self_attn.{x}_proj.{kind}" for x in "qkv"])
    yield Pair(f"{ours}.attention.out.{kind}", [f"{theirs}.self_attn.out_proj.{kind}"])
    yield Pair(f"{ours}.attention_norm.{kind}", [f"{theirs}.self_attn_layer_norm.{kind}"])
    if crosses:
        yield Pair(f"{ours}.cross.q.{kind}", [f"{theirs}.encoder_attn.q_proj.{kind}"])
        yield Pair(f"{ours}.cross.kv.{kind}", [f"{theirs}.encoder_attn.{x}_proj.{kind}" for x in "kv"])
        yield Pair(f"{ours}.cross.out.{kind}", [f"{theirs}.encoder_attn.out_proj.{kind}"])
        yield Pair(f"{ours}.cross_norm.{kind}", [f"{theirs}.encoder_attn_layer_norm.{kind}"])
    yield Pair(f"{ours}.feedforward.up.{kind}", [f"{theirs}.fc1.{kind}"])
    yield Pair(f"{ours}.feedforward.out.{kind}", [f"{theirs}.fc2.{kind}"])
    yield Pair(f"{ours}.feedforward_norm.{kind}", [f"{theirs}.final_layer_norm.{kind}"])
