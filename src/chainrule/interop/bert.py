"""`BertForMaskedLM`: its weights and its configuration.

Segments (`token_type_embeddings`) have no counterpart here: a text is one segment, whose vector is part of every
position. <s> and [MASK], which a masked model of ours never predicts, have a logit of about `NEVER` there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import USUAL_SIZES, WITH_LAYERNORM, Architecture, Pair, even_heads, expect, state_of
from chainrule.networks.transformer.masked import MaskedTransformer
from chainrule.networks.transformer.settings import MaskedSettings

NEVER = -10_000.0
"""The bias of a token that is never predicted; float16 has it as well."""

_SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
_BIAS, _BIAS_OF_PRODUCT = "cls.predictions.bias", "cls.predictions.decoder.bias"
BERT = Architecture(
    "BertForMaskedLM",
    title="BERT",
    model_type="bert",
    sizes=USUAL_SIZES,
    options={
        "layer_norm_eps": ("norm_eps", 1e-12),
        "hidden_dropout_prob": ("dropout", 0.1),
        "attention_probs_dropout_prob": ("attention_dropout", 0.1),
        "tie_word_embeddings": ("tied", True),
        "initializer_range": ("initial_std", 0.02),
    },
    weights={
        "encoder.embedding": "bert.embeddings.word_embeddings.weight",
        "encoder.positions.added_TD": "bert.embeddings.position_embeddings.weight",
        "encoder.embedding_norm.*": "bert.embeddings.LayerNorm.*",
        "encoder.blocks.{}.attention.qkv.*": "bert.encoder.layer.{}.attention.self.[query|key|value].*",
        "encoder.blocks.{}.attention.out.*": "bert.encoder.layer.{}.attention.output.dense.*",
        "encoder.blocks.{}.attention_norm.*": "bert.encoder.layer.{}.attention.output.LayerNorm.*",
        "encoder.blocks.{}.feedforward.up.*": "bert.encoder.layer.{}.intermediate.dense.*",
        "encoder.blocks.{}.feedforward.out.*": "bert.encoder.layer.{}.output.dense.*",
        "encoder.blocks.{}.feedforward_norm.*": "bert.encoder.layer.{}.output.LayerNorm.*",
        "head_layer.dense.*": "cls.predictions.transform.dense.*",
        "head_layer.norm.*": "cls.predictions.transform.LayerNorm.*",
        "head.bias": _BIAS,
        "head.weight": "cls.predictions.decoder.weight",
    },
    allowed={**WITH_LAYERNORM, "head_layer": (True,)},
    expected={
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "embedding_size": None,
    },
    activation=("hidden_act", "gelu"),
    unread=(
        # read by themselves
        *(_SEGMENTS, _BIAS, _BIAS_OF_PRODUCT),
        # positions, which are counted, and the classifier of pairs of sentences
        *(".position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias"),
        *("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    ),
)


def to_bert_weights(
    network: MaskedTransformer, rows: int, mask: int, never: Sequence[int] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a `BertForMaskedLM`, and its configuration; its tables have `rows` rows.

    `mask` is the id of [MASK] there, which follows the vocabulary here; the tokens of `never` are not predicted.
    """
    config = network.config
    expect(config, "BertForMaskedLM", {**BERT.allowed, **even_heads(config)})
    state = {name: weight.detach() for name, weight in network.state_dict().items()}
    state |= {f"encoder.{name}": weight for name, weight in state_of(network.encoder).items()}
    state["encoder.embedding"] = state["encoder.embedding"].clone()
    state["encoder.embedding"][mask] = state["encoder.embedding"][network.head.vocab_size]
    state["head.bias"] = state["head.bias"].clone()
    state["head.bias"][list(never)] = NEVER
    weights, described = BERT.published(state, BERT.pairs(config), config, rows, type_vocab_size=2)
    weights[_SEGMENTS] = torch.zeros(2, config.width)
    weights[_BIAS_OF_PRODUCT] = weights[_BIAS].clone()
    return weights, described


def from_bert_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], mask: int, vocab_size: int
) -> MaskedTransformer:
    """Return a network with the weights and configuration of a `BertForMaskedLM`, whose [MASK] has the id `mask`.

    `vocab_size` may add rows; those of [MASK] follow.
    """
    config = MaskedSettings(preset="bert", hidden_dropout=0.0, token_dropout=0.0, **BERT.settings(described))
    pairs, rows = [_as_named(pair, weights) for pair in BERT.pairs(config)], described["vocab_size"]
    network = BERT.network(lambda: MaskedTransformer(config, vocab_size), weights, pairs, rows)
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
    """Return the pair under the names that these weights have: files of the first releases say gamma and beta."""
    names = list(pair.theirs)
    if names == [_BIAS] and _BIAS_OF_PRODUCT in weights:
        names = [_BIAS_OF_PRODUCT]  # the same in most files; where they differ, it is this one that is added
    for number, name in enumerate(names):
        early = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        if name not in weights and early in weights:
            names[number] = early
    return pair._replace(theirs=names)
