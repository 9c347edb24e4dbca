"""Attention of a recurrent decoder: how well each state of the encoder fits a state of the decoder.

    additive   score(h, s) = vᵀ tanh(W h + U s)      Bahdanau and others 2015
    dot        score(h, s) = hᵀ s                    Luong and others 2015
    general    score(h, s) = hᵀ W s                  Luong and others 2015
    scaled     score(h, s) = hᵀ s / sqrt(D)          Vaswani and others 2017

    α_ts = softmax_s score(h_t, s_s)                 the attention weights: a row sums to one
    c_t  = Σ_s α_ts s_s                              the context: the decoder's view of the source at step t

h_t is a state of the decoder, s_s one of the encoder, both of D numbers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from chainrule.networks.seq2seq.config import Attention


class Alignment(nn.Module):
    """The scores of one kind of attention."""

    def __init__(self, kind: Attention, width: int) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        if kind == "additive":
            self.query = nn.Linear(width, width, bias=False)
            self.v = nn.Parameter(torch.empty(width).normal_(std=width**-0.5))
        if kind in ("additive", "general"):
            self.key = nn.Linear(width, width, bias=kind == "additive")

    def keys(self, states_NSD: Tensor) -> Tensor:
        """Return the keys of the encoder states, which are computed once: U s, W s or s itself."""
        keys_NSD: Tensor = self.key(states_NSD) if self.kind in ("additive", "general") else states_NSD
        return keys_NSD

    def scores(self, h_NTD: Tensor, keys_NSD: Tensor) -> Tensor:
        """score(h_t, s_s) for every pair, [N, T, S]."""
        if self.kind == "additive":
            # vᵀ tanh(W h + U s)
            sums_NTSD = self.query(h_NTD)[:, :, None] + keys_NSD[:, None]
            scores_NTS: Tensor = torch.tanh(sums_NTSD) @ self.v.to(sums_NTSD.dtype)
            return scores_NTS
        scores_NTS = h_NTD @ keys_NSD.transpose(1, 2)
        return scores_NTS / math.sqrt(self.width) if self.kind == "scaled" else scores_NTS

    def forward(
        self, h_NTD: Tensor, keys_NSD: Tensor, states_NSD: Tensor, is_token_NS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the contexts c_t, [N, T, D], and the attention weights α_ts, [N, T, S]."""
        scores_NTS = self.scores(h_NTD, keys_NSD).masked_fill(~is_token_NS[:, None], -math.inf)
        # α_ts = softmax_s score(h_t, s_s)
        weights_NTS = scores_NTS.softmax(dim=-1)
        # c_t = Σ_s α_ts s_s
        return weights_NTS.to(states_NSD.dtype) @ states_NSD, weights_NTS
