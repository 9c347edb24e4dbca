"""What a network is: ids in, features out, and what it remembers.

Every architecture in this room is a `Network`. It knows nothing of probabilities, of windows that slide, of
sampling or of files: `model.py` makes a language model of any of them, and `training/` trains any by its loss.

Axes: B batch, T time, V vocabulary, D features, H heads, K head size, L layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.neural.head import Head
from chainrule.training.trainable import Loss


class Memory(ABC):
    """What a network remembers of each row it has read. A value: reading on gives another one."""

    @abstractmethod
    def select(self, rows_B: Tensor) -> Self:
        """The memory whose row i is row rows_B[i] of this one."""

    @abstractmethod
    def detach(self) -> Self:
        """The same values, through which no gradient flows: where back-propagation through time is cut."""


class Reading(NamedTuple):
    """What a network makes of some tokens."""

    features_BTD: Tensor
    """From features_BTD[b, t] the head predicts the token after ids_BT[b, t]."""
    memory: Any
    """After the last token of each row. None where no memory was given and the network carries none on."""
    activations: Any = None
    """What regularisation looks at; only in training."""


class Table(NamedTuple):
    """Vectors of tokens, which may come from elsewhere."""

    weight_VD: nn.Parameter
    scale: float
    """What a vector is multiplied with when it is looked up."""
    setting: str
    """What sets its width."""


class Network(nn.Module, ABC):
    """A network that reads tokens one after the other; constructed from (config, vocab_size, bos)."""

    head: Head
    window: int | None
    """The most tokens it reads at once, <s> included. None: a memory of fixed size carries all it has read."""

    @abstractmethod
    def table(self) -> Table:
        """The vectors of tokens."""

    @abstractmethod
    def begin(self, batch_size: int) -> Memory:
        """The memory before anything was read, not even <s>."""

    @abstractmethod
    def forward(self, ids_BT: Tensor, memory: Any = None, is_token_BT: Tensor | None = None) -> Reading:
        """Read on. Without memory: from the beginning, and a network with a window then gives none back.

        Where `is_token_BT` is False there is padding, at the end of rows: the ids there are any valid ids, the
        features there mean nothing, and the memory is as if they were not there. None: all are tokens.
        """

    def loss(self, inputs_BT: Tensor, targets_BT: Tensor, memory: Any = None) -> Loss:
        """-ln p of the targets, summed; see `chainrule.training.trainable`."""
        # Padding stands at the end of rows whose memory is not carried on, and its target costs nothing: it may be
        # read as any token.
        reading = self(inputs_BT.clamp(min=0), memory)
        penalty = None if reading.activations is None else self.penalise(reading.activations, inputs_BT != PAD)
        return Loss(self.head.nats(reading.features_BTD, targets_BT), penalty, reading.memory)

    def penalise(self, activations: Any, is_token_BT: Tensor) -> Tensor | None:
        """What regularisation adds to the mean loss of the tokens."""
        return None
