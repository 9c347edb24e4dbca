"""`BertForMaskedLM`: its weights and its configuration.

Segments (`token_type_embeddings`) have no counterpart here: a text is one segment, whose vector is part of every
position. <s> and [MASK], which a masked model of ours never predicts, have a logit of about `NEVER` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import (
    ACTIVATIONS,
    Pair,
    activation_of,
    complete_norm,
    complete_product,
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
from chainrule.networks.settings import MaskedSettings
from chainrule.networks.transformer.masked import MaskedTransformer

_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "intermediate_size")
_NAMES = {
    "max_position_embeddings": "window",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "tie_word_embeddings": "tied",
    "initializer_range": "initial_std",
}
"""The settings of a BERT by their names there."""
_DEFAULTS = {"norm_eps": 1e-12, "dropout": 0.1, "attention_dropout": 0.1, "tied": True, "initial_std": 0.02}
NEVER = -10_000.0
"""The bias of a token that is never predicted; float16 has it as well."""

_SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_BIAS, _BIAS_OF_PRODUCT = "cls.predictions.bias", "cls.predictions.decoder.bias"
_CAN: Mapping[str, tuple[Any, ...]] = {
    "norm": ("layernorm",),
    "placement": ("post",),
    "positions": ("learned", "sinusoidal", "none"),
    "activation": tuple(ACTIVATIONS),
    "qk_norm": (False,),
    "embedding_norm": (True,),
    "head_layer": (True,),
}
_UNREAD = (
    _SEGMENTS,
    _BIAS,
    _BIAS_OF_PRODUCT,
    ".position_ids",
    "bert.pooler.dense.weight",
    "bert.pooler.dense.bias",
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
)
"""Segments and biases, read by themselves; positions, which are counted; the classifier of pairs of sentences."""


def to_bert_weights(
    network: MaskedTransformer, rows: int, mask: int, never: Sequence[int] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a `BertForMaskedLM`, and its configuration; its tables have `rows` rows.

    `mask` is the id of [MASK] there, which follows the vocabulary here; the tokens of `never` are not predicted.
    """
    config = network.config
    expect(config, "BertForMaskedLM", {**_CAN, **even_heads(config)})
    state = _completed(network)
    state["encoder.embedding"] = state["encoder.embedding"].clone()
    state["encoder.embedding"][mask] = state["encoder.embedding"][network.head.vocab_size]
    state["head.bias"] = state["head.bias"].clone()
    state["head.bias"][list(never)] = NEVER
    described = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "vocab_size": rows,
        "hidden_act": ACTIVATIONS[config.activation],
        "type_vocab_size": 2,
        **described_by(config, _NAMES),
    }
    weights = to_published(state, _pairs(config), rows, config)
    weights[_SEGMENTS] = torch.zeros(2, config.width)
    weights[_BIAS_OF_PRODUCT] = weights[_BIAS].clone()
    return weights, described


def from_bert_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], mask: int, vocab_size: int
) -> MaskedTransformer:
    """A network with the weights and the configuration of a `BertForMaskedLM`, whose [MASK] has the id `mask`.

    `vocab_size` may add rows; those of [MASK] follow.
    """
    whole_numbers(described, _SIZES)
    expect_values(described, "BERT", {"is_decoder": False, "add_cross_attention": False})
    expect_values(described, "BERT", {"position_embedding_type": "absolute", "embedding_size": None})
    activation = activation_of(described.get("hidden_act", "gelu"), "BERT")
    settings = settings_of(described, _NAMES, _DEFAULTS)
    config = MaskedSettings(
        preset="bert",
        activation=activation,  # type: ignore[arg-type]
        hidden_dropout=0.0,
        token_dropout=0.0,
        **settings,
    )
    pairs = [_as_named(pair, weights) for pair in _pairs(config)]
    unread = [*_UNREAD, *(["cls.predictions.decoder.weight"] if config.tied else [])]
    network = from_published(
        lambda: MaskedTransformer(config, vocab_size), weights, pairs, rows=described["vocab_size"], unread=unread
    )
    segments = weights.get(_SEGMENTS)
    with torch.no_grad():
        if segments is not None:
            if list(segments.shape[1:]) != [config.width] or not len(segments):
                raise SettingsError(f"{_SEGMENTS} should be vectors of {config.width} numbers")
            added_TD = network.encoder.positions.added_TD
            assert added_TD is not None
            added_TD += segments[0].float()
        network.encoder.embedding[vocab_size] = network.encoder.embedding[mask]
    return network


def _as_named(pair: Pair, weights: Mapping[str, Tensor]) -> Pair:
    """The pair under the names that these weights have: files of the first releases say gamma and beta."""
    names = list(pair.theirs)
    if names == [_BIAS] and _BIAS_OF_PRODUCT in weights:
        names = [_BIAS_OF_PRODUCT]  # the same in most files; where they differ, it is this one that is added
    for number, name in enumerate(names):
        early = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        if name not in weights and early in weights:
            names[number] = early
    return pair._replace(theirs=names)


def _completed(network: MaskedTransformer) -> dict[str, Tensor]:
    state = {name: weight.detach() for name, weight in network.state_dict().items()}
    complete_product(state, "head_layer.dense.weight")
    complete_norm(state, "head_layer.norm", network.config.width)
    return state | {f"encoder.{name}": weight for name, weight in completed(network.encoder).items()}


def _pairs(config: MaskedSettings) -> Iterator[Pair]:
    yield Pair("encoder.embedding", ["bert.embeddings.word_embeddings.weight"], is_table=True)
    yield Pair("encoder.positions.added_TD", [_POSITIONS])
    for kind in ("weight", "bias"):
        yield Pair(f"encoder.embedding_norm.{kind}", [f"bert.embeddings.LayerNorm.{kind}"])
        for i in range(config.layers):
            ours, theirs = f"encoder.blocks.{i}", f"bert.encoder.layer.{i}"
            heads = [f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value")]
            yield Pair(f"{ours}.attention.qkv.{kind}", heads)
            yield Pair(f"{ours}.attention.out.{kind}", [f"{theirs}.attention.output.dense.{kind}"])
            yield Pair(f"{ours}.attention_norm.{kind}", [f"{theirs}.attention.output.LayerNorm.{kind}"])
            yield Pair(f"{ours}.feedforward.up.{kind}", [f"{theirs}.intermediate.dense.{kind}"])
            yield Pair(f"{ours}.feedforward.out.{kind}", [f"{theirs}.output.dense.{kind}"])
            yield Pair(f"{ours}.feedforward_norm.{kind}", [f"{theirs}.output.LayerNorm.{kind}"])
        yield Pair(f"head_layer.dense.{kind}", [f"cls.predictions.transform.dense.{kind}"])
        yield Pair(f"head_layer.norm.{kind}", [f"cls.predictions.transform.LayerNorm.{kind}"])
    yield Pair("head.bias", [_BIAS], is_table=True)
    if not config.tied:
        yield Pair("head.weight", ["cls.predictions.decoder.weight"], is_table=True)
