"""Regularisation: dropout and penalties that keep networks from overfitting (Merity and others 2018, AWD-LSTM).

All of it is for training: in evaluation the modules here return their input unchanged. A module names its shares of
dropout and its factors of penalties in `SHARES`, so that `regularise` can weaken them while the network is trained.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.networks.precision import wide_type


def regularise(network: nn.Module, strength: float) -> None:
    """Set all dropout and penalties of a network to `strength` times what its configuration says."""
    for module in network.modules():
        whole: dict[str, float] = module.__dict__.setdefault("whole_shares", {})
        for name in getattr(module, "SHARES", ()):
            setattr(module, name, strength * whole.setdefault(name, getattr(module, name)))


class Dropout(nn.Module):
    """Dropout of single features."""

    SHARES: ClassVar[tuple[str, ...]] = ("share",)

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, features: Tensor) -> Tensor:
        return functional.dropout(features, self.share) if self.training and self.share else features


class VariationalDropout(Dropout):
    """Dropout of the same features at every time step of a sequence (Gal and Ghahramani 2016).

    With a new mask at each step, a recurrent layer would soon lose its memory.
    """

    def forward(self, features_BTD: Tensor) -> Tensor:
        if not self.training or not self.share:
            return features_BTD
        # one mask per row; kept features are scaled by 1/(1 - share), so that the expectation stays the same
        mask_B1D = functional.dropout(torch.ones_like(features_BTD[:, :1]), self.share)
        return features_BTD * mask_B1D


class EmbeddingDropout(Dropout):
    """Dropout of whole embeddings: a token that is dropped is dropped everywhere in the batch."""

    def forward(self, embedded_BTD: Tensor, ids_BT: Tensor, rows: int) -> Tensor:  # type: ignore[override]
        if not self.training or not self.share:
            return embedded_BTD
        # masking the rows of the table before the lookup would give the same result, but copy the table
        mask_V = functional.dropout(embedded_BTD.new_ones(rows), self.share)
        return embedded_BTD * mask_V[ids_BT][..., None]


def activation_penalty(
    raw_BTD: Tensor, dropped_BTD: Tensor, is_token_BT: Tensor, alpha: float, beta: float
) -> Tensor | None:
    """Return the penalty AR + TAR, which keeps a layer's outputs small and makes them change slowly.

    Padding does not count; None if both factors are 0.

    AR  = α mean h_t²                            of the outputs after dropout
    TAR = β mean (h_t - h_{t-1})²                of the outputs before dropout
    """
    penalty = None
    if alpha:
        # AR = α mean h_t²
        penalty = alpha * _mean_square(dropped_BTD, is_token_BT)
    if beta and raw_BTD.shape[1] > 1:
        # TAR = β mean (h_t - h_{t-1})²
        change = beta * _mean_square(raw_BTD.diff(dim=1), is_token_BT[:, 1:])
        penalty = change if penalty is None else penalty + change
    return penalty


def _mean_square(x_BTD: Tensor, counts_BT: Tensor) -> Tensor:
    """Return the mean of x² over the positions where `counts_BT` is True."""
    wide_BTD = x_BTD.to(wide_type(x_BTD))
    squares_BT = wide_BTD.square().mean(dim=2)
    return torch.where(counts_BT, squares_BT, 0.0).sum() / counts_BT.sum().clamp(min=1)
