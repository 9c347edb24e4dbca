"""The bag of words on the tape: the mean of all tokens read, whatever their order.

    m_t = 1/t Σ_{i<=t} E x_i                     over all tokens read, or those in a window
    h_t = f(W m_t + b)                           one hidden layer or more
    p(next | all tokens before) = softmax(U h_t + c)

`networks/bag_of_words.py` is the same network in torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autodiff import Array, Multiply, RunningMean, Value
from chainrule.autodiff.networks.feedforward import TapeHiddenLayers
from chainrule.autodiff.networks.network import Randomness, Reading
from chainrule.networks.memory import Sums


class TapeBagOfWords(TapeHiddenLayers):
    """A network that reads the tokens so far as a bag: hidden layers over the mean of their embeddings."""

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
