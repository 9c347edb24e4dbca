"""The feed-forward language model on the tape: E, W and U of the lecture.

    x_t = [E x_{t-n+2}; ...; E x_t]              the embeddings of the last n-1 tokens, one after the other
    h_t = f(W x_t + b)                           one hidden layer or more
    p(next | last n-1 tokens) = softmax(U h_t + c)

`networks/feedforward.py` is the same network in torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chainrule.autodiff.networks.hidden import hidden_layers
from chainrule.autodiff.networks.network import Randomness, Reading, TapeNetwork, dropout
from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.moves import Concat, Slice
from chainrule.networks.config import FeedforwardConfig
from chainrule.networks.memory import LastTokens


class TapeFeedforward(TapeNetwork):
    """A feed-forward network over the embeddings of the last n-1 tokens, in their order."""

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
