"""Reading ahead on a GPU by a CUDA graph: a fixed number of tokens of one row, and what may follow each of them.

Speculative decoding reads a few drafted tokens at once and keeps the first ones. To the kernels of step.py, the T
tokens of one row are T rows of one token each, whose keys and values lie in one place: a batch axis of stride 0.
Row t has read t tokens more than the first, so that it sees the keys of the tokens before it and no others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chainrule.inference.gpu.graph_sampling import GraphSampler
from chainrule.inference.gpu.step import FusedStep, is_available
from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import current_device


class RowReader:
    """Reads `tokens` tokens of one row after those in the cache of a sampler."""

    def __init__(self, network: Transformer, sampler: GraphSampler, tokens: int) -> None:
        self.network, self.sampler, self.tokens = network, sampler, tokens
        self.fused = FusedStep(network, tokens) if is_available(network, tokens) else None

    def features(self, ids_T: Tensor, places_T: Tensor) -> Tensor:
        """The features of tokens at successive places; keys and values are written in place."""
        keys_L1GSK, values_L1GSK = self.sampler.keys_LBGSK, self.sampler.values_LBGSK
        if self.fused is None:
            return self.network.steps(ids_T[None], keys_L1GSK, values_L1GSK, places_T[:1])[0]
        shape = (-1, self.tokens, -1, -1, -1)
        return self.fused(ids_T, keys_L1GSK.expand(shape), values_L1GSK.expand(shape), places_T)


class GraphReader:
    """The captured reading of `tokens` tokens of one row; the cache lives where that of a sampler does."""

    def __init__(self, network: Transformer, sampler: GraphSampler, tokens: int) -> None:
        self.reader, self.sampler, self.tokens = RowReader(network, sampler, tokens), sampler, tokens
        weight = network.head.weight
        self.ids_T = torch.zeros(tokens, dtype=torch.int64, device=weight.device)
        self.further_T = torch.arange(tokens, device=weight.device)
        self.features_TD = torch.zeros(tokens, weight.shape[1], dtype=weight.dtype, device=weight.device)
        self.log_probs_TV = torch.zeros(0)
        with torch.no_grad(), current_device(weight.device):
            self._replay = sampler.capture(self._step, tokens)

    @torch.no_grad()
    def read(self, cache: Cache, ids_1T: Tensor) -> tuple[Cache, Tensor, Tensor]:
        """The cache after the tokens, their features [1, T, D], and ln p of what follows each one, [1, T, V]."""
        sampler = self.sampler
        with current_device(sampler.keys_LBGSK.device):
            buffer = sampler.adopt(cache, 1)
            sampler.buffers.lengths_B.copy_(cache.lengths_B)
            self.ids_T.copy_(ids_1T[0])
            self._replay()
            buffer.version += 1
            lengths_B = cache.lengths_B + self.tokens
            longest, is_uniform = cache.longest + self.tokens, cache.is_uniform
            after = Cache(buffer, buffer.version, lengths_B, longest, is_uniform, cache.window)
            return after, self.features_TD[None].clone(), self.log_probs_TV[None].clone()

    def _step(self) -> None:
        """Read the tokens of `ids_T` after as many as the sampler's buffers say; the results stay in place."""
        places_T = self.sampler.buffers.lengths_B + self.further_T
        self.features_TD.copy_(self.reader.features(self.ids_T, places_T))
        self.log_probs_TV = self.sampler.log_probs(self.features_TD)
