"""What keeps recurrent networks from learning their text by heart (Merity and others 2018, AWD-LSTM).

All of it is for training: in evaluation the modules here give back what they were given.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class VariationalDropout(nn.Module):
    """Leaves out the same numbers at every time step of a sequence (Gal and Ghahramani 2016).

    With a new mask at each step, little of what a recurrent layer remembers would last.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, features_BTD: Tensor) -> Tensor:
        if not self.training or not self.share:
            return features_BTD
        # one mask for a row; what is kept grows by 1/(1 - share), so that the expectation stays
        mask_B1D = functional.dropout(torch.ones_like(features_BTD[:, :1]), self.share)
        return features_BTD * mask_B1D


class EmbeddingDropout(nn.Module):
    """Leaves out tokens: the same ones, everywhere in the batch."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, embedded_BTD: Tensor, ids_BT: Tensor, rows: int) -> Tensor:
        if not self.training or not self.share:
            return embedded_BTD
        # masking the rows of the table and looking them up afterwards is the same, and copies the table
        mask_V = functional.dropout(embedded_BTD.new_ones(rows), self.share)
        return embedded_BTD * mask_V[ids_BT][..., None]


def activation_penalty(
    raw_BTD: Tensor, dropped_BTD: Tensor, is_token_BT: Tensor, alpha: float, beta: float
) -> Tensor | None:
    """Keeps what a layer gives out small, and makes it change slowly; what stands in for padding does not count.

    AR  = α mean h_t²                            of what is left after dropout
    TAR = β mean (h_t - h_{t-1})²                of what there was before it
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
    """Over the places that count."""
    wide_BTD = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
    squares_BT = wide_BTD.square().mean(dim=2)
    return torch.where(counts_BT, squares_BT, 0.0).sum() / counts_BT.sum().clamp(min=1)
