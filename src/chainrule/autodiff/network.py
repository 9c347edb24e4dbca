"""What a network on the tape is: parameters with names, ids in, features out, and what it remembers.

It is the same network as the torch one of the same settings: its parameters have the names and the shapes that the
model folder gives them, so that one folder serves both. Without chance nothing is left out, as in evaluation.

Axes: B batch, T time, V vocabulary, D features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from chainrule.arrays import PAD
from chainrule.autodiff.gradients import Array
from chainrule.autodiff.losses import SoftmaxCrossEntropy
from chainrule.autodiff.modules import Add, Embedding, Linear, Multiply, Scale
from chainrule.autodiff.nodes import Node, Parameter, Value
from chainrule.autodiff.tape import Module

Chance: TypeAlias = np.random.Generator


class Memory(ABC):
    """What a network remembers of each row it has read, as arrays. A value: reading on gives another one."""

    @abstractmethod
    def select(self, rows_B: Array) -> Self:
        """The memory whose row i is row rows_B[i] of this one."""


class Reading(NamedTuple):
    """What a network makes of some tokens."""

    features: Module
    """[B, T, D]: from features[b, t] the head predicts the token after ids_BT[b, t]."""
    memory: Any
    """After the last token of each row; no gradient flows through it."""
    activations: Any = None
    """What regularisation looks at; only in training."""


class Loss(NamedTuple):
    """The loss of a batch, on the tape."""

    module: Module
    """The last module: where backward begins."""
    mean: float
    """Σ -ln p over the targets that are tokens, divided by the count; without what regularisation adds."""
    memory: Any


class TapeNetwork(ABC):
    """A network that reads tokens one after the other; constructed from (config, vocab_size, bos, tensors)."""

    def __init__(self, vocab_size: int, bos: int, tensors: Mapping[str, Array], *, tied: bool) -> None:
        """The tensors are taken as they are: training writes into them."""
        self.vocab_size, self.bos, self.tied = vocab_size, bos, tied
        self.parameters = {name: Parameter(name, tensor) for name, tensor in tensors.items()}

    @property
    def table(self) -> Parameter:
        """E: a vector for each token."""
        return self.parameters["embedding.weight"]

    @property
    def scale(self) -> float:
        """What a vector is multiplied with when it is looked up: a table that is the head's too is small."""
        return math.sqrt(self.table.out_tensor.shape[1]) if self.tied else 1.0

    @abstractmethod
    def begin(self, batch_size: int) -> Memory:
        """The memory before anything was read, not even <s>."""

    @abstractmethod
    def read(
        self,
        ids_BT: Array,
        memory: Any = None,
        is_token_BT: Array | None = None,
        chance: Chance | None = None,
    ) -> Reading:
        """Read on; without memory, from the beginning.

        Where `is_token_BT` is False there is padding, at the end of rows: the ids there are any valid ids, the
        features there mean nothing, and the memory is as if they were not there. None: all are tokens.
        """

    def loss(
        self,
        inputs_BT: Array,
        targets_BT: Array,
        memory: Any = None,
        *,
        count: int | None = None,
        chance: Chance | None = None,
        is_measured: bool = False,
    ) -> Loss:
        """Record -ln p(target) on the current tape, summed and divided by the count: by all targets, if not given.

        PAD in the targets is not predicted. PAD in the inputs stands at the end of rows, where the targets are PAD.
        Where the network `is_measured`, not trained, the rows that pad the table have no probability.
        """
        targets = int((targets_BT != PAD).sum())
        total = max(targets, 1) if count is None else count
        # padding is not predicted and stands at the end: it may be read as any token
        reading = self.read(np.maximum(inputs_BT, 0), memory, chance=chance)
        logits: Node = self.logits(reading.features)
        if is_measured:
            logits = Value(logits.out_tensor[..., : self.vocab_size], "logits")
        nats = SoftmaxCrossEntropy(count=total).apply_fwd(logits, Value(targets_BT, "y"))
        module: Module = nats
        if reading.activations is not None:
            penalty = self.penalise(reading.activations, inputs_BT != PAD)
            if penalty is not None:
                module = Add().apply_fwd(nats, Scale(targets / total).apply_fwd(penalty))
        return Loss(module, float(nats.out_tensor), reading.memory)

    def penalise(self, activations: Any, is_token_BT: Array) -> Module | None:
        """What regularisation adds to the mean loss of the tokens."""
        return None

    def logits(self, features: Node) -> Module:
        """U h + c, of the rows that pad the table too."""
        table = self.table if self.tied else self.parameters["head.weight"]
        return Linear().apply_fwd(features, table, self.parameters["head.bias"])

    def project(self, features: Module) -> Module:
        """Features of the width of the table, if that is another."""
        projection = self.parameters.get("projection.weight")
        return features if projection is None else Linear().apply_fwd(features, projection)

    def embed(self, ids: Array, token_dropout: float, chance: Chance | None) -> Module:
        """E x; with chance, the vectors of some tokens are left out, everywhere in the batch."""
        embedded: Module = Embedding().apply_fwd(self.table, Value(ids, "ids"))
        if self.scale != 1:
            embedded = Scale(self.scale).apply_fwd(embedded)
        if chance is None or not token_dropout:
            return embedded
        mask_V = keep_mask((len(self.table.out_tensor),), token_dropout, chance)
        return Multiply().apply_fwd(embedded, Value(mask_V[ids][..., None], "mask"))


def dropout(x: Node, share: float, chance: Chance | None, shape: tuple[int, ...] | None = None) -> Node:
    """z = m ⊙ x, with a mask of zeros for that share; an axis of length 1 in its shape has one mask for all."""
    if chance is None or not share:
        return x
    return Multiply().apply_fwd(x, Value(keep_mask(shape or x.out_tensor.shape, share, chance), "mask"))


def keep_mask(shape: tuple[int, ...], share: float, chance: Chance) -> Array:
    """0 where chance leaves a number out; what is kept grows by 1 / (1 - share), so that the expectation stays."""
    return (chance.random(shape, np.float32) >= share) / np.float32(1 - share)
