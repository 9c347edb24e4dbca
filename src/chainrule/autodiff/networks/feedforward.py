"""The feed-forward language model on the tape: E, W and U of the lecture.

    x_t = [E x_{t-n+2}; ...; E x_t]              the embeddings of the last n-1 tokens, one after the other
    h_t = f(W x_t + b)                           one hidden layer or more
    p(next | last n-1 tokens) = softmax(U h_t + c)

`networks/feedforward.py` is the same network in torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from chainrule.autodiff import Add, Array, Concat, Linear, Module, Node, Parameter, ReLU, Sigmoid, Slice, Tanh
from chainrule.autodiff.networks.network import (
    Randomness,
    Reading,
    Shape,
    TapeNetwork,
    dropout,
    fill_table,
    shapes_with_tables,
)
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig
from chainrule.networks.memory import LastTokens


class TapeFeedforward(TapeNetwork):
    """A feed-forward network over the embeddings of the last n-1 tokens, in their order."""

    config: FeedforwardConfig

    @classmethod
    def shapes(cls, config: FeedforwardConfig, vocab_size: int) -> dict[str, Shape]:
        context = config.embedding * (config.order - 1)
        features = config.hidden + (context if config.direct else 0)
        return shapes_with_tables(config, vocab_size, hidden_shapes(config, context), features)

    @classmethod
    def fill(cls, weight: Array, name: str, config: FeedforwardConfig, randomness: Randomness) -> None:
        fill_hidden(weight, name, config, randomness)

    @property
    def tokens_at_once(self) -> int:
        return self.config.order - 1

    def begin(self, batch_size: int) -> LastTokens:
        return LastTokens(np.full((batch_size, self.config.order - 2), self.bos))

    def read(
        self,
        ids_BT: Array,
        memory: LastTokens | None = None,
        is_token_BT: Array | None = None,
        randomness: Randomness | None = None,
    ) -> Reading:
        config, T = self.config, ids_BT.shape[1]
        before_BS = (self.begin(len(ids_BT)) if memory is None else memory).ids_BS
        every_BS = np.concatenate([before_BS, ids_BT], axis=1)
        embedded = dropout(self.embed(every_BS, config.token_dropout, randomness), config.dropout, randomness)
        # x_t = [E x_{t-n+2}; ...; E x_t] for all t at once: each of its n-1 slots is the text, shifted
        slots = [Slice(np.s_[:, i : i + T]).apply_fwd(embedded) for i in range(config.order - 1)]
        x = Concat().apply_fwd(*slots)
        h = hidden_layers(self.parameters, config, x, randomness)
        if config.direct:
            # U h_t + U' x_t is the product of [U U'] and [h_t; x_t]
            h = Concat().apply_fwd(h, x)
        return Reading(self.project(h), LastTokens(_last(every_BS, before_BS.shape[1], is_token_BT)))


def _last(every_BS: Array, size: int, is_token_BT: Array | None) -> Array:
    """The last `size` tokens of each row, which may end in padding."""
    if is_token_BT is None:
        return every_BS[:, every_BS.shape[1] - size :]
    # `size` older tokens precede the new ones: a row with k new tokens has its last `size` tokens from column k on
    first_B = is_token_BT.sum(axis=1)
    return np.take_along_axis(every_BS, first_B[:, None] + np.arange(size), axis=1)


# -- hidden layers, also of the bag of words -----------------------------------------------------------------

ACTIVATIONS: Mapping[str, type[Module]] = {"tanh": Tanh, "sigmoid": Sigmoid, "relu": ReLU}
_GAINS = {"tanh": 5 / 3, "sigmoid": 1.0, "relu": math.sqrt(2)}


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


def hidden_shapes(config: BagOfWordsConfig | FeedforwardConfig, context: int) -> dict[str, Shape]:
    """The shapes of the parameters of the hidden layers, the first of which reads a vector of size `context`."""
    found: dict[str, Shape] = {}
    for i in range(config.layers):
        found[f"hidden.linears.{i}.weight"] = config.hidden, config.hidden if i else context
        found[f"hidden.linears.{i}.bias"] = (config.hidden,)
    return found


def fill_hidden(
    weight: Array, name: str, config: BagOfWordsConfig | FeedforwardConfig, randomness: Randomness
) -> None:
    """Write initial values into the parameter of that name."""
    fill_table(weight, name, config, randomness)
    if name.startswith("hidden") and weight.ndim == 2:
        # Glorot and Bengio 2010: activations and gradients keep their scale from layer to layer
        std = _GAINS[config.activation] * math.sqrt(2 / sum(weight.shape))
        weight[:] = randomness.normal(0, std, weight.shape)
