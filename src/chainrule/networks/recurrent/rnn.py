"""Recurrent language models: a state of fixed size carries all that was read.

    h_t = cell(E x_t, h_{t-1})                   an Elman network, an LSTM or a GRU (cells.py), in layers
    p(next | all tokens before) = softmax(U h_t + c)

cells.py has the equations of a layer, fused_layer.py computes them fast.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chainrule.networks.config import PARTS, RecurrentConfig
from chainrule.networks.layers import Embedding, make_head
from chainrule.networks.memory import RecurrentMemory
from chainrule.networks.network import Network, Reading
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.networks.regularise import EmbeddingDropout, VariationalDropout, activation_penalty


class Recurrent(Network):
    """A network of recurrent layers, which reads one token after the other."""

    SHARES: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    def __init__(self, config: RecurrentConfig, vocab_size: int, bos: int) -> None:
        super().__init__()
        self.config, self.window = config, None
        self.alpha, self.beta = config.alpha, config.beta
        self.embedding = Embedding(vocab_size, config.embedding, tied=config.tied)
        widths = config.widths
        self.layers = nn.ModuleList(
            self.make_layer(below, width) for below, width in zip([config.embedding, *widths], widths, strict=False)
        )
        self.starts = nn.ParameterList(
            torch.zeros(PARTS[config.cell], width) for width in widths if config.learned_start
        )
        self.projection, self.head = make_head(
            widths[-1], vocab_size, self.embedding.weight if config.tied else None
        )
        self.embedding_dropout = EmbeddingDropout(config.embedding_dropout)
        self.input_dropout = VariationalDropout(config.input_dropout)
        self.hidden_dropout = VariationalDropout(config.hidden_dropout)
        self.output_dropout = VariationalDropout(config.output_dropout)

    def make_layer(self, below: int, width: int) -> nn.Module:
        """Return a layer of `width` units that reads vectors of `below` numbers."""
        config = self.config
        options: Any = {name: getattr(config, name) for name in ("reset", "biases", "orthogonal")}
        return FusedLayer(config.cell, config.activation, below, width, config.weight_dropout, **options)

    def begin(self, batch_size: int) -> RecurrentMemory:
        parts = PARTS[self.config.cell]
        starts = self.starts or [self.head.weight.new_zeros(parts, width) for width in self.config.widths]
        return RecurrentMemory(tuple(tuple(start.unsqueeze(1).expand(-1, batch_size, -1)) for start in starts))

    def forward(
        self, ids_BT: Tensor, memory: RecurrentMemory | None = None, is_token_BT: Tensor | None = None
    ) -> Reading:
        memory = self.begin(len(ids_BT)) if memory is None else memory
        lengths_B = None if is_token_BT is None else is_token_BT.sum(dim=1)
        # In memory time comes first, as the layers read it, though B is the first axis of the view.
        embedded_BTD = self.embedding(ids_BT.T).transpose(0, 1)
        embedded_BTD = self.embedding_dropout(embedded_BTD, ids_BT, len(self.embedding.weight))
        out_BTD, states = self.input_dropout(embedded_BTD), []
        for i, (layer, state) in enumerate(zip(self.layers, memory.states, strict=True)):
            below_BTD = self.hidden_dropout(out_BTD) if i else out_BTD
            # h_t = cell(x_t, h_{t-1})
            out_BTD, state = layer(below_BTD, state, lengths_B)
            states.append(state)
        dropped_BTD = self.output_dropout(out_BTD)
        activations = (out_BTD, dropped_BTD) if self.training else None
        return Reading(self.projection(dropped_BTD), RecurrentMemory(tuple(states)), activations)

    def penalise(self, activations: tuple[Tensor, Tensor], is_token_BT: Tensor) -> Tensor | None:
        return activation_penalty(*activations, is_token_BT, self.alpha, self.beta)
