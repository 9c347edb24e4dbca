"""The Transformer decoder on the tape: every token attends to the tokens before it, layer after layer.

    x⁰   = E[id] + position                      normalised, where the design has it so
    xˡ   = Blockˡ(xˡ⁻¹)                          attention over the tokens so far, then a network on each token
    p(·) = softmax(U Norm(xᴸ))                   the head

`networks/transformer/decoder.py` is the same network in torch.
"""

from __future__ import annotations

import math
from typing import Any

from chainrule.autodiff import Add, Array, Module, Node, Parameter, Slice, Value
from chainrule.autodiff.networks.network import Randomness, Reading, Shape, TapeNetwork, dropout
from chainrule.autodiff.networks.transformer.blocks import block, norm
from chainrule.autodiff.networks.transformer.positions import find_places, sinusoidal_table
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig


class TapeTransformer(TapeNetwork):
    """A decoder of any of the designs of `TransformerConfig`. <s> is a token like any other to it."""

    table_setting = "width"

    config: TransformerConfig

    @classmethod
    def shapes(cls, config: TransformerConfig, vocab_size: int) -> dict[str, Shape]:
        rows, width = padded_size(vocab_size), config.width
        found: dict[str, Shape] = {"embedding": (rows, width)}
        if config.positions == "learned":
            found["positions.added_TD"] = config.window, width
        if config.embedding_norm:
            found |= _norm(config, "embedding_norm")
        for layer in range(config.layers):
            found |= _block(config, f"blocks.{layer}")
        if config.placement == "pre":
            found |= _norm(config, "norm")
        return found if config.tied else {**found, "head.weight": (rows, width)}

    @classmethod
    def fill(cls, weight: Array, name: str, config: TransformerConfig, randomness: Randomness) -> None:
        if weight.ndim == 2:
            # weights whose output is added to x: the variance of a sum of 2L parts is 2L times theirs
            added = 0.0 if config.zero_init else (2 * config.layers) ** -0.5
            std = config.initial_std * (added if name.endswith(".out.weight") else 1.0)
            weight[:] = randomness.normal(0, std, weight.shape)
        elif name.endswith(("norm.weight", "gain_K")):
            weight[:] = 1

    @property
    def tokens_at_once(self) -> int:
        return self.config.window

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


def _block(config: TransformerConfig, name: str) -> dict[str, Shape]:
    width, size = config.width, config.head_size
    halves = 2 if config.activation == "swiglu" else 1
    return {
        **_norm(config, f"{name}.attention_norm"),
        **_linear(config, f"{name}.attention.qkv", (config.heads + 2 * config.kv_heads) * size, width),
        **({f"{name}.attention.{each}_gain_K": (size,) for each in "qk"} if config.qk_gain else {}),
        **_linear(config, f"{name}.attention.out", width, config.heads * size),
        **_norm(config, f"{name}.feedforward_norm"),
        **_linear(config, f"{name}.feedforward.up", halves * config.hidden, width),
        **_linear(config, f"{name}.feedforward.out", width, config.hidden),
    }


def _linear(config: TransformerConfig, name: str, rows: int, columns: int) -> dict[str, Shape]:
    bias: dict[str, Shape] = {f"{name}.bias": (rows,)} if config.bias else {}
    return {f"{name}.weight": (rows, columns), **bias}


def _norm(config: TransformerConfig, name: str) -> dict[str, Shape]:
    """The gain, and the shift that only a LayerNorm with biases has."""
    parts = ("weight", "bias") if config.norm == "layernorm" and config.bias else ("weight",)
    return {f"{name}.{part}": (config.width,) for part in parts} if config.gain else {}
