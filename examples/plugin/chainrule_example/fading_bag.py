"""A network in one file: a bag of words in which older words fade.

    m_t = λ m_{t-1} + (1 - λ) E x_t              what was read last counts most
    p(next | all tokens before) = softmax(U m_t + c)

chainrule's loop trains it, with checkpoints and resume, on a CPU or a GPU, and its adapter makes a language model
of it: this file has only the settings class, the network, and one line that registers both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule.contract.kinds import LadderEntry
from chainrule.errors import SettingsError
from chainrule.networks.layers import Embedding, make_head
from chainrule.networks.memory import ArrayMemory
from chainrule.networks.network import Network, Reading, Table
from chainrule.networks.settings import NeuralSettings
from chainrule.settings import setting
from chainrule.training.kinds import network_kind


@dataclass(frozen=True)
class FadingBagSettings(NeuralSettings):
    """Settings of a fading bag of words and of its training."""

    embedding: int = setting(64, "numbers in the vector of a token", common=True)
    fading: float = setting(0.8, "λ: how much of the mean is kept at each token", common=True)

    def __post_init__(self) -> None:
        if not 0 <= self.fading < 1:
            raise SettingsError(f"fading should be at least 0 and below 1, not {self.fading}")
        super().__post_init__()


@dataclass(frozen=True)
class FadingMean(ArrayMemory):
    """m_t of each row."""

    mean_BD: Tensor


class FadingBag(Network):
    """A network that reads one token after the other."""

    def __init__(self, config: FadingBagSettings, vocab_size: int, bos: int) -> None:
        super().__init__()
        self.config, self.window = config, None
        self.embedding = Embedding(vocab_size, config.embedding, tied=False)
        _, self.head = make_head(config.embedding, vocab_size, None)

    def table(self) -> Table:
        return Table(self.embedding.weight, self.embedding.scale, "embedding")

    def begin(self, batch_size: int) -> FadingMean:
        return FadingMean(self.embedding.weight.new_zeros(batch_size, self.config.embedding))

    def forward(
        self, ids_BT: Tensor, memory: FadingMean | None = None, is_token_BT: Tensor | None = None
    ) -> Reading:
        mean_BD = (self.begin(len(ids_BT)) if memory is None else memory).mean_BD
        embedded_BTD, means = self.embedding(ids_BT), []
        for t in range(ids_BT.shape[1]):
            # m_t = λ m_{t-1} + (1 - λ) E x_t
            new_BD = torch.lerp(embedded_BTD[:, t], mean_BD.to(embedded_BTD.dtype), self.config.fading)
            mean_BD = new_BD if is_token_BT is None else torch.where(is_token_BT[:, t, None], new_BD, mean_BD)
            means.append(mean_BD)
        return Reading(torch.stack(means, dim=1), FadingMean(mean_BD))


KIND = network_kind(
    "fading-bag",
    "a bag of words in which older words fade",
    FadingBagSettings,
    torch="chainrule_example.fading_bag:FadingBag",
    entry=LadderEntry("fading bag", {"embedding": 64, "minutes": 0.5, "batch": 256}),
)
