"""Layers that several networks share: the embedding table, hidden layers, and the projection to the head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.networks.config import Activation, padded_size
from chainrule.networks.head import Head


class Embedding(nn.Module):
    """E x: a vector for each token, initialised with variance 1.

    A table tied to the head is initialised with a smaller variance, because its products are logits; its vectors
    are scaled up at the lookup instead.
    """

    def __init__(self, vocab_size: int, width: int, *, tied: bool) -> None:
        super().__init__()
        self.scale = math.sqrt(width) if tied else 1.0
        self.weight = nn.Parameter(torch.empty(padded_size(vocab_size), width))
        nn.init.normal_(self.weight, std=1 / self.scale)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight) * self.scale


def make_head(
    width: int, vocab_size: int, tied_to: nn.Parameter | None, *, extra: int = 0, extra_targets: bool = False
) -> tuple[nn.Module, Head]:
    """A projection of features to the width of the table that the head is tied to, if any; and the head."""
    if tied_to is None:
        return nn.Identity(), Head(width, vocab_size, bias=True, extra=extra, extra_targets=extra_targets)
    inner = tied_to.shape[1]
    projection = nn.Identity() if inner == width else nn.Linear(width, inner, bias=False)
    head = Head(inner, vocab_size, tied_to=tied_to, bias=True, extra=extra, extra_targets=extra_targets)
    return projection, head


class HiddenLayers(nn.Module):
    """h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)."""

    def __init__(self, width: int, hidden: int, layers: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        linears = [nn.Linear(hidden if i else width, hidden) for i in range(layers)]
        for linear in linears:
            nn.init.xavier_normal_(linear.weight, gain=nn.init.calculate_gain(activation))
            nn.init.zeros_(linear.bias)
        self.linears = nn.ModuleList(linears)

    def forward(self, features: Tensor) -> Tensor:
        f = getattr(torch, self.activation)
        for i, linear in enumerate(self.linears):
            new = self.dropout(f(linear(features)))
            features = features + new if i else new
        return features


def last_of_rows(features_BTD: Tensor, lengths_B: Tensor | None, before_BD: Tensor) -> Tensor:
    """Return the features of each row's last token; those of `before_BD` where a row has none.

    Row b has `lengths_B[b]` tokens, then padding; None: there is no padding.
    """
    if lengths_B is None:
        return features_BTD[:, -1]
    last_B11 = (lengths_B - 1).clamp(min=0)[:, None, None].expand(-1, 1, features_BTD.shape[2])
    last_BD = features_BTD.gather(1, last_B11)[:, 0]
    return torch.where(lengths_B[:, None] > 0, last_BD, before_BD.to(features_BTD.dtype))
