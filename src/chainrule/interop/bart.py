"""`BartForConditionalGeneration`: its weights and its configuration.

The published table of positions begins with two rows that no token uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.weights import WITH_LAYERNORM, Architecture, refuse, state_of
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.networks.seq2seq.transformer import TransformerEncoderDecoder

_BIAS = "final_logits_bias"
_OUTSIDE: Mapping[str, tuple[Any, ...]] = {
    "cell": ("transformer",),
    "shared": (True,),
    "tied": (True,),
    "pretrain": ("none",),
}
_SIDES = ("encoder", "decoder")
_SIZES = {"layers": "layers", "attention_heads": "heads", "ffn_dim": "hidden"}
"""The sizes that a configuration gives for each side; here both sides have the same."""
_SIDE = {
    "positions.added_TD": "embed_positions.weight",
    "embedding_norm.*": "layernorm_embedding.*",
    "blocks.{}.attention.qkv.*": "layers.{}.self_attn.[q|k|v]_proj.*",
    "blocks.{}.attention.out.*": "layers.{}.self_attn.out_proj.*",
    "blocks.{}.attention_norm.*": "layers.{}.self_attn_layer_norm.*",
    "blocks.{}.feedforward.up.*": "layers.{}.fc1.*",
    "blocks.{}.feedforward.out.*": "layers.{}.fc2.*",
    "blocks.{}.feedforward_norm.*": "layers.{}.final_layer_norm.*",
}
"""The weights of each side."""
BART = Architecture(
    "BartForConditionalGeneration",
    title="BART",
    model_type="bart",
    sizes={
        "d_model": "width",
        "max_position_embeddings": "window",
        **{f"{side}_{theirs}": ours for side in _SIDES for theirs, ours in _SIZES.items()},
    },
    options={
        "scale_embedding": ("scaled_embedding", False),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0),
    },
    weights={
        "decoder.embedding": "model.shared.weight",
        **{f"{side}.{ours}": f"model.{side}.{theirs}" for side in _SIDES for ours, theirs in _SIDE.items()},
        "decoder.blocks.{}.cross.q.*": "model.decoder.layers.{}.encoder_attn.q_proj.*",
        "decoder.blocks.{}.cross.kv.*": "model.decoder.layers.{}.encoder_attn.[k|v]_proj.*",
        "decoder.blocks.{}.cross.out.*": "model.decoder.layers.{}.encoder_attn.out_proj.*",
        "decoder.blocks.{}.cross_norm.*": "model.decoder.layers.{}.encoder_attn_layer_norm.*",
    },
    # no configuration changes the ε of its norms
    allowed={**WITH_LAYERNORM, "norm_eps": (1e-5,)},
    # what configurations of any version may say
    expected={
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "normalize_embedding": True,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": False,
    },
    activation=("activation_function", "gelu"),
    # the bias of the logits, which is 0, and the table under its other names
    unread=(_BIAS, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
    skipped=2,
)


def to_bart_weights(
    network: EncoderDecoder, config: Seq2SeqSettings, rows: int, before: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a `BartForConditionalGeneration`, and its configuration; its table has `rows` rows.

    `before` is the published id of the token before a source, which is <s> here; None if it is the same.
    """
    found = {name: getattr(config, name) for name in _OUTSIDE}
    if not isinstance(network, TransformerEncoderDecoder):
        refuse("BartForConditionalGeneration", found, _OUTSIDE)
    assert isinstance(network, TransformerEncoderDecoder)
    design = network.decoder.config
    found |= {name: getattr(design, name) for name in BART.allowed}
    refuse("BartForConditionalGeneration", found, {**_OUTSIDE, **BART.allowed})
    state = {
        f"{side}.{name}": weight
        for side, half in (("encoder", network.encoder), ("decoder", network.decoder))
        for name, weight in state_of(half).items()
    }
    # as it is: what is looked up is scaled there as well
    table_VD = network.decoder.embedding.detach().clone()
    if before is not None and network.source_start is not None:
        table_VD[before] = table_VD[network.source_start]
    state["decoder.embedding"] = table_VD
    others = {"activation_dropout": design.hidden_dropout or 0.0, "init_std": design.initial_std}
    others |= {"is_encoder_decoder": True, "tie_word_embeddings": True}
    weights, described = BART.published(state, BART.pairs(design), design, rows, **others)
    return {**weights, _BIAS: torch.zeros(1, rows)}, described


def from_bart_weights(
    weights: Mapping[str, Tensor], described: Mapping[str, Any], vocab_size: int, bos: int, before: int | None
) -> tuple[TransformerEncoderDecoder, Seq2SeqSettings]:
    """Return a network with the weights and configuration of a `BartForConditionalGeneration`, and its settings.

    `vocab_size` may add rows; `before` is the id of the token before a source, which <s> stands for here.
    """
    found = BART.settings(described)
    for name in _SIZES:
        one, other = (described[f"{side}_{name}"] for side in _SIDES)
        if one != other:
            raise SettingsError(f"decoder_{name} of a BART should be as encoder_{name}, {one}, not {other}")
    if _BIAS in weights and bool((weights[_BIAS] != 0).any()):
        raise SettingsError(f"{_BIAS} of a BART should be 0: an encoder-decoder here adds none to its logits")
    settings = Seq2SeqSettings(preset="bart", source_start=before is not None, token_dropout=0.0, **found)

    def make() -> TransformerEncoderDecoder:
        return TransformerEncoderDecoder(settings, vocab_size, bos, vocab_size, shares=True)

    network = BART.network(make, weights, BART.pairs(settings.transformer()), described["vocab_size"])
    if before is not None:
        with torch.no_grad():
            network.decoder.embedding[bos] = network.decoder.embedding[before]
    return network, settings
