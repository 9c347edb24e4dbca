"""Embedding, positions and blocks, which decoders and encoders share; and the encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.networks.config import padded_size
from chainrule.networks.layers import Table
from chainrule.networks.precision import working_type
from chainrule.networks.regularise import EmbeddingDropout
from chainrule.networks.transformer.attention import Attend, SourceView, fused_attention
from chainrule.networks.transformer.blocks import Block, Norm
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.positions import Positions

Attends: TypeAlias = Callable[[int], Attend]
"""The attention function of each layer, by the layer's index."""
Views: TypeAlias = Callable[[int], SourceView] | None
"""The view that each layer of a decoder has of a source, by the layer's index; None without a source."""


class Layers(nn.Module):
    """Positions and blocks: features in, features out."""

    SHARES: ClassVar[tuple[str, ...]] = ("attention_dropout", "embedding_dropout")
    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self._make(config, crosses=False)

    def _make(self, config: TransformerConfig, *, crosses: bool) -> None:
        self.config = config
        self.attention_dropout, self.embedding_dropout = config.attention_dropout, config.embedding_dropout
        self.positions = Positions(config)
        self.embedding_norm = Norm(config) if config.embedding_norm else None
        self.blocks = nn.ModuleList(Block(config, crosses=crosses) for _ in range(config.layers))
        # pre-norm blocks do not normalise their sum: a norm after the last one does
        self.norm = Norm(config) if config.placement == "pre" else nn.Identity()

    @torch.no_grad()
    def initialise(self, *tables: Tensor) -> None:
        """Draw the tables and the weights from N(0, σ²).

        Weights whose output is added to x are smaller the more of them there are, or 0.
        """
        config = self.config
        for table in tables:
            nn.init.normal_(table, std=config.initial_std)
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() == 2:
                scale = config.added_scale if name.endswith(".out.weight") else 1.0
                nn.init.normal_(parameter, std=scale * config.initial_std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def placed(self, x_BTD: Tensor, places: slice | Tensor) -> Tensor:
        """Return x + position if positions are added, normalised if the design has a norm there."""
        if self.positions.added_TD is not None:
            x_BTD = x_BTD + self.positions.added_TD[places]
        if self.embedding_norm is not None:
            x_BTD = self.embedding_norm(x_BTD)
        # in the working precision, since x is read and written more often than anything else
        return x_BTD.to(working_type(x_BTD))

    def through(self, x_BTD: Tensor, places: slice | Tensor, attends: Attends, source: Views = None) -> Tensor:
        """Return Norm(xᴸ), the output of the blocks for x⁰ at these positions; layer l attends by `attends(l)`."""
        if self.embedding_dropout and self.training:
            x_BTD = F.dropout(x_BTD, self.embedding_dropout)
        rotation = self.positions.rotation(places)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, rotation, attends(layer), None if source is None else source(layer))
        features_BTD: Tensor = self.norm(x_BTD)
        return features_BTD

    def check_fits(self, tokens: int) -> None:
        """Refuse more tokens than there are positions."""
        if self.config.window < tokens:
            raise ValueError(
                f"a window of {self.config.window} tokens was given {tokens}: read the last of them only"
            )

    def seeing_all(self, x_BSD: Tensor, is_token_BS: Tensor | None) -> Tensor:
        """Return the same for x⁰ of whole rows, where each token attends to all tokens of its row.

        None: there is no padding. The features of padding mean nothing.
        """
        B, S, _ = x_BSD.shape
        self.check_fits(S)
        if is_token_BS is None and self.positions.slopes_H is not None:
            is_token_BS = torch.ones((B, S), dtype=torch.bool, device=x_BSD.device)
        mask = None if is_token_BS is None else self.positions.mask_of_tokens(is_token_BS)
        dropout = self.attention_dropout if self.training else 0.0
        attend = partial(fused_attention, mask=mask, dropout=dropout, is_usual=self.config.window == S)
        return self.through(x_BSD, slice(0, S), lambda layer: attend)


class Stack(Layers):
    """x⁰ = E[id] + position, or the norm of that; then the blocks: features of tokens."""

    def __init__(
        self,
        config: TransformerConfig,
        vocab_size: int,
        *,
        crosses: bool = False,
        embedding: nn.Parameter | None = None,
    ) -> None:
        """`crosses`: blocks attend to a source too. `embedding` is the table of another stack, to share."""
        nn.Module.__init__(self)
        table = torch.empty(padded_size(vocab_size), config.width)
        self.embedding = nn.Parameter(table) if embedding is None else embedding
        self.token_dropout = EmbeddingDropout(config.token_dropout)
        self._make(config, crosses=crosses)

    def table(self) -> Table:
        """Return the embedding table."""
        return Table(self.embedding, math.sqrt(self.config.width) if self.config.scaled_embedding else 1.0, "width")

    def embed(self, ids_BT: Tensor, places: slice | Tensor) -> Tensor:
        """x⁰ = E[id] + position, or the norm of that."""
        x_BTD: Tensor = self.token_dropout(F.embedding(ids_BT, self.embedding), ids_BT, len(self.embedding))
        if self.config.scaled_embedding:
            x_BTD = x_BTD * math.sqrt(self.config.width)
        return self.placed(x_BTD, places)

    def features(self, ids_BT: Tensor, places: slice | Tensor, attends: Attends, source: Views = None) -> Tensor:
        """Return Norm(xᴸ), the features of tokens at these positions; the arguments are those of `through`."""
        return self.through(self.embed(ids_BT, places), places, attends, source)


class Encoder(Stack):
    """An encoder: every token attends to all tokens of its row, those before it and those after it."""

    def __init__(
        self, config: TransformerConfig, vocab_size: int, *, embedding: nn.Parameter | None = None
    ) -> None:
        super().__init__(config, vocab_size, embedding=embedding)
        self.initialise(*([self.embedding] if embedding is None else []))
        self.is_frozen = False

    def freeze(self) -> None:
        """Leave the weights as they are: training computes no gradients of them, and leaves out no features."""
        self.is_frozen = True
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        return super().train(mode and not self.is_frozen)

    def forward(self, ids_BS: Tensor, is_token_BS: Tensor | None = None) -> Tensor:
        """Return the features of each token, [B, S, D]; None: there is no padding, whose features mean nothing."""
        self.check_fits(ids_BS.shape[1])
        return self.seeing_all(self.embed(ids_BS, slice(0, ids_BS.shape[1])), is_token_BS)
