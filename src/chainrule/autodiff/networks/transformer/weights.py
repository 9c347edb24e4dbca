"""The parameters of a Transformer: names and shapes as in the model folder, and initial values."""

from __future__ import annotations

import numpy as np

from chainrule.autodiff.networks.network import Randomness
from chainrule.autodiff.tape.gradients import Array
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig


def shapes(config: TransformerConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by name; tables are padded to a few more rows than there are tokens."""
    rows, width = padded_size(vocab_size), config.width
    found: dict[str, tuple[int, ...]] = {"embedding": (rows, width)}
    if config.positions == "learned":
        found["positions.added_TD"] = config.window, width
    if config.embedding_norm:
        found |= _norm(config, "embedding_norm")
    for layer in range(config.layers):
        found |= _block(config, f"blocks.{layer}")
    if config.placement == "pre":
        found |= _norm(config, "norm")
    return found if config.tied else {**found, "head.weight": (rows, width)}


def initial(config: TransformerConfig, vocab_size: int, randomness: Randomness) -> dict[str, Array]:
    """Random initial weights in float32: those whose output is added to x are smaller the more there are, or 0."""
    # the variance of a sum of 2L parts is 2L times theirs
    added = 0.0 if config.zero_init else (2 * config.layers) ** -0.5
    tensors = {}
    for name, shape in shapes(config, vocab_size).items():
        tensor = np.zeros(shape, np.float32)
        if len(shape) == 2:
            std = config.initial_std * (added if name.endswith(".out.weight") else 1.0)
            tensor[:] = randomness.normal(0, std, shape)
        elif name.endswith(("norm.weight", "gain_K")):
            tensor[:] = 1
        tensors[name] = tensor
    return tensors


def _block(config: TransformerConfig, name: str) -> dict[str, tuple[int, ...]]:
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


def _linear(config: TransformerConfig, name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    bias: dict[str, tuple[int, ...]] = {f"{name}.bias": (rows,)} if config.bias else {}
    return {f"{name}.weight": (rows, columns), **bias}


def _norm(config: TransformerConfig, name: str) -> dict[str, tuple[int, ...]]:
    """The gain, and the shift that only a LayerNorm with biases has."""
    parts = ("weight", "bias") if config.norm == "layernorm" and config.bias else ("weight",)
    return {f"{name}.{part}": (config.width,) for part in parts} if config.gain else {}
