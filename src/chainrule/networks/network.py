"""The interface of networks: token ids in, features out, and a memory of the tokens read.

Every architecture in this package is a `Network`. It does not know probabilities, sliding windows, sampling or
files: `inference/neural_model.py` makes a language model of any network, and `training/` trains any by its loss.

Axes: B batch, T time, V vocabulary, D features, H heads, K head size, L layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.networks.layers import Head, Table, last_of_rows
from chainrule.networks.memory import Memory
from chainrule.networks.precision import PlainProducts

__all__ = ["BatchLoss", "Network", "Reading", "Table", "Trainable"]


class Reading(NamedTuple):
    """The result of a network's forward pass over some tokens."""

    features_BTD: Tensor
    """From features_BTD[b, t] the head predicts the token after ids_BT[b, t]."""
    memory: Any
    """The memory after the last token of each row. None where none was given and the network carries none on."""
    activations: Any = None
    """The activations that `Network.penalise` takes; only in training."""


class BatchLoss(NamedTuple):
    """The loss of a batch."""

    nats: Tensor
    """Σ -ln p over the targets that are tokens, a scalar: the training loop divides by their number."""
    penalty: Tensor | None
    """The penalty that regularisation adds to the mean loss; None if there is none."""
    memory: Any
    """The memory after the batch; None if nothing is carried on."""


class Trainable(PlainProducts, ABC):
    """A network that can be trained: it has a loss for the batches of its objective."""

    window: int | None
    """The most tokens it reads at once, <s> included. None: a memory of fixed size carries all it has read."""
    reads_two_sides = False
    """True if its inputs have two lengths, as sources and targets do: too many shapes to compile code for each."""
    uses_every_weight = False
    """True if every weight has a gradient at each step; the first state of a recurrent network has not."""

    @abstractmethod
    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of a batch, as its objective makes it; PAD in the targets is not predicted."""

    def step_scale(self, name: str) -> float:
        """Return the learning rate of a parameter, as a share of that of the settings."""
        return 1.0

    def units(self) -> list[nn.Module]:
        """Return the modules whose weights are divided among processes one after the other (parallel=fsdp)."""
        return [module for module in self.modules() if getattr(module, "is_unit", False)]

    def flops_per_token(self) -> float:
        """Return the floating-point operations to train on one token."""
        # a weight is used once forward and twice backward, each time for a product and a sum; an embedding table
        # costs nothing to look up, unless it gives the logits too
        every = self.named_parameters(remove_duplicate=False)
        return 6.0 * sum(parameter.numel() for name, parameter in every if "embed" not in name)


class Network(Trainable):
    """A network that reads tokens one after the other; constructed from (config, vocab_size, bos)."""

    head: Head
    embedding: Any
    keeps_cache = False
    """True if its memory is a `Cache`, and if it has `step` and `steps`, which read in place."""

    @property
    def writes(self) -> bool:
        """True if compiled loops write with it on a CPU, in single precision: it has `write` then."""
        return False

    def table(self) -> Table:
        """Return the embedding table."""
        found: Table = self.embedding.table()
        return found

    @abstractmethod
    def begin(self, batch_size: int) -> Memory:
        """Return the memory before anything was read, not even <s>."""

    @abstractmethod
    def forward(self, ids_BT: Tensor, memory: Any = None, is_token_BT: Tensor | None = None) -> Reading:
        """Read on from a memory. Without one, read from the beginning; a network with a window then returns none.

        Where `is_token_BT` is False there is padding, at the end of rows: its ids are any valid ids, its features
        mean nothing, and the memory is as if it were not there. None: all are tokens.
        """

    def read_window(self, ids_BW: Tensor, is_token_BW: Tensor) -> tuple[Tensor, Any]:
        """Read whole windows; return the features of the last token of each, [B, D], and the memory.

        The features of a row without tokens mean nothing. A network may leave out what the other tokens need.
        """
        reading = self(ids_BW, self.begin(len(ids_BW)), is_token_BW)
        features_BWD = reading.features_BTD
        return last_of_rows(features_BWD, is_token_BW.sum(dim=1), features_BWD[:, 0]), reading.memory

    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of predicting targets_BT[b, t] after inputs_BT[b, :t+1] and the tokens of `memory`.

        PAD in the targets is not predicted. PAD in the inputs stands at the end of rows, where the targets are PAD.
        Inputs may be a pair, (inputs_BT, base_BTV): the base is added to the logits.
        """
        inputs_BT, base_BTV = inputs if isinstance(inputs, tuple) else (inputs, None)
        # Padding stands at the end of rows whose memory is not carried on, and its target costs nothing: it may be
        # read as any token.
        reading = self(inputs_BT.clamp(min=0), memory)
        penalty = None if reading.activations is None else self.penalise(reading.activations, inputs_BT != PAD)
        return BatchLoss(self.head.nats(reading.features_BTD, targets_BT, base_BTV), penalty, reading.memory)

    def penalise(self, activations: Any, is_token_BT: Tensor) -> Tensor | None:
        """Return the penalty that regularisation adds to the mean loss per token; None if there is none."""
        return None
