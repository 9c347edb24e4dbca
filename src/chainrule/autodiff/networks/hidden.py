"""The hidden layers of networks that are not recurrent."""

from __future__ import annotations

from collections.abc import Mapping

from chainrule.autodiff.networks.network import Randomness, dropout
from chainrule.autodiff.tape.modules import Add, Linear, ReLU, Sigmoid, Tanh
from chainrule.autodiff.tape.nodes import Node, Parameter
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig

ACTIVATIONS: Mapping[str, type[Module]] = {"tanh": Tanh, "sigmoid": Sigmoid, "relu": ReLU}


def hidden_layers(
    parameters: Mapping[str, Parameter],
    config: BagOfWordsConfig | FeedforwardConfig,
    x: Module,
    randomness: Randomness | None,
) -> Module:
    """h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)."""
    h: Node = x
    for i in range(config.layers):
        W, b = (parameters[f"hidden.linears.{i}.{name}"] for name in ("weight", "bias"))
        new = ACTIVATIONS[config.activation]().apply_fwd(Linear().apply_fwd(h, W, b))
        kept = dropout(new, config.dropout, randomness)
        h = Add().apply_fwd(h, kept) if i else kept
    assert isinstance(h, Module)
    return h
