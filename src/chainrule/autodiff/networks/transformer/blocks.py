"""The Transformer block: its norms, its feed-forward part, and how they are put together with attention.

pre:   x + f(Norm(x))
post:  Norm(x + f(x))                        f is attention, then the feed-forward part
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from chainrule.autodiff.networks.network import Randomness, dropout
from chainrule.autodiff.networks.transformer.attention import linear, self_attention
from chainrule.autodiff.networks.transformer.positions import Places
from chainrule.autodiff.tape.modules import GELU, Add, ErfGELU, LayerNorm, Multiply, ReLU, RMSNorm, Sigmoid
from chainrule.autodiff.tape.moves import Slice
from chainrule.autodiff.tape.nodes import Node, Parameter
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.transformer.config import TransformerConfig

Parameters: TypeAlias = Mapping[str, Parameter]


def block(
    parameters: Parameters,
    name: str,
    config: TransformerConfig,
    x: Node,
    places: Places,
    randomness: Randomness | None = None,
) -> Module:
    """Attention, then the feed-forward part, each with a residual connection and a norm."""
    attend = partial(self_attention, parameters, f"{name}.attention", config, places=places, randomness=randomness)
    think = partial(feed_forward, parameters, f"{name}.feedforward", config, randomness=randomness)
    x = _residual(parameters, f"{name}.attention_norm", config, x, attend, randomness)
    return _residual(parameters, f"{name}.feedforward_norm", config, x, think, randomness)


def norm(parameters: Parameters, name: str, config: TransformerConfig, x: Node) -> Module:
    """LayerNorm or RMSNorm of x, with the gain and the shift that there are."""
    found = (parameters.get(f"{name}.{part}") for part in ("weight", "bias"))
    learned = [each for each in found if each is not None]
    kind = LayerNorm if config.norm == "layernorm" else RMSNorm
    return kind(config.norm_eps).apply_fwd(x, *learned)


def feed_forward(
    parameters: Parameters, name: str, config: TransformerConfig, x: Node, randomness: Randomness | None = None
) -> Module:
    """f(x) = W₂ φ(W₁ x + b₁) + b₂, for each token by itself."""
    hidden = activate(config.activation, linear(parameters, f"{name}.up", x))
    return linear(parameters, f"{name}.out", dropout(hidden, config.hidden_dropout, randomness))


def activate(activation: str, z: Module) -> Module:
    """φ(z); of swiglu, z is two halves: a gate, and what it lets through."""
    if activation == "gelu":
        # z Φ(z)
        return GELU().apply_fwd(z)
    if activation == "gelu_erf":
        return ErfGELU().apply_fwd(z)
    if activation == "swiglu":
        half = z.out_tensor.shape[-1] // 2
        gate, through = (Slice(where).apply_fwd(z) for where in (np.s_[..., :half], np.s_[..., half:]))
        # g σ(g) ⊙ z
        return Multiply().apply_fwd(Multiply().apply_fwd(gate, Sigmoid().apply_fwd(gate)), through)
    # max(0, z), and of relu2 its square
    relu = ReLU().apply_fwd(z)
    return Multiply().apply_fwd(relu, relu) if activation == "relu2" else relu


def _residual(
    parameters: Parameters,
    name: str,
    config: TransformerConfig,
    x: Node,
    part: Callable[[Node], Module],
    randomness: Randomness | None,
) -> Module:
    """A part of a block, with what it adds to x, and its norm."""
    if config.placement == "pre":
        # x + f(Norm(x))
        return Add().apply_fwd(x, _thinned(part(norm(parameters, name, config, x)), config, randomness))
    # Norm(x + f(x))
    return norm(parameters, name, config, Add().apply_fwd(x, _thinned(part(x), config, randomness)))


def _thinned(added: Node, config: TransformerConfig, randomness: Randomness | None) -> Node:
    """f(x), in training with dropout of single features and, as `layer_dropout`, of whole rows."""
    added = dropout(added, config.dropout, randomness)
    return dropout(added, config.layer_dropout, randomness, (len(added.out_tensor), 1, 1))
