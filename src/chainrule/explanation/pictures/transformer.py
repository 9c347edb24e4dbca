"""A Transformer in a picture: its modules as they are, under symbols. A row of each matrix is a token.

    x              the ids of the tokens
    e, P           their embeddings, and the positions that are added to them
    h⁰, h¹, ...    the features before the first block, after it, ...
    q, k, v        queries, keys and values of each head
    A              what each head takes of the values

Symbols of a block, those of its parameters too, have its number as a superscript.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chainrule.autodiff.networks.transformer.blocks import block, norm
from chainrule.autodiff.networks.transformer.decoder import TapeTransformer
from chainrule.autodiff.networks.transformer.positions import find_places
from chainrule.autodiff.tape.attention import ScaledDotProductAttention, SplitHeads
from chainrule.autodiff.tape.modules import Add, Embedding
from chainrule.autodiff.tape.moves import Slice
from chainrule.autodiff.tape.nodes import Node
from chainrule.autodiff.tape.tape import Module, Tape, current_tape
from chainrule.explanation.pictures.equations import superscript

_LETTERS = {
    "embedding": "E",
    "positions.added_TD": "P",
    "attention_norm.weight": "γ₁",
    "attention_norm.bias": "β₁",
    "attention.qkv.weight": "Wqkv",
    "attention.qkv.bias": "bqkv",
    "attention.out.weight": "Wo",
    "attention.out.bias": "bo",
    "feedforward_norm.weight": "γ₂",
    "feedforward_norm.bias": "β₂",
    "feedforward.up.weight": "W₁",
    "feedforward.up.bias": "b₁",
    "feedforward.out.weight": "W₂",
    "feedforward.out.bias": "b₂",
    "embedding_norm.weight": "γ⁰",
    "embedding_norm.bias": "β⁰",
    "norm.weight": "γ",
    "norm.bias": "β",
    "head.weight": "U",
    "head.bias": "c",
}


def parameter_letter(name: str) -> str:
    """The symbol of a parameter: blocks.0.attention.qkv.weight is Wqkv¹."""
    if not name.startswith("blocks."):
        return _LETTERS[name]
    _, layer, rest = name.split(".", 2)
    return _LETTERS[rest] + superscript(int(layer) + 1)


def last_features(network: TapeTransformer, ids: Sequence[int], tokens: str) -> tuple[Module, dict[Node, str]]:
    """The features of the last of the ids, computed on the current tape, and the symbols of nodes before them.

    `tokens` is the name of the ids in the picture.
    """
    config, tape = network.config, current_tape()
    x: Module = network.embed_at(np.array(ids))
    symbols: dict[Node, str] = {_ids(tape, tokens): "x", x: "h⁰"}
    placed = x.in_modules[0] if config.embedding_norm else x
    if isinstance(placed, Add):
        # h⁰ = e + P, or the norm of that
        embedded, position = placed.in_modules
        symbols |= {embedded: "e"} if isinstance(position, Module) else {embedded: "e", position: "P"}
    places = find_places(config, len(ids))
    for layer in range(config.layers):
        before = len(tape)
        x = block(network.parameters, f"blocks.{layer}", config, x, places)
        number = superscript(layer + 1)
        symbols |= {node: symbol + number for node, symbol in _in_attention(tape.modules[before:])}
        symbols[x] = "h" + number
    if config.placement == "pre":
        x = norm(network.parameters, "norm", config, x)
    # the next token is predicted from the last row alone
    return Slice(-1).apply_fwd(x), symbols


def _ids(tape: Tape, tokens: str) -> Node:
    """The ids that were looked up, which are given a name."""
    embedding = next(module for module in reversed(tape.modules) if isinstance(module, Embedding))
    ids = embedding.in_modules[1]
    ids.name = tokens
    return ids


def _in_attention(modules: Sequence[Module]) -> Iterator[tuple[Module, str]]:
    """Queries, keys, values and the result of the attention of one block."""
    split = [module for module in modules if isinstance(module, SplitHeads)]
    yield from zip(split, "qkv", strict=True)
    yield from ((module, "A") for module in modules if isinstance(module, ScaledDotProductAttention))
