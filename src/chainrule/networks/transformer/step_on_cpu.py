"""One token a row through a Transformer on a CPU, for torch and the tape: compiled loops between matrix products.

Axes: B rows, D features, N numbers of a product, G heads of keys and values, S positions, K features of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.networks.transformer.config import TransformerConfig
from chainrule.system.parallel import Patience

Array: TypeAlias = NDArray[Any]
Product: TypeAlias = Callable[[Array], Array]

NO_TABLE = np.zeros((0, 0), np.float32)
NO_SLOPES = NO_TABLE[0:0].ravel()

PATIENCE = Patience(1e6)
"""Counts the tokens that all networks read, each of which takes loops about a millisecond less."""


class Norm(NamedTuple):
    """The learned gain and shift of a norm; None: there is none."""

    gain_D: Array | None
    shift_D: Array | None


class Layer(NamedTuple):
    """The parts of a block."""

    attention_norm: Norm
    qkv: Product
    out: Product
    feedforward_norm: Norm
    feedforward: Product


@dataclass(frozen=True)
class Step:
    """A Transformer, as the loops see it: its parts, and the tables of its positions, empty where it has none."""

    config: TransformerConfig
    layers: Sequence[Layer]
    norm: Norm
    cos_TI: Array
    sin_TI: Array
    slopes_H: Array

    def read(self, x_BD: Array, caches: Sequence[Any], places_B: Array, is_token_B: Array | None) -> Array:
        """Return the features [B, D] of tokens with the embeddings x, which are written over.

        Keys and values are written to the `caches` of each layer, two of [B, G, S, K], at the rows' places. None:
        each row has a token, and no padding.
        """
        from chainrule.networks.transformer.loops_on_cpu import add_and_normalise, attend_to_cache

        config, rows = self.config, len(x_BD)
        is_token_B = np.ones(rows, np.bool_) if is_token_B is None else is_token_B

        def normalised(norm: Norm, added_BD: Array) -> Array:
            y_BD, vectors = np.empty_like(x_BD), (NO_SLOPES if one is None else one for one in norm)
            add_and_normalise(x_BD, added_BD, y_BD, *vectors, config.norm_eps, config.norm == "layernorm")
            return y_BD

        added_BD = x_BD[:0]
        for layer, (keys_BGSK, values_BGSK) in zip(self.layers, caches, strict=True):
            qkv_BN = layer.qkv(normalised(layer.attention_norm, added_BD))
            taken_BN = np.empty((rows, config.heads * config.head_size), np.float32)
            attend_to_cache(
                qkv_BN, keys_BGSK, values_BGSK, places_B, is_token_B, self.cos_TI, self.sin_TI, self.slopes_H,
                config.norm_eps, config.qk_norm, taken_BN, config.heads,
            )  # fmt: skip
            added_BD = layer.feedforward(normalised(layer.feedforward_norm, layer.out(taken_BN)))
        return normalised(self.norm, added_BD)


def suits(config: TransformerConfig) -> bool:
    """Return True if the loops compute this design."""
    return config.placement == "pre" and config.residual and not config.qk_gain
