"""The network of a masked model: an encoder, and a head over the vocabulary for the hidden tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.networks.layers import Head, Table
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.transformer.blocks import Norm, activate
from chainrule.networks.transformer.settings import MaskedSettings
from chainrule.networks.transformer.stack import Encoder


class MaskedTransformer(Trainable):
    """A Transformer that reads a row with hidden tokens, in both directions, and predicts these."""

    def __init__(self, config: MaskedSettings, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        # one of the places in the window is that of the token before a row
        self.window = config.window - 1
        self.encoder = Encoder(config, vocab_size + 1)
        tied_to = self.encoder.embedding if config.tied else None
        self.head = Head(config.width, vocab_size, tied_to=tied_to, bias=True, extra=1)
        self.head_layer = HeadLayer(config) if config.head_layer else None
        if tied_to is None:
            nn.init.normal_(self.head.weight, std=config.initial_std)

    def table(self) -> Table:
        """Return the embedding table."""
        return self.encoder.table()

    def forward(self, ids_BS: Tensor, is_token_BS: Tensor | None = None) -> Tensor:
        """Return the features of each token, [B, S, D]; the first one of a row is the token before it."""
        features_BSD: Tensor = self.encoder(ids_BS, is_token_BS)
        return features_BSD

    def before_logits(self, features: Tensor) -> Tensor:
        """Return the input of the head: the features, through the layer before the logits if there is one."""
        return features if self.head_layer is None else self.head_layer(features)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of the vocabulary, [..., V]."""
        found: Tensor = self.head(self.before_logits(features))
        return found

    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of the hidden tokens after the inputs that `Masking` makes; PAD is not predicted."""
        ids_BS, is_token_BS = inputs if isinstance(inputs, tuple) else (inputs, None)
        features_BSD = self(ids_BS, is_token_BS)
        # only the hidden tokens reach the head. As many are taken from each row: shapes do not depend on values
        places_BP = first_targets(targets_BT, most_targets(targets_BT.shape[1], self.config.share))
        features_BPD = features_BSD.gather(1, (places_BP + 1)[..., None].expand(-1, -1, features_BSD.shape[2]))
        return BatchLoss(
            self.head.nats(self.before_logits(features_BPD), targets_BT.gather(1, places_BP)), None, None
        )

    def flops_per_token(self) -> float:
        """Return the floating-point operations of training for each token that is predicted.

        They are those of a `Transformer`; the encoder reads 1 / share tokens for each.
        """
        config = self.config
        products = sum(weight.numel() for weight in self.encoder.blocks.parameters() if weight.dim() == 2)
        reading = 6.0 * products + 12.0 * config.layers * config.window * config.width
        before = 0 if self.head_layer is None else self.head_layer.dense.weight.numel()
        return reading / config.share + 6.0 * (before + self.head.weight.numel())


class HeadLayer(nn.Module):
    """The layer before the logits, as BERT has it: Norm(φ(W h + b))."""

    def __init__(self, config: MaskedSettings) -> None:
        super().__init__()
        self.activation = config.activation
        self.dense = nn.Linear(config.width, config.width, bias=config.bias)
        nn.init.normal_(self.dense.weight, std=config.initial_std)
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)
        self.norm = Norm(config)

    def forward(self, features: Tensor) -> Tensor:
        normed: Tensor = self.norm(activate(self.activation, self.dense(features)))
        return normed


def most_targets(length: int, share: float) -> int:
    """Return the most tokens that are predicted in a row of that length."""
    return max(1, math.floor(length * share + 0.5 + 1e-6))


def first_targets(targets_BT: Tensor, count: int) -> Tensor:
    """Return the places of the first `count` targets of each row, in order; then places of PAD, if it has fewer."""
    columns_T = torch.arange(targets_BT.shape[1], device=targets_BT.device)
    keys_BT = torch.where(targets_BT != PAD, columns_T, columns_T + targets_BT.shape[1])
    places_BP: Tensor = keys_BT.topk(min(count, len(columns_T)), largest=False, sorted=True).indices
    return places_BP
