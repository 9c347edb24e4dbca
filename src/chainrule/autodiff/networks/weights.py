"""The parameters of a network: names and shapes as in the model folder, and initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from chainrule.autodiff.networks.bag_of_words import TapeBagOfWords
from chainrule.autodiff.networks.feedforward import TapeFeedforward
from chainrule.autodiff.networks.network import Randomness, TapeNetwork
from chainrule.autodiff.networks.recurrent import LAYER, TapeRecurrent
from chainrule.autodiff.networks.transformer import weights as of_transformer
from chainrule.autodiff.networks.transformer.decoder import TapeTransformer
from chainrule.autodiff.tape.gradients import Array
from chainrule.networks.config import (
    GATES,
    PARTS,
    BagOfWordsConfig,
    FeedforwardConfig,
    RecurrentConfig,
    padded_size,
)
from chainrule.networks.transformer.config import TransformerConfig

Design: TypeAlias = BagOfWordsConfig | FeedforwardConfig | RecurrentConfig | TransformerConfig

_GAINS = {"tanh": 5 / 3, "sigmoid": 1.0, "relu": math.sqrt(2)}
_HEAD_STD = 0.02


def shapes(design: Design, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by name; tables are padded to a few more rows than there are tokens."""
    if isinstance(design, TransformerConfig):
        return of_transformer.shapes(design, vocab_size)
    rows, width = padded_size(vocab_size), design.embedding
    middle, features = _recurrent(design) if isinstance(design, RecurrentConfig) else _hidden(design)
    found = {"embedding.weight": (rows, width), **middle}
    if not design.tied:
        found["head.weight"] = (rows, features)
    elif features != width:
        found["projection.weight"] = (width, features)
    return {**found, "head.bias": (rows,)}


def make_network(design: Design, vocab_size: int, bos: int, tensors: Mapping[str, Array]) -> TapeNetwork:
    """The network of a design, with these weights."""
    if isinstance(design, BagOfWordsConfig):
        return TapeBagOfWords(design, vocab_size, bos, tensors)
    if isinstance(design, FeedforwardConfig):
        return TapeFeedforward(design, vocab_size, bos, tensors)
    if isinstance(design, TransformerConfig):
        return TapeTransformer(design, vocab_size, bos, tensors)
    return TapeRecurrent(design, vocab_size, bos, tensors)


def initial(design: Design, vocab_size: int, randomness: Randomness) -> dict[str, Array]:
    """Random initial weights in float32, from the same distributions as those of the torch networks."""
    if isinstance(design, TransformerConfig):
        return of_transformer.initial(design, vocab_size, randomness)
    tensors = {}
    for name, shape in shapes(design, vocab_size).items():
        tensors[name] = np.zeros(shape, np.float32)
        if name.endswith("weight") or "weight_" in name:
            _fill(tensors[name], name, design, randomness)
    if isinstance(design, RecurrentConfig) and design.cell == "lstm":
        for i, width in enumerate(design.widths):
            # a forget gate that begins open lets gradients through (Jozefowicz and others 2015)
            tensors[LAYER.format(i, "bias_ih")][width : 2 * width] = 1
    return tensors


def checked(design: Design, vocab_size: int, tensor: Callable[[str], Array]) -> dict[str, Array]:
    """Copies in float32 of the weights that `tensor` returns by name; ValueError if one has the wrong shape."""
    tensors = {}
    for name, shape in shapes(design, vocab_size).items():
        tensors[name] = np.array(tensor(name), np.float32)
        if tensors[name].shape != shape:
            raise ValueError(f"{name} has the shape {list(tensors[name].shape)}, not {list(shape)}")
    return tensors


def _hidden(design: BagOfWordsConfig | FeedforwardConfig) -> tuple[Mapping[str, tuple[int, ...]], int]:
    """The shapes of the parameters between the table and the head, and the number of features for the head."""
    context, direct = design.embedding, 0
    if isinstance(design, FeedforwardConfig):
        context *= design.order - 1
        direct = context if design.direct else 0
    found: dict[str, tuple[int, ...]] = {}
    for i in range(design.layers):
        found[f"hidden.linears.{i}.weight"] = design.hidden, design.hidden if i else context
        found[f"hidden.linears.{i}.bias"] = (design.hidden,)
    return found, design.hidden + direct


def _recurrent(design: RecurrentConfig) -> tuple[Mapping[str, tuple[int, ...]], int]:
    found: dict[str, tuple[int, ...]] = {}
    below, gates = design.embedding, GATES[design.cell]
    for i, width in enumerate(design.widths):
        found[LAYER.format(i, "weight_ih")] = gates * width, below
        found[LAYER.format(i, "weight_hh")] = gates * width, width
        found[LAYER.format(i, "bias_ih")] = found[LAYER.format(i, "bias_hh")] = (gates * width,)
        below = width
    if design.learned_start:
        found |= {f"starts.{i}": (PARTS[design.cell], width) for i, width in enumerate(design.widths)}
    return found, below


def _fill(
    weight: Array,
    name: str,
    design: BagOfWordsConfig | FeedforwardConfig | RecurrentConfig,
    randomness: Randomness,
) -> None:
    rows, columns = weight.shape
    if name == "embedding.weight":
        # looked-up vectors have variance 1; a table tied to the head is smaller, and scaled up at the lookup
        weight[:] = randomness.normal(0, 1 / math.sqrt(columns) if design.tied else 1, weight.shape)
    elif name == "head.weight":
        weight[:] = randomness.normal(0, _HEAD_STD, weight.shape)
    elif name == "projection.weight":
        weight[:] = randomness.uniform(-1, 1, weight.shape) / math.sqrt(columns)
    elif name.startswith("hidden"):
        # Glorot and Bengio 2010: activations and gradients keep their scale from layer to layer
        weight[:] = randomness.normal(0, _GAINS[design.activation] * math.sqrt(2 / (rows + columns)), weight.shape)
    else:
        assert isinstance(design, RecurrentConfig)
        for gate in np.split(weight, GATES[design.cell]):
            if "weight_hh" in name:
                gate[:] = _orthogonal(len(gate), randomness)
            else:
                gate[:] = randomness.uniform(-1, 1, gate.shape) * math.sqrt(6 / sum(gate.shape))


def _orthogonal(size: int, randomness: Randomness) -> Array:
    """A random orthogonal matrix, which keeps the norm of a vector however often it is multiplied by it."""
    q, r = np.linalg.qr(randomness.normal(size=(size, size)))
    # multiplied by the signs of R's diagonal, Q is uniformly distributed over the orthogonal matrices
    signed: Array = q * np.sign(np.diag(r))
    return signed
