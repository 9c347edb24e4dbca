"""Recurrent encoder-decoders (Sutskever and others 2014; Bahdanau and others 2015; Luong and others 2015).

    s_1..s_S = encoder(x)                        in both directions: [forward; backward] at each position
    h_0      = the encoder's last states         through a layer tanh(W s + b), if it reads both ways
    h_t      = decoder(E y_t, h_{t-1})           with feeding: decoder([E y_t; h̃_{t-1}], h_{t-1})
    c_t      = attention(h_t, s_1..s_S)          alignment.py
    h̃_t      = tanh(W [c_t; h_t])                without attention: h̃_t = h_t
    p(y_{t+1} | y_<=t, x) = softmax(U h̃_t + b)

Without attention, the decoder knows nothing of the source but h_0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.networks.config import PARTS
from chainrule.networks.layers import Embedding, Table, last_of_rows, make_head
from chainrule.networks.memory import ArrayMemory
from chainrule.networks.network import Reading
from chainrule.networks.recurrent.both_ways import BothWays
from chainrule.networks.recurrent.cells import CellState
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.networks.regularise import Dropout, EmbeddingDropout, VariationalDropout
from chainrule.networks.seq2seq.alignment import Alignment
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder, SourcedMemory, Sources
from chainrule.networks.transformer.attention import Kept


@dataclass(frozen=True)
class DecoderMemory(ArrayMemory):
    """The states of a recurrent decoder's layers."""

    states: tuple[tuple[Tensor, ...], ...]
    first: tuple[tuple[Tensor, ...], ...]
    """The states before anything of the target was read."""
    found_BD: Tensor
    """h̃ of the step before: 0 before the first."""


class RecurrentEncoderDecoder(EncoderDecoder):
    """An encoder and a decoder of recurrent layers."""

    def __init__(
        self, config: Seq2SeqSettings, vocab_size: int, bos: int, source_size: int, *, shares: bool
    ) -> None:
        """`shares`: sources and targets have one vocabulary, and one table of embeddings."""
        super().__init__()
        self.config, self.window, self.source_window = config, None, None
        self.label_smoothing = config.label_smoothing
        cell, width = config.recurrent_cell, config.width
        extra = config.extra_ids
        self.embedding = Embedding(vocab_size + extra, width, tied=config.tied)
        self.source_embedding = None if shares else Embedding(source_size + extra, width, tied=False)
        self.encoder = BothWays(cell, width, width, config.layers, config.dropout, both=config.bidirectional)
        self.bridges = nn.ModuleList(
            nn.Linear(width, width) for _ in range(config.layers * PARTS[cell]) if config.bidirectional
        )
        below = 2 * width if config.feeding else width
        self.decoder = nn.ModuleList(
            FusedLayer(cell, "tanh", width if layer else below, width, 0.0) for layer in range(config.layers)
        )
        self.alignment = None if config.attention == "none" else Alignment(config.attention, width)
        self.mix = None if self.alignment is None else nn.Linear(2 * width, width, bias=False)
        tied_to = self.embedding.weight if config.tied else None
        self.projection, self.head = make_head(width, vocab_size, tied_to, extra)
        self.head.measured += extra if config.pretrain == "spans" else 0
        self.token_dropout = EmbeddingDropout(config.token_dropout)
        self.dropout, self.input_dropout = Dropout(config.dropout), VariationalDropout(config.dropout)

    def table(self) -> Table:
        return super().table()._replace(setting="width")

    # -- the encoder --------------------------------------------------------------------------------------

    def encode(self, source_BS: Tensor, is_token_BS: Tensor) -> SourcedMemory:
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        embedded_BSD = self.input_dropout(self._embed(embedding, source_BS))
        states_BSD, last = self.encoder(embedded_BSD, is_token_BS.sum(dim=1))
        first = self._bridged(last)
        nothing_BD = states_BSD.new_zeros(len(source_BS), self.config.width)
        memory = DecoderMemory(first, first, nothing_BD)
        if self.alignment is None:
            # a decoder without attention knows nothing of the source but its first state
            return SourcedMemory(memory, Sources((), is_token_BS))
        return SourcedMemory(memory, Sources((self.alignment.keys(states_BSD), states_BSD), is_token_BS))

    def _bridged(self, last: list[CellState]) -> tuple[CellState, ...]:
        """Return the decoder's first states: the encoder's last ones, each through a layer if there are layers."""
        if not self.bridges:
            return tuple(last)
        flat = [part_BD for state in last for part_BD in state]
        bridged = [torch.tanh(bridge(part_BD)) for bridge, part_BD in zip(self.bridges, flat, strict=True)]
        parts = PARTS[self.config.recurrent_cell]
        return tuple(tuple(bridged[i : i + parts]) for i in range(0, len(bridged), parts))

    def _embed(self, embedding: Embedding, ids_BT: Tensor) -> Tensor:
        embedded_BTD: Tensor = self.token_dropout(embedding(ids_BT), ids_BT, len(embedding.weight))
        return embedded_BTD

    # -- the decoder --------------------------------------------------------------------------------------

    def restart(self, memory: SourcedMemory) -> SourcedMemory:
        first, found_BD = memory.target.first, memory.target.found_BD
        return SourcedMemory(DecoderMemory(first, first, torch.zeros_like(found_BD)), memory.sources)

    def read_whole(self, ids_BT: Tensor, encoded: SourcedMemory) -> Tensor:
        features_BTD: Tensor = self(ids_BT, encoded).features_BTD
        return features_BTD

    def forward(
        self, ids_BT: Tensor, memory: Any = None, is_token_BT: Tensor | None = None, kept: Kept = None
    ) -> Reading:
        target: DecoderMemory = memory.target
        embedded_BTD = self.input_dropout(self._embed(self.embedding, ids_BT))
        seen = memory.sources.seen()
        lengths_B = None if is_token_BT is None else is_token_BT.sum(dim=1)
        if self.config.feeding:
            found_BTD, states = self._feed(embedded_BTD, target, lengths_B, seen, kept)
        else:
            h_BTD, states = self.through_layers(embedded_BTD, target.states, lengths_B)
            found_BTD = self._find(h_BTD, seen, kept)
        after = DecoderMemory(states, target.first, last_of_rows(found_BTD, lengths_B, target.found_BD))
        return Reading(self.projection(self.dropout(found_BTD)), SourcedMemory(after, memory.sources))

    def through_layers(
        self, x_BTD: Tensor, states: tuple[CellState, ...], lengths_B: Tensor | None
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """h_t = decoder(x_t, h_{t-1}), through all layers."""
        after = []
        for i, (layer, state) in enumerate(zip(self.decoder, states, strict=True)):
            x_BTD, state = layer(self.input_dropout(x_BTD) if i else x_BTD, state, lengths_B)
            after.append(state)
        return x_BTD, tuple(after)

    def _feed(
        self, embedded_BTD: Tensor, target: DecoderMemory, lengths_B: Tensor | None, seen: Sources, kept: Kept
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """Return the same with feeding, step by step: h̃_{t-1} is part of the input at t."""
        states, found_BD = target.states, target.found_BD
        found: list[Tensor] = []
        weights: Kept = None if kept is None else []
        for t in range(embedded_BTD.shape[1]):
            goes_on_B = None if lengths_B is None else (t < lengths_B).long()
            x_B1D = torch.cat([embedded_BTD[:, t : t + 1], found_BD[:, None].to(embedded_BTD.dtype)], dim=-1)
            h_B1D, states = self.through_layers(x_B1D, states, goes_on_B)
            found_B1D = self._find(h_B1D, seen, weights)
            found_BD = last_of_rows(found_B1D, goes_on_B, found_BD)
            found.append(found_B1D)
        if kept is not None and weights:
            kept.append(torch.cat(weights, dim=2))
        return torch.cat(found, dim=1), states

    def _find(self, h_BTD: Tensor, seen: Sources, kept: Kept) -> Tensor:
        """h̃_t = tanh(W [c_t; h_t]); without attention, h_t."""
        if self.alignment is None or self.mix is None:
            return h_BTD
        keys_NSD, states_NSD = seen.arrays
        # rows that share a source are queries of one row
        h_NQD = h_BTD.reshape(len(keys_NSD), -1, h_BTD.shape[-1])
        c_NQD, weights_NQS = self.alignment(h_NQD, keys_NSD, states_NSD, seen.is_token_NS)
        if kept is not None:
            kept.append(weights_NQS.reshape(len(h_BTD), 1, h_BTD.shape[1], -1))
        found_BTD: Tensor = torch.tanh(self.mix(torch.cat([c_NQD.reshape(h_BTD.shape), h_BTD], dim=-1)))
        return found_BTD
