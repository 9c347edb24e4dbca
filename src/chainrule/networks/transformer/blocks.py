"""The Transformer block: its norms, its feed-forward part, and how they are put together with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.networks.layers import Linear, rms_norm
from chainrule.networks.transformer.attention import Attend, CrossAttention, SelfAttention, SourceView
from chainrule.networks.transformer.config import Activation, TransformerConfig
from chainrule.networks.transformer.positions import Rotation


class Norm(nn.Module):
    """Normalisation of each token's features, scaled by a learned gain g if there is one.

    layernorm:  (x - mean(x)) / sqrt(var(x) + ε) ⊙ g + b
    rmsnorm:    x / sqrt(mean(x²) + ε) ⊙ g
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_layernorm = config.norm == "layernorm"
        self.shape, self.eps = (config.width,), config.norm_eps
        self.weight = nn.Parameter(torch.ones(self.shape)) if config.gain else None
        has_bias = self.is_layernorm and config.gain and config.bias
        self.bias = nn.Parameter(torch.zeros(self.shape)) if has_bias else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.is_layernorm:
            return F.layer_norm(x_BTD, self.shape, self.weight, self.bias, self.eps)
        y_BTD = rms_norm(x_BTD, self.eps)
        return y_BTD if self.weight is None else y_BTD * self.weight


class FeedForward(nn.Module):
    """The feed-forward part, applied to each token by itself: f(x) = W₂ φ(W₁ x + b₁) + b₂.

    φ is that of `activate`.
    """

    SHARES: ClassVar[tuple[str, ...]] = ("dropout",)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation, self.dropout = config.activation, config.hidden_dropout
        halves = 2 if self.activation == "swiglu" else 1
        self.up = Linear(config.width, halves * config.hidden, bias=config.bias)
        self.out = Linear(config.hidden, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden = activate(self.activation, self.up(x_BTD))
        if self.dropout and self.training:
            hidden = F.dropout(hidden, self.dropout)
        result: Tensor = self.out(hidden)
        return result


def activate(activation: Activation, z: Tensor) -> Tensor:
    """φ(z).

    gelu:      z Φ(z), by tanh as in GPT-2
    gelu_erf:  z Φ(z), by the error function as in BERT
    relu:      max(0, z)
    relu2:     max(0, z)²
    swiglu:    z has two halves, a gate g and its input z: φ(g, z) = g σ(g) ⊙ z
    """
    if activation in ("gelu", "gelu_erf"):
        return F.gelu(z, approximate="tanh" if activation == "gelu" else "none")
    if activation == "swiglu":
        gate, through = z.chunk(2, dim=-1)
        return F.silu(gate) * through
    return F.relu(z).square() if activation == "relu2" else F.relu(z)


class Block(nn.Module):
    """Attention, then the feed-forward part, each with a residual connection and a norm.

    pre:   x + f(Norm(x))
    post:  Norm(x + f(x))

    With residual=false nothing is added: f(Norm(x)), or Norm(f(x)).

    The block of a decoder that looks at a source has cross-attention between the two.
    """

    SHARES: ClassVar[tuple[str, ...]] = ("dropout", "layer_dropout")

    def __init__(self, config: TransformerConfig, *, crosses: bool = False) -> None:
        super().__init__()
        self.is_pre, self.residual = config.placement == "pre", config.residual
        self.dropout, self.layer_dropout = config.dropout, config.layer_dropout
        self.attention_norm, self.attention = Norm(config), SelfAttention(config)
        self.cross_norm = Norm(config) if crosses else None
        self.cross = CrossAttention(config) if crosses else None
        self.is_unit = not crosses  # the keys and values of a source are computed outside of the block
        self.feedforward_norm, self.feedforward = Norm(config), FeedForward(config)

    def forward(
        self, x_BTD: Tensor, rotation: Rotation, attend: Attend, source: SourceView | None = None
    ) -> Tensor:
        """`source` is for cross-attention; None in a block that has none."""
        x_BTD = self._added(x_BTD, self.attention_norm, lambda x: self.attention(x, rotation, attend))
        if self.cross is not None and self.cross_norm is not None:
            cross = self.cross
            x_BTD = self._added(x_BTD, self.cross_norm, lambda x: cross(x, source))
        return self._added(x_BTD, self.feedforward_norm, self.feedforward)

    def _added(self, x_BTD: Tensor, norm: nn.Module, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x + f(x), normalised before or after; without a residual connection, f(x)."""
        new_BTD = self._dropped(f(norm(x_BTD) if self.is_pre else x_BTD))
        if self.residual:
            new_BTD = x_BTD + new_BTD
        return new_BTD if self.is_pre else norm(new_BTD)

    def _dropped(self, added_BTD: Tensor) -> Tensor:
        """f(x), in training with dropout of single features and, as `layer_dropout`, of whole rows."""
        if not self.training:
            return added_BTD
        if self.dropout:
            added_BTD = F.dropout(added_BTD, self.dropout)
        if self.layer_dropout:
            added_BTD = added_BTD * F.dropout(added_BTD.new_ones(len(added_BTD), 1, 1), self.layer_dropout)
        return added_BTD
