"""The output layer: from features to logits, and the loss of the target tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.networks.config import padded_size
from chainrule.networks.loss import best_nats


class Head(nn.Module):
    """logits = W h + b; W may be the table of the embedding (tied).

    W is padded with a few rows more than there are tokens, for speed. The padding rows are part of the softmax in
    training, where their probability soon is nothing, and are cut off whenever the network is measured or
    probabilities are given out. So are extra ids above the vocabulary, such as that of [MASK], unless they are
    targets of the training: then they count when the network is measured.
    """

    def __init__(
        self,
        width: int,
        vocab_size: int,
        *,
        tied_to: nn.Parameter | None = None,
        bias: bool = False,
        extra: int = 0,
        extra_targets: bool = False,
    ) -> None:
        """`extra` ids follow those of the vocabulary; `extra_targets`: they are predicted in training too."""
        super().__init__()
        self.vocab_size = vocab_size
        self.measured = vocab_size + (extra if extra_targets else 0)
        self.float8 = False  # whether training multiplies in 8 bits; only the newest GPUs can
        rows = padded_size(vocab_size + extra)
        self.weight = nn.Parameter(torch.empty(rows, width)) if tied_to is None else tied_to
        if tied_to is None:
            nn.init.normal_(self.weight, std=0.02)
        elif tied_to.shape != (rows, width):
            raise ValueError(f"a tied table should be {[rows, width]}, not {list(tied_to.shape)}")
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """The logits of the vocabulary, without the padding rows: [..., V]."""
        return F.linear(features, self.weight, self.bias)[..., : self.vocab_size]

    def nats(self, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """Σ -ln softmax(logits)[target], over the targets that are tokens."""
        features_ND, targets_N = features_BTD.flatten(0, -2), targets_BT.flatten()
        if self.training:
            return best_nats(features_ND, self.weight, self.bias, targets_N, self.float8)
        bias_V = None if self.bias is None else self.bias[: self.measured]
        return best_nats(features_ND, self.weight[: self.measured], bias_V, targets_N)
