"""Hidden layers on the tape, over the last tokens or over a bag of them: E, W and U of the lecture.

    x_t = [E x_{t-n+2}; ...; E x_t]              the embeddings of the last n-1 tokens, one after the other
    h_t = f(W x_t + b)                           one hidden layer or more
    p(next | last n-1 tokens) = softmax(U h_t + c)

`networks/feedforward.py` and `networks/bag_of_words.py` are the same networks in torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.random import Generator

from chainrule.autodiff import Add, Array, Concat, Linear, Multiply, Node, RunningMean, Slice, Value
from chainrule.autodiff.networks.cells import ACTIVATIONS
from chainrule.autodiff.networks.network import (
    Randomness,
    Reading,
    Shape,
    TapeNetwork,
    dropout,
    fill_table,
    shapes_with_tables,
)
from chainrule.networks.config import LEAK, FeedforwardConfig, HiddenLayersConfig
from chainrule.networks.memory import LastTokens, Sums

_GAINS = {"tanh": 5 / 3, "sigmoid": 1.0, "relu": math.sqrt(2), "leaky-relu": math.sqrt(2 / (1 + LEAK**2))}


class TapeHiddenLayers(TapeNetwork):
    """A network with hidden layers over one vector for each token, and no other layers."""

    config: HiddenLayersConfig

    @classmethod
    def shapes(cls, config: HiddenLayersConfig, vocab_size: int) -> dict[str, Shape]:
        found: dict[str, Shape] = {}
        for i in range(config.layers):
            found[f"hidden.linears.{i}.weight"] = config.hidden, config.hidden if i else config.inputs
            if config.bias:
                found[f"hidden.linears.{i}.bias"] = (config.hidden,)
        is_direct = isinstance(config, FeedforwardConfig) and config.direct
        features = config.hidden + config.inputs if is_direct else config.hidden
        return shapes_with_tables(config, vocab_size, found, features, bias=config.bias)

    @classmethod
    def fill(cls, weight: Array, name: str, config: HiddenLayersConfig, randomness: Generator) -> None:
        fill_table(weight, name, config, randomness)
        if name.startswith("hidden") and weight.ndim == 2:
            # Glorot and Bengio 2010: activations and gradients keep their scale from layer to layer
            std = _GAINS[config.activation] * math.sqrt(2 / sum(weight.shape))
            weight[:] = randomness.normal(0, std, weight.shape)

    def hidden_layers(self, x: Node, randomness: Randomness) -> Node:
        """h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)."""
        for i in range(self.config.layers):
            z = Linear().apply_fwd(x, *self.learned(f"hidden.linears.{i}"))
            new = dropout(ACTIVATIONS[self.config.activation]().apply_fwd(z), self.config.dropout, randomness)
            x = Add().apply_fwd(x, new) if i else new
        return x


class TapeFeedforward(TapeHiddenLayers):
    """A feed-forward network over the embeddings of the last n-1 tokens, in their order."""

    config: FeedforwardConfig

    @property
    def tokens_at_once(self) -> int:
        return self.config.order - 1

    def begin(self, batch_size: int) -> LastTokens:
        return LastTokens(np.full((batch_size, self.config.order - 2), self.bos))

    def read(
        self, ids_BT: Array, memory: Any = None, is_token_BT: Array | None = None, randomness: Randomness = None
    ) -> Reading:
        config, T = self.config, ids_BT.shape[1]
        before_BS = (self.begin(len(ids_BT)) if memory is None else memory).ids_BS
        every_BS = np.concatenate([before_BS, ids_BT], axis=1)
        embedded = dropout(self.embed(every_BS, config.token_dropout, randomness), config.dropout, randomness)
        # x_t = [E x_{t-n+2}; ...; E x_t] for all t at once: each of its n-1 slots is the text, shifted
        slots = [Slice(np.s_[:, i : i + T]).apply_fwd(embedded) for i in range(config.order - 1)]
        x = Concat().apply_fwd(*slots)
        h = self.hidden_layers(x, randomness)
        if config.direct:
            # U h_t + U' x_t is the product of [U U'] and [h_t; x_t]
            h = Concat().apply_fwd(h, x)
        # n-2 older tokens precede the new ones: a row with k new tokens has its last n-2 tokens from column k on
        first_B1 = np.full((len(ids_BT), 1), T) if is_token_BT is None else is_token_BT.sum(axis=1, keepdims=True)
        last_BS = np.take_along_axis(every_BS, first_B1 + np.arange(config.order - 2), axis=1)
        return Reading(self.project(h), LastTokens(last_BS))


class TapeBagOfWords(TapeHiddenLayers):
    """A network that reads the tokens so far as a bag: hidden layers over the mean of their embeddings.

    m_t = 1/t Σ_{i<=t} E x_i                     over all tokens read, or those in a window
    """

    def begin(self, batch_size: int) -> Sums:
        table = self.table.out_tensor
        return Sums(np.zeros((batch_size, table.shape[1]), table.dtype), np.zeros(batch_size, np.int64))

    def read(
        self, ids_BT: Array, memory: Any = None, is_token_BT: Array | None = None, randomness: Randomness = None
    ) -> Reading:
        before = self.begin(len(ids_BT)) if memory is None else memory
        embedded = self.embed(ids_BT, 0.0, randomness)
        counts_B: Array | int = ids_BT.shape[1]
        if is_token_BT is not None:
            # padding adds nothing to the sum, and stands after all tokens whose mean is used
            mask_BT1 = is_token_BT[..., None].astype(embedded.out_tensor.dtype)
            embedded = Multiply().apply_fwd(embedded, Value(mask_BT1, "tokens"))
            counts_B = is_token_BT.sum(axis=1)
        # m_t = 1/t Σ_{i<=t} E x_i
        mean = RunningMean().apply_fwd(embedded, Value(before.sum_BD, "sum"), Value(before.count_B, "count"))
        # h_t = f(W m_t + b)
        h = self.hidden_layers(mean, randomness)
        after = Sums(before.sum_BD + embedded.out_tensor.sum(axis=1), before.count_B + counts_B)
        return Reading(self.project(h), after)
