"""The trace of one prediction: a network on the tape reads a text, and its loss is differentiated.

The gradients are those by the embeddings and the hidden states of all steps; gates and attention weights are kept
on the way. `diagnosis.py` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.autodiff import (
    Add,
    Embedding,
    Module,
    Multiply,
    Scale,
    ScaledDotProductAttention,
    Slice,
    SoftmaxCrossEntropy,
    Tape,
    Value,
)
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape_model import TapeModel, as_tape_model, is_on_tape
from chainrule.contract.lm import LanguageModel
from chainrule.explanation.following import Followed, follow
from chainrule.system.plugins import import_object


@dataclass(frozen=True, eq=False)
class Trace:
    """The loss and the gradients of one prediction, with the values that were kept on the way."""

    nats: float
    """The loss of the target, -ln p."""
    embedding_gradient_T: np.ndarray
    """||∂L/∂e_t||, of the vector that the first layer reads at each step: how much a token matters."""
    state_gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    """||∂L/∂h_t|| as "h", for an LSTM also ||∂L/∂c_t|| as "c", each [L, T]. Empty if nothing is recurrent."""
    gates: Mapping[str, list[np.ndarray]] = field(default_factory=dict)
    """The values of gates by name, then layer: [T, H]. Empty if there are none."""
    alone: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What one factor alone would leave of the last step's gradient, [L, T], by state: the gates that carry it,
    ||∂L/∂c_T ⊙ f_T ⊙ ... ⊙ f_{t+1}|| ("c" of an LSTM or QRNN, "h" of a GRU), or the recurrent matrix U,
    ||∂L/∂h_T U^(T-t)|| ("h" of an Elman network)."""
    attention_LHTT: np.ndarray | None = None
    """Attention weights of each query (the third axis) over the keys (the last axis). None without attention."""
    states: Mapping[str, list[np.ndarray]] = field(default_factory=dict)
    """The values of the states "h" and "c" by name, then layer: [T, H]. Empty if nothing is recurrent."""
    log_probs_V: np.ndarray | None = None
    """ln p of every token at the place of the target; None if it was not kept."""
    followed: Followed | None = None
    """The way of the last token through a Transformer; None for other networks."""


def trace_network(lm: LanguageModel, ids: list[int], target: int) -> Trace:
    """Trace a network that reads the ids, the first of which begins a text, and predicts the target.

    The network is computed on the tape, so that torch is not needed; a torch network that the tape does not compute
    is differentiated by its embeddings only.
    """
    if not isinstance(lm, TapeModel) and not is_on_tape(lm.kind):
        trace: Trace = import_object("chainrule.explanation.torch_trace:trace_embeddings")(lm, ids, target)
        return trace
    network, steps = _in_double(as_tape_model(lm).network), len(ids)
    with Tape() as tape:
        features = network.read(np.array([ids])).features
        logits = network.logits(Slice(np.s_[:, -1]).apply_fwd(features))
        loss = SoftmaxCrossEntropy().apply_fwd(logits, Value(np.array([target]), "y"))
        modules = tape.modules
        tape.backward()
    states = {letter: [one for one in modules if one.symbol == letter] for letter in "hc"}
    states = {letter: found for letter, found in states.items() if found}
    gates: dict[str, list[Module]] = {}
    for one in modules:
        if one.gate:
            gates.setdefault(one.gate, []).append(one)
    attention = [one.weights for one in modules if isinstance(one, ScaledDotProductAttention)]
    matrices = [matrix.astype(np.float64) for matrix in network.recurrent_matrices()]
    alone = {}
    for name, found in states.items():
        layers = [found[first : first + steps] for first in range(0, len(found), steps)]
        if _carrying_gate(found[-1]) is not None:
            alone[name] = np.stack([_left_by_gates(layer) for layer in layers])
        elif len(matrices) == len(layers):  # one matrix for each layer: no gates
            alone[name] = np.stack([_left_by_matrix(*both) for both in zip(layers, matrices, strict=True)])
    # learned first states may come before the embeddings, which are scaled where the table is tied to the head
    place = next(n for n, module in enumerate(modules) if isinstance(module, Embedding))
    embedded, second = modules[place : place + 2]
    if isinstance(second, Scale) and second.in_modules[0] is embedded:
        embedded = second
    # the last T rows are the tokens; a feed-forward network has <s> before them
    gradient = _gradient(embedded)
    logits_V = logits.out_tensor[0]
    return Trace(
        float(loss.out_tensor),
        np.linalg.norm(gradient.reshape(-1, gradient.shape[-1])[-steps:], axis=-1),
        {
            letter: np.reshape([np.linalg.norm(_gradient(one)) for one in found], (-1, steps))
            for letter, found in states.items()
        },
        _over_time(gates, steps),
        alone,
        # heads that share keys stand in two axes of a module, here in one
        np.stack([weights.reshape(-1, steps, steps) for weights in attention]) if attention else None,
        _over_time(states, steps),
        # ln p_i = z_i - ln Σ e^z, and ln Σ e^z = z_y + L
        logits_V - logits_V[target] - float(loss.out_tensor),
        follow(network, modules, embedded) if isinstance(network, TapeTransformer) else None,
    )


def _carrying_gate(state: Module) -> Module | None:
    """Return the gate g of a state s_t = g ⊙ s_{t-1} + ...; None if the state is made in another way."""
    for product in state.in_modules if isinstance(state, Add) else ():
        if isinstance(product, Multiply):
            gate, before = product.in_modules
            # i ⊙ g adds what is new: both are gates
            if isinstance(gate, Module) and gate.gate and not getattr(before, "gate", ""):
                return gate
    return None


def _left_by_matrix(states: Sequence[Module], U: np.ndarray) -> np.ndarray:
    """||∂L/∂h_T U^(T-t)|| of the states of one layer at each step, [T]."""
    left, norms = _gradient(states[-1]), []
    for _ in states:
        norms.append(float(np.linalg.norm(left)))
        left = left @ U
    return np.array(norms[::-1])


def _left_by_gates(states: Sequence[Module]) -> np.ndarray:
    """||∂L/∂s_T ⊙ g_T ⊙ ... ⊙ g_{t+1}|| of the states of one layer at each step, [T]."""
    left, norms = _gradient(states[-1]), []
    for state in reversed(states):
        norms.append(float(np.linalg.norm(left)))
        gate = _carrying_gate(state)
        assert gate is not None  # all steps of a layer are made alike
        left = left * gate.out_tensor
    return np.array(norms[::-1])


def _over_time(modules: Mapping[str, list[Module]], steps: int) -> dict[str, list[np.ndarray]]:
    """Return the values of modules by name, then layer, [T, H]: a layer has one module for each step."""
    return {
        name: [
            np.concatenate([one.out_tensor for one in found[first : first + steps]])
            for first in range(0, len(found), steps)
        ]
        for name, found in modules.items()
    }


def _in_double(network: TapeNetwork) -> TapeNetwork:
    """Return a copy in double precision, without the padding rows of the tables; the bias of <s> is -∞.

    A gradient that vanishes soon leaves the range of single precision. Only the embedding table is a parameter: the
    gradients of the others are not needed.
    """
    tensors = {name: parameter.out_tensor.astype(np.float64) for name, parameter in network.parameters.items()}
    for name in {network.table.name, "head.weight", "head.bias"} & tensors.keys():
        tensors[name] = tensors[name][: network.vocab_size]
    tensors.setdefault("head.bias", np.zeros(network.vocab_size))[network.bos] = -np.inf
    found = type(network)(network.config, network.vocab_size, network.bos, tensors)
    table, nodes = found.table, found.parameters.items()
    data: Any = {name: one if one is table else Value(one.out_tensor, name) for name, one in nodes}
    found.parameters = data
    return found


def _gradient(module: Module) -> np.ndarray:
    """Return the gradient of a module; zeros if none flowed in."""
    return np.zeros_like(module.out_tensor) if module.out_gradient is None else module.out_gradient
