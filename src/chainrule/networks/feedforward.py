"""The feed-forward language model (Bengio and others 2003): an n-gram model whose words are vectors.

    x_t = [E x_{t-n+2}; ...; E x_t]              the embeddings of the last n-1 tokens, one after the other
    h_t = f(W x_t + b)                           one hidden layer or more
    p(next | last n-1 tokens) = softmax(U h_t + c)

With `direct`, x_t is connected to the logits as well, past the hidden layers: softmax(U h_t + U' x_t + c).
"""

from __future__ import annotations

import torch
from torch import Tensor

from chainrule.networks.config import FeedforwardConfig
from chainrule.networks.layers import Embedding, HiddenLayers, make_head
from chainrule.networks.memory import LastTokens
from chainrule.networks.network import Network, Reading
from chainrule.networks.regularise import Dropout, EmbeddingDropout


class Feedforward(Network):
    """A network that reads the last n-1 tokens, with weights of their own for each position."""

    def __init__(self, config: FeedforwardConfig, vocab_size: int, bos: int) -> None:
        super().__init__()
        self.config, self.bos, self.window = config, bos, None
        self.embedding = Embedding(vocab_size, config.embedding, tied=config.tied)
        self.token_dropout = EmbeddingDropout(config.token_dropout)
        self.dropout = Dropout(config.dropout)
        self.hidden = HiddenLayers(config)
        width = config.hidden + (config.inputs if config.direct else 0)
        tied_to = self.embedding.weight if config.tied else None
        self.projection, self.head = make_head(width, vocab_size, tied_to, bias=config.bias)

    def begin(self, batch_size: int) -> LastTokens:
        shape = (batch_size, self.config.order - 2)
        return LastTokens(torch.full(shape, self.bos, device=self.head.weight.device))

    def forward(
        self, ids_BT: Tensor, memory: LastTokens | None = None, is_token_BT: Tensor | None = None
    ) -> Reading:
        before_BS = (self.begin(len(ids_BT)) if memory is None else memory).ids_BS
        every_BS = torch.cat([before_BS, ids_BT], dim=1)
        embedded_BSD = self.token_dropout(self.embedding(every_BS), every_BS, len(self.embedding.weight))
        embedded_BSD = self.dropout(embedded_BSD)
        # x_t = [E x_{t-n+2}; ...; E x_t] for all t at once: each of its n-1 slots is the text, shifted
        slots = [embedded_BSD[:, i : i + ids_BT.shape[1]] for i in range(self.config.order - 1)]
        context_BTD = torch.cat(slots, dim=-1)
        # h_t = f(W x_t + b)
        hidden_BTD = self.hidden(context_BTD)
        if self.config.direct:
            # U h_t + U' x_t is the product of [U U'] and [h_t; x_t]
            hidden_BTD = torch.cat([hidden_BTD, context_BTD], dim=-1)
        return Reading(self.projection(hidden_BTD), LastTokens(_last(every_BS, before_BS.shape[1], is_token_BT)))


def _last(every_BS: Tensor, size: int, is_token_BT: Tensor | None) -> Tensor:
    """Return the last `size` tokens of each row, without padding at its end."""
    if is_token_BT is None:
        return every_BS[:, every_BS.shape[1] - size :]
    # `size` older tokens stand before the new ones, so a row with n new tokens has its last ones from index n on
    first_B = is_token_BT.sum(dim=1)
    return every_BS.gather(1, first_B[:, None] + torch.arange(size, device=every_BS.device))
