"""Sampling on a GPU: one step is recorded, then played back without the host.

A small network's step takes the GPU less time than it takes the host to ask for it. So everything a step needs lies
at fixed addresses, the step is recorded once as a graph (probabilities, choice, token, keys and values, features),
and is then repeated as a whole. When a model has written much, how it chooses is compiled too.

The state that comes out is a value like any other: whoever holds an older one keeps what it knows.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.neural.cache import Buffer, Cache
from chainrule.neural.gpu_step import FusedStep, is_available
from chainrule.neural.transformer import Transformer
from chainrule.neural.windows import Window

Choose = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
LogProbs = Callable[[Tensor], Tensor]

MOST_STEPS = 64
"""Tokens a row that can be asked for at once."""
_RECORDINGS = 8
_STEPS_THAT_REPAY = 2048  # after so many, compiling how tokens are chosen takes less time than it saves


class Written(NamedTuple):
    """What was written, and what is known after it."""

    cache: Cache
    window: Window
    features_BD: Tensor
    tokens_BT: Tensor
    scores_BT: Tensor


class Playback:
    """Recorded steps of one network, for batches of one size."""

    def __init__(self, network: Transformer, log_probs: LogProbs, batch_size: int) -> None:
        self.network, self.log_probs = network, log_probs
        weight = network.head.weight
        empty = network.begin(batch_size, network.window)
        self.keys_LBGSK, self.values_LBGSK = empty.buffer.keys_LBGSK, empty.buffer.values_LBGSK
        self.owner: weakref.ref[Buffer] = weakref.ref(empty.buffer)
        self.lengths_B = empty.lengths_B
        device = weight.device
        self.ids_BW = torch.zeros(batch_size, network.config.window, dtype=torch.int64, device=device)
        self.features_BD = torch.zeros(batch_size, weight.shape[1], dtype=weight.dtype, device=device)
        self.going_B = torch.ones(batch_size, dtype=torch.bool, device=device)
        self.uniforms_BT = torch.zeros(batch_size, MOST_STEPS, dtype=torch.float64, device=device)
        self.tokens_BT = torch.zeros(batch_size, MOST_STEPS, dtype=torch.int64, device=device)
        self.scores_BT = torch.zeros(batch_size, MOST_STEPS, device=device)
        self.column_1 = torch.zeros(1, dtype=torch.int64, device=device)
        is_fused = is_available(network, batch_size)
        self.network_step = FusedStep(network, batch_size) if is_fused else network.step
        self.recordings: dict[Any, Callable[[], None]] = {}
        self.steps = 0

    @torch.no_grad()
    def write(
        self, cache: Cache, window: Window, features_BD: Tensor, choose: Choose, uniforms_BT: np.ndarray
    ) -> Written:
        """As many tokens a row as there are columns."""
        steps = uniforms_BT.shape[1]
        longest = window.longest + steps
        step = self._recorded(choose)
        buffer = self._adopt(cache)
        self.lengths_B.copy_(cache.lengths_B)
        self.ids_BW.copy_(window.ids_BW)
        self.features_BD.copy_(features_BD)
        self.going_B.fill_(True)
        self.column_1.zero_()
        self.uniforms_BT[:, :steps].copy_(torch.from_numpy(uniforms_BT))
        for _ in range(steps):
            step()
        self.steps += steps
        buffer.version += 1
        lengths_B = self.lengths_B.clone()
        after = Cache(buffer, buffer.version, lengths_B, longest, False, cache.window)
        seen = Window(self.ids_BW.clone(), lengths_B, longest, False)
        tokens_BT, scores_BT = self.tokens_BT[:, :steps].clone(), self.scores_BT[:, :steps].clone()
        return Written(after, seen, self.features_BD.clone(), tokens_BT, scores_BT)

    def _adopt(self, cache: Cache) -> Buffer:
        """The keys and values of a cache, at our addresses; who has them there now gets a copy."""
        owner = self.owner()
        if owner is not None and owner is cache.buffer and owner.version == cache.version:
            return owner
        if owner is not None:
            owner.keys_LBGSK, owner.values_LBGSK = self.keys_LBGSK.clone(), self.values_LBGSK.clone()
        used = min(cache.longest, cache.buffer.capacity)
        self.keys_LBGSK[:, :, :, :used] = cache.buffer.keys_LBGSK[:, :, :, :used]
        self.values_LBGSK[:, :, :, :used] = cache.buffer.values_LBGSK[:, :, :, :used]
        buffer = Buffer(self.keys_LBGSK, self.values_LBGSK)
        self.owner = weakref.ref(buffer)
        return buffer

    def _recorded(self, choose: Choose) -> Callable[[], None]:
        """The step as something to play; recorded now if it was not."""
        is_worth_compiling = self.steps >= _STEPS_THAT_REPAY and self.going_B.device.type == "cuda"
        key = choose, is_worth_compiling
        if key not in self.recordings:
            if len(self.recordings) >= _RECORDINGS:
                del self.recordings[next(iter(self.recordings))]

            def decide(features_BD: Tensor, uniforms_B: Tensor, going_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                return choose(self.log_probs(features_BD), uniforms_B, going_B)

            decide_fast = torch.compile(decide, dynamic=False) if is_worth_compiling else decide
            with warnings.catch_warnings():
                # the compiler warns of functions it looks into although they remember their results
                warnings.simplefilter("ignore", UserWarning)
                self.recordings[key] = self._record(lambda: self._step(decide_fast))
        return self.recordings[key]

    def _record(self, step: Callable[[], None]) -> Callable[[], None]:
        """A graph of the step; where there are no graphs, the step itself."""
        if self.lengths_B.device.type != "cuda":
            return step
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):  # libraries choose and compile kernels when they are first called
                self.lengths_B.zero_()
                self.column_1.zero_()
                step()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def _step(self, decide: Choose) -> None:
        uniforms_B = self.uniforms_BT.index_select(1, self.column_1)[:, 0]
        tokens_B, scores_B, going_B = decide(self.features_BD, uniforms_B, self.going_B)
        self.tokens_BT.index_copy_(1, self.column_1, tokens_B[:, None])
        self.scores_BT.index_copy_(1, self.column_1, scores_B[:, None].float())
        self.going_B.copy_(going_B)
        is_token_B = tokens_B != PAD
        ids_B = tokens_B.clamp(min=0)
        self.ids_BW.scatter_(1, self.lengths_B[:, None], ids_B[:, None])
        # what an ended row writes lies behind its end, where nothing looks
        features_BD = self.network_step(ids_B, self.keys_LBGSK, self.values_LBGSK, self.lengths_B)
        self.features_BD.copy_(torch.where(is_token_B[:, None], features_BD, self.features_BD))
        self.lengths_B += is_token_B
        self.column_1 += 1
