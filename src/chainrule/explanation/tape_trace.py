"""A prediction on the tape of which everything is kept: embeddings, states, gates, attention, and gradients.

The network is a copy in double precision, because a gradient that vanishes soon leaves the range of single
precision. `explanation/torch_trace.py` does the same in torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from chainrule.autodiff.networks.cells import Cell, CellState
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import TapeRecurrent
from chainrule.autodiff.networks.weights import Design, make_network
from chainrule.autodiff.tape.attention import ScaledDotProductAttention
from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.losses import SoftmaxCrossEntropy
from chainrule.autodiff.tape.modules import Embedding, Scale, Sigmoid, Tanh
from chainrule.autodiff.tape.moves import Slice
from chainrule.autodiff.tape.nodes import Node, Value
from chainrule.autodiff.tape.tape import Module, Tape, current_tape

_GATES: dict[str, dict[str, tuple[type[Module], int]]] = {
    "lstm": {"input": (Sigmoid, 0), "forget": (Sigmoid, 1), "candidate": (Tanh, 0), "output": (Sigmoid, 2)},
    "gru": {"reset": (Sigmoid, 0), "update": (Sigmoid, 1), "candidate": (Tanh, 0)},
}
"""The gates of each cell by name: the type of its module, and its number among those that a step applies."""
_STATE_NAMES = ("h", "c")


@dataclass
class Trace:
    """What was kept while a network read one text of T tokens; lists have all steps of one layer after another."""

    steps: int
    layers: int = 0
    nats: float = 0.0
    """-ln p of the target, the token after those that were read."""
    embedded: Module = field(init=False)
    """The input of the first layer. Its last T rows are the tokens; a feed-forward network has <s> before them."""
    states: list[CellState] = field(default_factory=list)
    gates: dict[str, list[Module]] = field(default_factory=dict)
    attention: list[Array] = field(default_factory=list)
    """The attention weights of each layer, [H, T, T]."""

    def gradient_norms(self) -> tuple[Array, dict[str, Array]]:
        """||∂L/∂e_t|| of the embeddings, [T]; and ||∂L/∂h_t||, for an LSTM also ||∂L/∂c_t||, by name, [L, T]."""
        gradient = _gradient(self.embedded)
        norms_T = np.linalg.norm(gradient.reshape(-1, gradient.shape[-1])[-self.steps :], axis=-1)
        names = _STATE_NAMES[: len(self.states[0])] if self.states else ()
        norms = {
            name: np.reshape([np.linalg.norm(_gradient(state[i])) for state in self.states], (self.layers, -1))
            for i, name in enumerate(names)
        }
        return norms_T, norms

    def gate_values(self) -> dict[str, list[Array]]:
        """The values of gates by name, then layer: [T, H]."""
        return {
            name: [
                np.concatenate([gate.out_tensor for gate in found[layer * self.steps : (layer + 1) * self.steps]])
                for layer in range(self.layers)
            ]
            for name, found in self.gates.items()
        }


def trace(network: TapeNetwork, design: Design, ids: list[int], target: int) -> Trace:
    """The trace of a network that reads the ids, the first of which begins a text, and predicts the target."""
    network = _in_double(network, design)
    kept = Trace(len(ids))
    if isinstance(network, TapeRecurrent):
        kept.layers = network.config.layers
        network.cell = _keeping(network.cell, _GATES.get(network.config.cell, {}), kept)
    with Tape() as tape:
        features = network.read(np.array([ids])).features
        logits = network.logits(Slice(np.s_[:, -1]).apply_fwd(features))
        loss = SoftmaxCrossEntropy().apply_fwd(logits, Value(np.array([target]), "y"))
        kept.nats, kept.embedded = float(loss.out_tensor), _embedded(tape)
        kept.attention = _attention(tape, len(ids))
        tape.backward()
    return kept


def _in_double(network: TapeNetwork, design: Design) -> TapeNetwork:
    """A copy in double precision, without the padding rows of the tables; <s>, never predicted, has the bias -∞."""
    tensors = {name: parameter.out_tensor.astype(np.float64) for name, parameter in network.parameters.items()}
    for name in {network.table.name, "head.weight", "head.bias"} & tensors.keys():
        tensors[name] = tensors[name][: network.vocab_size]
    tensors.setdefault("head.bias", np.zeros(network.vocab_size))[network.bos] = -np.inf
    return make_network(design, network.vocab_size, network.bos, tensors)


def _embedded(tape: Tape) -> Module:
    """The embeddings, scaled where the table is tied to the head."""
    # learned first states may come before it
    place = next(n for n, module in enumerate(tape.modules) if isinstance(module, Embedding))
    first, second = tape.modules[place : place + 2]
    return second if isinstance(second, Scale) and second.in_modules[0] is first else first


def _attention(tape: Tape, steps: int) -> list[Array]:
    """The attention weights of each layer; heads that share keys stand in two axes of a module, here in one."""
    found = [module for module in tape.modules if isinstance(module, ScaledDotProductAttention)]
    return [module.weights.reshape(-1, steps, steps) for module in found]


def _keeping(cell: Cell, gates: dict[str, tuple[type[Module], int]], kept: Trace) -> Cell:
    """The cell, wrapped to keep its gates and its new state."""

    def kept_step(Wx: Node, Uh: Node, state: CellState) -> CellState:
        before = len(current_tape())
        after = cell(Wx, Uh, state)
        applied = current_tape().modules[before:]
        for name, (kind, number) in gates.items():
            kept.gates.setdefault(name, []).append([one for one in applied if isinstance(one, kind)][number])
        kept.states.append(after)
        return after

    return kept_step


def _gradient(node: Node) -> Array:
    """The gradient of a node; zeros if none flowed in."""
    return np.zeros_like(node.out_tensor) if node.out_gradient is None else np.asarray(node.out_gradient)
