"""The Transformer decoder on the tape: every token attends to the tokens before it, layer after layer.

    x⁰   = E[id] + position                      normalised, where the design has it so
    xˡ   = Blockˡ(xˡ⁻¹)                          attention over the tokens so far, then a network on each token
    p(·) = softmax(U Norm(xᴸ))                   the head

`networks/transformer/decoder.py` is the same network in torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from chainrule.autodiff.networks.network import Randomness, Reading, TapeNetwork, dropout
from chainrule.autodiff.networks.transformer.blocks import block, norm
from chainrule.autodiff.networks.transformer.positions import find_places, sinusoidal_table
from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.modules import Add
from chainrule.autodiff.tape.moves import Slice
from chainrule.autodiff.tape.nodes import Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.transformer.config import TransformerConfig


class TapeTransformer(TapeNetwork):
    """A decoder of any of the designs of `TransformerConfig`. <s> is a token like any other to it."""

    table_setting = "width"

    def __init__(self, config: TransformerConfig, vocab_size: int, bos: int, tensors: Mapping[str, Array]) -> None:
        super().__init__(vocab_size, bos, tensors, tied=config.tied)
        self.config, self.window = config, config.window

    @property
    def table(self) -> Parameter:
        return self.parameters["embedding"]

    @property
    def scale(self) -> float:
        return math.sqrt(self.config.width) if self.config.scaled_embedding else 1.0

    def begin(self, batch_size: int) -> None:
        """Nothing: there is no memory but the tokens of the window, which are read again with each new one."""

    def read(
        self,
        ids_BT: Array,
        memory: Any = None,
        is_token_BT: Array | None = None,
        randomness: Randomness | None = None,
    ) -> Reading:
        if memory is not None:
            raise ValueError("a Transformer on the tape keeps no memory: read the tokens of the window together")
        # padding at the end is seen by nothing that comes before it
        return Reading(self.features(ids_BT, randomness), None)

    def features(self, ids: Array, randomness: Randomness | None = None) -> Module:
        """Norm(xᴸ), the features [..., T, D] of the tokens [..., T] of a window."""
        config, steps = self.config, ids.shape[-1]
        if steps > config.window:
            raise ValueError(f"a window of {config.window} tokens was given {steps}: read the last of them only")
        places = find_places(config, steps)
        x: Node = dropout(self.embed_at(ids, randomness), config.embedding_dropout, randomness)
        for layer in range(config.layers):
            x = block(self.parameters, f"blocks.{layer}", config, x, places, randomness)
        # pre-norm blocks do not normalise their sum, so that is done after the last one
        return norm(self.parameters, "norm", config, x) if config.placement == "pre" else _as_module(x)

    def embed_at(self, ids: Array, randomness: Randomness | None = None) -> Module:
        """x⁰ = E[id] + position, or the norm of that."""
        x = self._placed(ids, randomness)
        return norm(self.parameters, "embedding_norm", self.config, x) if self.config.embedding_norm else x

    def _placed(self, ids: Array, randomness: Randomness | None) -> Module:
        """E[id] + position."""
        config, steps = self.config, ids.shape[-1]
        x = self.embed(ids, config.token_dropout, randomness)
        if config.positions == "learned":
            return Add().apply_fwd(x, Slice(slice(0, steps)).apply_fwd(self.parameters["positions.added_TD"]))
        if config.positions == "sinusoidal":
            return Add().apply_fwd(x, Value(sinusoidal_table(steps, config.width), "positions"))
        return x

    def flops_per_token(self) -> float:
        """Floating-point operations of training on a token of a full window, as the torch network counts them."""
        config, table = self.config, self.table if self.tied else self.parameters["head.weight"]
        matrices = (one.out_tensor for name, one in self.parameters.items() if name.startswith("blocks."))
        products = sum(tensor.size for tensor in matrices if tensor.ndim == 2) + table.out_tensor.size
        return 6.0 * products + 12.0 * config.layers * config.window * config.width


def _as_module(x: Node) -> Module:
    assert isinstance(x, Module)  # there is at least one layer
    return x
