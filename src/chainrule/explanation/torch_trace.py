"""A forward pass in which everything is kept: the hidden states of each step, its gates, and attention weights.

The hooks that keep it are on a copy of the network: training and generation know nothing of them. The copy computes
in double precision, because a gradient that vanishes soon leaves the range of single precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from chainrule.networks.network import Network
from chainrule.networks.recurrent.cells import (
    CellState,
    CellWeights,
    GruGates,
    LstmGates,
    Step,
    gru_gates,
    lstm_gates,
)
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer.attention import Attend, attention_weights, textbook_attention
from chainrule.networks.transformer.decoder import Transformer

Gates: TypeAlias = LstmGates | GruGates
GatesOf: TypeAlias = Callable[[Tensor, Tensor, CellWeights], Gates]

_GATES_OF: dict[str, GatesOf] = {"lstm": lstm_gates, "gru": gru_gates}
_STATE_NAMES = ("h", "c")


@dataclass
class Trace:
    """What was kept while a network read one text of T tokens. Nested lists are by layer, then by step."""

    steps: int
    """The number of tokens read, T."""
    loss: Tensor = field(init=False)
    """-ln p of the target, the token after those that were read."""
    embedded: Tensor = field(init=False)
    """The input of the first layer. Its last T rows are the tokens; a feed-forward network has <s> before them."""
    states: list[list[CellState]] = field(default_factory=list)
    gates: list[list[Gates]] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    """The attention weights of each layer, [H, T, T]."""

    def gradient_norms(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """||∂L/∂e_t|| of the embeddings, [T]; and ||∂L/∂h_t||, for an LSTM also ||∂L/∂c_t||, by name, [L, T]."""
        parts = [part_1H for layer in self.states for state in layer for part_1H in state]
        # total derivatives, through the later steps and the layers above
        embedded, *others = torch.autograd.grad(self.loss, [self.embedded, *parts])
        norms_T = embedded.flatten(0, -2)[-self.steps :].norm(dim=-1).numpy()
        if not others:
            return norms_T, {}
        names = _STATE_NAMES[: len(self.states[0][0])]
        norms_LTP = torch.stack([part_1H.norm() for part_1H in others]).view(-1, self.steps, len(names)).numpy()
        return norms_T, {name: norms_LTP[..., i] for i, name in enumerate(names)}

    def gate_values(self) -> dict[str, list[np.ndarray]]:
        """The values of gates by name, then layer: [T, H]."""
        if not any(self.gates):
            return {}
        return {
            name: [torch.cat([getattr(gates, name) for gates in layer]).numpy() for layer in self.gates]
            for name in self.gates[0][0]._fields
        }


def trace(network: Network, ids: list[int], target: int, bos: int) -> Trace:
    """The trace of a network that reads the ids, the first of which begins a text, and predicts the target.

    The target is not <s>, whose id is `bos`.
    """
    network = copy.deepcopy(network).to("cpu", torch.float64).requires_grad_(False).eval()
    ids_1T = torch.tensor([ids])
    kept = Trace(len(ids))
    _keep_embeddings(network, kept)
    if isinstance(network, Transformer):
        _keep_attention(network, kept)
    if isinstance(network, Recurrent):
        _keep_states(network, kept)
        reading = network(ids_1T, by_cells=True)
    else:
        reading = network(ids_1T)
    logits_V = network.head(reading.features_BTD[0, -1])
    # -ln p(y) = ln Σ e^z - z_y, where <s> is never predicted
    possible_V = torch.arange(len(logits_V)) != bos
    kept.loss = logits_V[possible_V].logsumexp(dim=0) - logits_V[target]
    return kept


def _keep_embeddings(network: Network, kept: Trace) -> None:
    def keep(embedded: Tensor) -> Tensor:
        kept.embedded = embedded.detach().requires_grad_()
        return kept.embedded

    if isinstance(network, Transformer):
        network.blocks[0].register_forward_pre_hook(lambda _, inputs: (keep(inputs[0]), *inputs[1:]))
    else:
        network.embedding.register_forward_hook(lambda _, inputs, embedded: keep(embedded))  # type: ignore[union-attr]


def _keep_states(network: Recurrent, kept: Trace) -> None:
    gates_of = _GATES_OF.get(network.config.cell)
    for layer in network.layers:
        assert isinstance(layer, FusedLayer)
        kept.states.append([])
        kept.gates.append([])
        layer.step = _keeping(layer.step, gates_of, kept.states[-1], kept.gates[-1])


def _keeping(step: Step, gates_of: GatesOf | None, states: list[CellState], gates: list[Gates]) -> Step:
    """The step function of a cell, wrapped to append its gates and its new state to these lists."""

    def kept_step(x_BD: Tensor, state: CellState, weights: CellWeights) -> CellState:
        if gates_of is not None:
            with torch.no_grad():
                gates.append(gates_of(x_BD, state[0], weights))
        states.append(step(x_BD, state, weights))
        return states[-1]

    return kept_step


def _keep_attention(network: Transformer, kept: Trace) -> None:
    mask = network.positions.mask(torch.arange(kept.steps), kept.steps)

    def attend(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor) -> Tensor:
        kept.attention.append(attention_weights(q_BHTK, k_BGTK, mask)[0].detach())
        return textbook_attention(q_BHTK, k_BGTK, v_BGTK, mask)

    def instead(_: Any, inputs: tuple[Tensor, Any, Attend]) -> tuple[Tensor, Any, Attend]:
        x_BTD, rotation, _ = inputs
        return x_BTD, rotation, attend

    for block in network.blocks:
        block.attention.register_forward_pre_hook(instead)  # type: ignore[union-attr]
