"""The bag of words (a deep averaging network): it reads the mean of all tokens before, whatever their order.

    m_t = 1/t Σ_{i<=t} E x_i                     over all tokens, or those in a window; no positions
    h_t = f(W m_t + b)                           one hidden layer or more
    p(next | all tokens before) = softmax(U h_t + c)

It has no Markov assumption and ignores order: the gap to other networks shows how much order matters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chainrule.networks.config import BagOfWordsConfig
from chainrule.networks.layers import Embedding, HiddenLayers, make_head
from chainrule.networks.memory import Sums
from chainrule.networks.network import Network, Reading
from chainrule.networks.precision import wide_type


class BagOfWords(Network):
    """A network that reads the tokens so far as a bag: hidden layers over the mean of their embeddings."""

    def __init__(self, config: BagOfWordsConfig, vocab_size: int, bos: int) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        self.embedding = Embedding(vocab_size, config.embedding, tied=config.tied)
        self.hidden = HiddenLayers(config)
        tied_to = self.embedding.weight if config.tied else None
        self.projection, self.head = make_head(config.hidden, vocab_size, tied_to, bias=config.bias)

    def begin(self, batch_size: int) -> Sums:
        table = self.embedding.weight
        return Sums(
            table.new_zeros(batch_size, table.shape[1], dtype=wide_type(table)),
            torch.zeros(batch_size, dtype=torch.long, device=table.device),
        )

    def forward(self, ids_BT: Tensor, memory: Sums | None = None, is_token_BT: Tensor | None = None) -> Reading:
        before = self.begin(len(ids_BT)) if memory is None else memory
        is_token_BT = torch.ones_like(ids_BT, dtype=torch.bool) if is_token_BT is None else is_token_BT
        embedded_BTD = self.embedding(ids_BT) * is_token_BT[..., None]
        # m_t = 1/t Σ_{i<=t} E x_i
        sum_BTD = before.sum_BD[:, None] + embedded_BTD.cumsum(dim=1, dtype=wide_type(embedded_BTD))
        count_BT = before.count_B[:, None] + is_token_BT.cumsum(dim=1)
        features_BTD = self._features(sum_BTD, count_BT)
        # padding adds nothing, so the sums at the last position are those after the row's last token
        is_asked = memory is not None or self.window is None
        after = Sums(sum_BTD[:, -1], count_BT[:, -1]) if is_asked else None
        return Reading(features_BTD, after)

    def read_window(self, ids_BW: Tensor, is_token_BW: Tensor) -> tuple[Tensor, Sums]:
        embedded_BWD = self.embedding(ids_BW) * is_token_BW[..., None]
        sums = Sums(embedded_BWD.sum(dim=1, dtype=wide_type(embedded_BWD)), is_token_BW.sum(dim=1))
        # the hidden layers see the mean of the whole window, not those of its beginnings
        return self._features(sums.sum_BD, sums.count_B), sums

    def _features(self, sum_D: Tensor, count: Tensor) -> Tensor:
        """Return the features, from sums of embeddings [..., D], and how many each sum has [...]."""
        mean_D = (sum_D / count.clamp(min=1)[..., None]).to(self.embedding.weight.dtype)
        # h_t = f(W m_t + b)
        features_D: Tensor = self.projection(self.hidden(mean_D))
        return features_D
