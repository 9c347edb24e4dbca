"""The Transformer decoder: every token attends to the tokens before it, layer after layer.

    x⁰   = E[id] + position
    xˡ   = Blockˡ(xˡ⁻¹)          attention over the tokens so far, then a small network on each token
    p(·) = softmax(W Norm(xᴸ))   the head

Training reads whole windows at once. Generation reads on from a key-value cache, in pieces of any length; `step`
does so for one token a row, without the host ever waiting for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.designs.networks import padded_size
from chainrule.designs.transformer import TransformerConfig
from chainrule.neural.networks.head import Head
from chainrule.neural.networks.network import Network, Reading, Table
from chainrule.neural.networks.precision import working_type
from chainrule.neural.networks.regularise import EmbeddingDropout
from chainrule.neural.networks.transformer.attention import Attend, fused_attention, single_query_attention
from chainrule.neural.networks.transformer.blocks import Block, Norm
from chainrule.neural.networks.transformer.cache import Cache, empty_cache, write_at
from chainrule.neural.networks.transformer.positions import Positions

_FIRST_CAPACITY = 64


Attends: TypeAlias = Callable[[int], Attend]
"""The attention function of each layer, by the layer's index."""


class Transformer(Network):
    """A decoder of any of the designs of `TransformerConfig`. <s> is a token like any other to it."""

    def __init__(self, config: TransformerConfig, vocab_size: int, bos: int = 0) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        self.embedding = nn.Parameter(torch.empty(padded_size(vocab_size), config.width))
        self.token_dropout = EmbeddingDropout(config.token_dropout)
        self.positions = Positions(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        # pre-norm blocks do not normalise their sum, so that is done after the last one
        self.norm = Norm(config) if config.placement == "pre" else nn.Identity()
        self.head = Head(config.width, vocab_size, tied_to=self.embedding if config.tied else None)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draw weights from N(0, σ²); those whose output is added to x are smaller the more there are, or 0."""
        config = self.config
        # the variance of a sum of 2L parts is 2L times theirs
        added = 0.0 if config.zero_init else (2 * config.layers) ** -0.5
        nn.init.normal_(self.embedding, std=config.initial_std)
        nn.init.normal_(self.head.weight, std=config.initial_std)
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() == 2:
                scale = added if name.endswith(".out.weight") else 1.0
                nn.init.normal_(parameter, std=scale * config.initial_std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def table(self) -> Table:
        return Table(self.embedding, math.sqrt(self.config.width) if self.config.scaled_embedding else 1.0, "width")

    def begin(self, batch_size: int, capacity: int | None = None) -> Cache:
        """An empty cache, which grows as tokens are read; `capacity` reserves space for so many at once."""
        config = self.config
        shape_LBGK = config.layers, batch_size, config.kv_heads, config.width // config.heads
        capacity = min(capacity or _FIRST_CAPACITY, config.window)
        like = self.embedding.new_empty(0, dtype=working_type(self.embedding))
        return empty_cache(shape_LBGK, config.window, capacity, like)

    def forward(self, ids_BT: Tensor, memory: Cache | None = None, is_token_BT: Tensor | None = None) -> Reading:
        """Read on from a cache, without gradients; or, without one, read a window and return no cache."""
        if memory is not None:
            with torch.no_grad():
                return self._read_on(ids_BT, memory, is_token_BT)
        T = ids_BT.shape[1]
        if self.config.window < T:
            raise ValueError(f"a window of {self.config.window} tokens was given {T}: read the last of them only")
        # padding at the end is seen by nothing that comes before it
        attend_all = self._attending(slice(0, T), T, ids_BT.device)
        return Reading(self._features(ids_BT, slice(0, T), lambda layer: attend_all), None)

    def _read_on(self, ids_BT: Tensor, memory: Cache, is_token_BT: Tensor | None) -> Reading:
        appending = memory.append(ids_BT.shape[1], is_token_BT)
        attend_all = self._attending(appending.places, appending.span, ids_BT.device)

        def attend_remembered(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend_all(q, *appending.write(layer, k, v))

        features_BTD = self._features(ids_BT, appending.places, lambda layer: partial(attend_remembered, layer))
        return Reading(features_BTD, appending.after)

    def _attending(self, places: slice | Tensor, span: int, device: torch.device) -> Attend:
        """The function for causal attention of the tokens at these positions to the first `span` keys."""
        dropout = self.config.attention_dropout if self.training else 0.0
        if isinstance(places, slice):
            if self.positions.slopes_H is None and places.stop - places.start in (1, span):
                # a single token sees all keys, and tokens from the beginning on need no mask but `is_causal`
                return partial(fused_attention, is_causal=places.stop - places.start > 1, dropout=dropout)
            places = torch.arange(places.start, places.stop, device=device)
        return partial(fused_attention, mask=self.positions.mask(places, span), dropout=dropout)

    def step(self, ids_B: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor) -> Tensor:
        """Read one token a row, and return its features [B, D]: `forward` with a cache, all of it on the device.

        Keys and values are written in place, at position lengths_B; the caller then adds 1 to lengths_B. Shapes and
        addresses stay the same from step to step, and no control flow depends on values, so that the step can be
        compiled, or captured as a CUDA graph and replayed.
        """
        places_B1 = lengths_B[:, None]
        mask = self.positions.mask(places_B1, keys_LBGSK.shape[3])

        def attend_in_place(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            write_at(places_B1, keys_LBGSK[layer], k)
            write_at(places_B1, values_LBGSK[layer], v)
            return single_query_attention(q, keys_LBGSK[layer], values_LBGSK[layer], mask)

        return self._features(ids_B[:, None], places_B1, lambda layer: partial(attend_in_place, layer))[:, 0]

    def embed(self, ids_BT: Tensor, places: slice | Tensor) -> Tensor:
        """x⁰ = E[id] + position."""
        x_BTD: Tensor = self.token_dropout(F.embedding(ids_BT, self.embedding), ids_BT, len(self.embedding))
        if self.config.scaled_embedding:
            x_BTD = x_BTD * math.sqrt(self.config.width)
        if self.positions.added_TD is not None:
            x_BTD = x_BTD + self.positions.added_TD[places]
        # in the working precision, since x is read and written more often than anything else
        return x_BTD.to(working_type(x_BTD))

    def _features(self, ids_BT: Tensor, places: slice | Tensor, attends: Attends) -> Tensor:
        """Norm(xᴸ): the features of tokens at these positions, where layer l attends by `attends(l)`."""
        x_BTD = self.embed(ids_BT, places)
        if self.config.embedding_dropout and self.training:
            x_BTD = F.dropout(x_BTD, self.config.embedding_dropout)
        rotation = self.positions.rotation(places)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, rotation, attends(layer))
        features_BTD: Tensor = self.norm(x_BTD)
        return features_BTD

    def flops_per_token(self) -> int:
        """Floating-point operations of training on a token of a full window.

        Each of N weights in matrix products is multiplied and added once forward, twice backward: 6N. Each query is
        multiplied with the keys of the window, and its weights with their values: 2 products forward and 4 backward
        of 2 · window · width, in each layer. The half that the mask hides is counted too, as is usual.
        """
        products = sum(p.numel() for p in self.blocks.parameters() if p.dim() == 2) + self.head.weight.numel()
        return 6 * products + 12 * self.config.layers * self.config.window * self.config.width
