"""The feed-forward language model on the tape: E, W and U of the lecture.

    x_t = [E x_{t-n+2}; ...; E x_t]              the embeddings of the last n-1 tokens, one after the other
    h_t = f(W x_t + b)                           one hidden layer or more
    p(next | last n-1 tokens) = softmax(U h_t + c)

`neural/feedforward.py` is the same in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from chainrule.autodiff.gradients import Array
from chainrule.autodiff.modules import Add, Linear, ReLU, Sigmoid, Tanh
from chainrule.autodiff.moves import Concat, Slice
from chainrule.autodiff.network import Chance, Memory, Reading, TapeNetwork, dropout
from chainrule.autodiff.nodes import Node
from chainrule.autodiff.tape import Module
from chainrule.neural.designs import FeedforwardConfig

ACTIVATIONS: Mapping[str, type[Module]] = {"tanh": Tanh, "sigmoid": Sigmoid, "relu": ReLU}


@dataclass(frozen=True)
class LastTokens(Memory):
    """The tokens that will be read beside the next one; <s> where there was none."""

    ids_BS: Array

    def select(self, rows_B: Array) -> LastTokens:
        return LastTokens(self.ids_BS[rows_B])


class TapeFeedforward(TapeNetwork):
    """Reads the last n-1 tokens, each in its place."""

    def __init__(self, config: FeedforwardConfig, vocab_size: int, bos: int, tensors: Mapping[str, Array]) -> None:
        super().__init__(vocab_size, bos, tensors, tied=config.tied)
        self.config = config

    def begin(self, batch_size: int) -> LastTokens:
        return LastTokens(np.full((batch_size, self.config.order - 2), self.bos))

    def read(
        self,
        ids_BT: Array,
        memory: LastTokens | None = None,
        is_token_BT: Array | None = None,
        chance: Chance | None = None,
    ) -> Reading:
        config, T = self.config, ids_BT.shape[1]
        before_BS = (self.begin(len(ids_BT)) if memory is None else memory).ids_BS
        every_BS = np.concatenate([before_BS, ids_BT], axis=1)
        embedded = dropout(self.embed(every_BS, config.token_dropout, chance), config.dropout, chance)
        # x_t = [E x_{t-n+2}; ...; E x_t] for all t at once: each of its n-1 slots is the text, shifted
        slots = [Slice(np.s_[:, i : i + T]).apply_fwd(embedded) for i in range(config.order - 1)]
        x = Concat().apply_fwd(*slots)
        h = self._hidden(x, chance)
        if config.direct:
            # U h_t + U' x_t is the product of [U U'] and [h_t; x_t]
            h = Concat().apply_fwd(h, x)
        return Reading(self.project(h), LastTokens(_last(every_BS, before_BS.shape[1], is_token_BT)))

    def _hidden(self, x: Module, chance: Chance | None) -> Module:
        h: Node = x
        for i in range(self.config.layers):
            W, b = (self.parameters[f"hidden.linears.{i}.{name}"] for name in ("weight", "bias"))
            # h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)
            new = ACTIVATIONS[self.config.activation]().apply_fwd(Linear().apply_fwd(h, W, b))
            kept = dropout(new, self.config.dropout, chance)
            h = Add().apply_fwd(h, kept) if i else kept
        assert isinstance(h, Module)
        return h


def _last(every_BS: Array, size: int, is_token_BT: Array | None) -> Array:
    """The last so many tokens of each row, which may have padding behind them."""
    if is_token_BT is None:
        return every_BS[:, every_BS.shape[1] - size :]
    # `size` older places stand before the new ones: a row's last tokens begin at its number of new ones
    first_B = is_token_BT.sum(axis=1)
    return np.take_along_axis(every_BS, first_B[:, None] + np.arange(size), axis=1)
