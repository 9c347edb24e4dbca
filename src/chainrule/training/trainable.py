"""What the training loop knows of a network: that it gives a loss, and what it remembers. Nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor


class Memory(Protocol):
    """What a network remembers of each row of a batch."""

    def detach(self) -> Self:
        """The same values, through which no gradient flows: where back-propagation through time is cut."""


class Loss(NamedTuple):
    """What a network makes of a batch."""

    nats: Tensor
    """Σ -ln p over the targets that are tokens, a scalar: the loop divides by how many there are."""
    penalty: Tensor | None
    """What regularisation adds to the mean; None where there is none."""
    memory: Any
    """What the network remembers after the batch; None if nothing is carried on."""


class Trainable(Protocol):
    """A torch module that the loop can train."""

    window: int | None
    """The most tokens it reads at once. None: it carries a memory of fixed size from batch to batch."""

    def loss(self, inputs_BT: Tensor, targets_BT: Tensor, memory: Any = None) -> Loss:
        """The loss of predicting targets_BT[b, t] after inputs_BT[b, :t+1] and what `memory` has read.

        PAD in the targets is not predicted. PAD in the inputs stands at the end of rows, where the targets are PAD.
        """

    # what every torch module has

    @property
    def parameters(self) -> Any: ...
    @property
    def named_parameters(self) -> Any: ...
    @property
    def state_dict(self) -> Any: ...
    @property
    def load_state_dict(self) -> Any: ...
    @property
    def train(self) -> Any: ...
    @property
    def eval(self) -> Any: ...
    @property
    def to(self) -> Any: ...
