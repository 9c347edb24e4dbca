"""What several networks are made of: the table of embeddings, hidden layers, and the way to the head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.neural.designs import Activation, padded_size
from chainrule.neural.head import Head


class Embedding(nn.Module):
    """E x: a vector for each token, whose numbers begin with variance 1.

    A table that is the head's as well begins smaller, because its products are logits; then what is looked up is
    scaled up instead.
    """

    def __init__(self, vocab_size: int, width: int, *, tied: bool) -> None:
        super().__init__()
        self.scale = math.sqrt(width) if tied else 1.0
        self.weight = nn.Parameter(torch.empty(padded_size(vocab_size), width))
        nn.init.normal_(self.weight, std=1 / self.scale)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight) * self.scale


def make_head(width: int, vocab_size: int, tied_to: nn.Parameter | None) -> tuple[nn.Module, Head]:
    """A head for features of this width, and what brings them to the width of the table it is tied to."""
    if tied_to is None:
        return nn.Identity(), Head(width, vocab_size, bias=True)
    inner = tied_to.shape[1]
    projection = nn.Identity() if inner == width else nn.Linear(width, inner, bias=False)
    return projection, Head(inner, vocab_size, tied_to=tied_to, bias=True)


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
