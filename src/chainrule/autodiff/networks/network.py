"""The interface of networks on the tape: parameters by name, token ids in, features and a memory out.

A network computes the same function as the torch network of the same settings: its parameters have the names and
shapes of the model folder, so that one folder serves both.

Axes: B batch, T time, V vocabulary, D features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator

from chainrule.arrays import PAD
from chainrule.autodiff.tape.losses import SoftmaxCrossEntropy
from chainrule.autodiff.tape.modules import Add, Embedding, Linear, Multiply, Scale
from chainrule.autodiff.tape.nodes import Array, Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module
from chainrule.networks.config import padded_size, weakened
from chainrule.networks.memory import Memory

Randomness: TypeAlias = Generator | None
"""The random generator of dropout; None: there is no dropout, as in evaluation."""
Shape: TypeAlias = tuple[int, ...]
_HEAD_STD = 0.02
_NEVER = -1e4  # a logit so low that its power of e is 0


class Reading(NamedTuple):
    """The result of a network's forward pass over some tokens."""

    features: Node
    """[B, T, D]: from features[b, t] the head predicts the token after ids_BT[b, t]."""
    memory: Any
    """The memory after the last token of each row; no gradient flows through it."""
    activations: Any = None
    """The activations that `TapeNetwork.penalise` takes; only in training."""


class TapeLoss(NamedTuple):
    """The loss of a batch, on the tape."""

    module: Module
    """The last module, at which the backward pass begins."""
    mean: float
    """Σ -ln p over the targets that are tokens, divided by the count; without the regularisation penalty."""
    memory: Any
    """The memory after the batch."""


class TapeNetwork(ABC):
    """A network that reads tokens one after the other."""

    config: Any
    """Its configuration, with dropout and penalties as they are now."""
    keeps_cache = False
    """True if its memory is a `Cache`."""
    table_setting = "embedding"
    """The name of the setting for the width of the embedding table."""

    def __init__(self, config: Any, vocab_size: int, bos: int, tensors: Mapping[str, Array]) -> None:
        """The tensors are not copied: training updates them in place."""
        self.config = self.whole_config = config
        self.vocab_size, self.bos, self.tied = vocab_size, bos, config.tied
        self.window: int | None = getattr(config, "window", None)
        """The most tokens that the network reads; None if there is no bound."""
        self.parameters = {name: Parameter(name, tensor) for name, tensor in tensors.items()}

    @classmethod
    @abstractmethod
    def shapes(cls, config: Any, vocab_size: int) -> dict[str, Shape]:
        """Return the shape of every parameter, by its name in the model folder; tables are padded by a few rows."""

    @classmethod
    @abstractmethod
    def fill(cls, weight: Array, name: str, config: Any, randomness: Generator) -> None:
        """Write the initial value of the parameter of that name into `weight`, which is all zeros."""

    @classmethod
    def initial(cls, config: Any, vocab_size: int, randomness: Generator) -> dict[str, Array]:
        """Random initial weights in float32, from the same distributions as those of the torch networks."""
        tensors = {name: np.zeros(shape, np.float32) for name, shape in cls.shapes(config, vocab_size).items()}
        for name, tensor in tensors.items():
            cls.fill(tensor, name, config, randomness)
        return tensors

    @property
    def tokens_at_once(self) -> int | None:
        """The number of last tokens from which the network predicts; None if a memory carries all that was read."""
        return None

    @property
    def table(self) -> Parameter:
        """E: a vector for each token."""
        return self.parameters["embedding.weight"]

    def recurrent_matrices(self) -> list[Array]:
        """Return the recurrent matrices, which are parts of the parameters: one for each gate and layer."""
        return []

    @property
    def scale(self) -> float:
        """The factor that vectors are multiplied by at the lookup: a table tied to the head has small numbers."""
        return math.sqrt(self.table.out_tensor.shape[1]) if self.tied else 1.0

    @abstractmethod
    def begin(self, batch_size: int) -> Memory:
        """Return the memory before anything was read, not even <s>."""

    @abstractmethod
    def read(
        self, ids_BT: Array, memory: Any = None, is_token_BT: Array | None = None, randomness: Randomness = None
    ) -> Reading:
        """Read more tokens after those in `memory`; without memory, from the beginning.

        Where `is_token_BT` is False there is padding, at the end of rows: its ids may be any valid ids, its
        features mean nothing, and it does not change the memory. None: all are tokens.
        """

    def loss(
        self,
        inputs: Any,
        targets_BT: Array,
        memory: Any = None,
        *,
        count: int | None = None,
        randomness: Randomness = None,
        is_measured: bool = False,
    ) -> TapeLoss:
        """Record the loss on the current tape: Σ -ln p(target), divided by `count` or else the number of targets.

        PAD in the targets is not predicted. PAD in the inputs stands at the end of rows, where the targets are PAD.
        With `is_measured`, for evaluation and not training, the padding rows of the table get no probability.
        Inputs may be a pair, (inputs_BT, base_BTV): the base is added to the logits.
        """
        inputs_BT, base_BTV = inputs if isinstance(inputs, tuple) else (inputs, None)
        targets = int((targets_BT != PAD).sum())
        total = max(targets, 1) if count is None else count
        # padding is not predicted and stands at the end: it may be read as any token
        reading = self.read(np.maximum(inputs_BT, 0), memory, randomness=randomness)
        logits: Node = self.logits(reading.features)
        if is_measured:
            logits = Value(logits.out_tensor[..., : self.vocab_size], "logits")
        if base_BTV is not None:
            padding = logits.out_tensor.shape[-1] - base_BTV.shape[-1]
            padded = np.pad(base_BTV, ((0, 0), (0, 0), (0, padding)), constant_values=_NEVER)
            logits = Add().apply_fwd(logits, Value(padded, "base"))
        nats = SoftmaxCrossEntropy(count=total).apply_fwd(logits, Value(targets_BT, "y"))
        module: Module = nats
        if reading.activations is not None:
            penalty = self.penalise(reading.activations, inputs_BT != PAD)
            if penalty is not None:
                module = Add().apply_fwd(nats, Scale(targets / total).apply_fwd(penalty))
        return TapeLoss(module, float(nats.out_tensor), reading.memory)

    def regularise(self, strength: float) -> None:
        """Set all dropout and penalties to `strength` times what the configuration says."""
        self.config = weakened(self.whole_config, strength)

    def penalise(self, activations: Any, is_token_BT: Array) -> Module | None:
        """Return the penalty that regularisation adds to the mean loss of the tokens; None if there is none."""
        return None

    def logits(self, features: Node) -> Module:
        """Return the logits U h + c, or U h without a bias c, including those of the padding rows of the table."""
        tied = [self.table] if self.tied else []
        return Linear().apply_fwd(features, *tied, *self.learned("head"))

    def learned(self, name: str) -> list[Parameter]:
        """Return the weight and the bias of that name; one that the network lacks is left out."""
        names = (f"{name}.{part}" for part in ("weight", "bias"))
        return [self.parameters[each] for each in names if each in self.parameters]

    def flops_per_token(self) -> float:
        """Floating-point operations to train on one token."""
        # a weight is used once forward and twice backward, each time for a product and a sum; looking up is free
        looked_up = None if self.tied else self.table
        return 6.0 * sum(one.out_tensor.size for one in self.parameters.values() if one is not looked_up)

    def project(self, features: Node) -> Node:
        """Project the features to the width of a tied table, if the two widths differ."""
        projection = self.learned("projection")
        return Linear().apply_fwd(features, *projection) if projection else features

    def embed(self, ids: Array, token_dropout: float, randomness: Randomness) -> Module:
        """Return the embeddings E x; in training, some tokens are dropped everywhere in the batch."""
        embedded: Module = Embedding().apply_fwd(self.table, Value(ids, "ids"))
        if self.scale != 1:
            embedded = Scale(self.scale).apply_fwd(embedded)
        if randomness is None or not token_dropout:
            return embedded
        mask_V = keep_mask((len(self.table.out_tensor),), token_dropout, randomness)
        return Multiply().apply_fwd(embedded, Value(mask_V[ids][..., None], "mask"))


def dropout(x: Node, share: float, randomness: Randomness, shape: Shape | None = None) -> Node:
    """z = m ⊙ x, with a mask that is 0 for a share of the numbers; without a random generator, x itself.

    `shape` is the shape of the mask, by default that of x; an axis of length 1 has one mask for all.
    """
    if randomness is None or not share:
        return x
    return Multiply().apply_fwd(x, Value(keep_mask(shape or x.out_tensor.shape, share, randomness), "mask"))


def keep_mask(shape: Shape, share: float, randomness: Generator) -> Array:
    """Return a dropout mask: 0 for dropped numbers, else 1 / (1 - share), which keeps the expectation."""
    return (randomness.random(shape, np.float32) >= share) / np.float32(1 - share)


def shapes_with_tables(
    config: Any, vocab_size: int, middle: Mapping[str, Shape], features: int, *, bias: bool = True
) -> dict[str, Shape]:
    """Return the shapes of the embedding table, of the parameters in between, and of the head on `features`."""
    rows, width = padded_size(vocab_size), config.embedding
    found: dict[str, Shape] = {"embedding.weight": (rows, width), **middle}
    if not config.tied:
        found["head.weight"] = (rows, features)
    elif features != width:
        found["projection.weight"] = (width, features)
    return {**found, "head.bias": (rows,)} if bias else found


def fill_table(weight: Array, name: str, config: Any, randomness: Generator) -> None:
    """Write initial values into the embedding table, the head or the projection; leave other parameters alone."""
    if name == "embedding.weight":
        # looked-up vectors have variance 1; a table tied to the head is smaller, and scaled up at the lookup
        weight[:] = randomness.normal(0, 1 / math.sqrt(weight.shape[1]) if config.tied else 1, weight.shape)
    elif name == "head.weight":
        weight[:] = randomness.normal(0, _HEAD_STD, weight.shape)
    elif name == "projection.weight":
        weight[:] = randomness.uniform(-1, 1, weight.shape) / math.sqrt(weight.shape[1])
