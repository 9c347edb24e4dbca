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
from chainrule.devices import current_device
from chainrule.neural.cache import Buffer, Cache
from chainrule.neural.gpu_choice import Desk, FusedChoice, Plan, plan_of
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


class Recorded(NamedTuple):
    """A step that can be played."""

    play: Callable[[], None]
    step: Callable[[], None]
    """What was recorded; kept because the arrays that it has of its own are what is played with."""


class Playback:
    """Recorded steps of one network, for batches of at most one size."""

    def __init__(self, network: Transformer, log_probs: LogProbs, batch_size: int, bos: int) -> None:
        self.log_probs, self.bos = log_probs, bos
        weight = network.head.weight
        empty = network.begin(batch_size, network.window)
        self.keys_LBGSK, self.values_LBGSK = empty.buffer.keys_LBGSK, empty.buffer.values_LBGSK
        self.owner: weakref.ref[Buffer] = weakref.ref(empty.buffer)
        rows, device = (batch_size,), weight.device
        self.desk = Desk(
            features_BD=torch.zeros(*rows, weight.shape[1], dtype=weight.dtype, device=device),
            going_B=torch.ones(rows, dtype=torch.bool, device=device),
            uniforms_BT=torch.zeros(*rows, MOST_STEPS, dtype=torch.float64, device=device),
            tokens_BT=torch.zeros(*rows, MOST_STEPS, dtype=torch.int64, device=device),
            scores_BT=torch.zeros(*rows, MOST_STEPS, device=device),
            ids_BW=torch.zeros(*rows, network.config.window, dtype=torch.int64, device=device),
            lengths_B=empty.lengths_B,
            column_1=torch.zeros(1, dtype=torch.int64, device=device),
        )
        is_fused = is_available(network, batch_size)
        self.network_step = FusedStep(network, batch_size) if is_fused else network.step
        self.recordings: dict[Any, Recorded] = {}
        self.steps = 0

    @torch.no_grad()
    def write(
        self, cache: Cache, window: Window, features_BD: Tensor, choose: Choose, uniforms_BT: np.ndarray
    ) -> Written:
        """As many tokens a row as there are columns."""
        with current_device(self.keys_LBGSK.device):
            return self._write(cache, window, features_BD, choose, uniforms_BT)

    def _write(
        self, cache: Cache, window: Window, features_BD: Tensor, choose: Choose, uniforms_BT: np.ndarray
    ) -> Written:
        desk, (rows, steps) = self.desk, uniforms_BT.shape
        longest = window.longest + steps
        play = self._recorded(choose).play
        buffer = self._adopt(cache, rows)
        # rows that are not asked for are as rows that have ended: what they write, nobody reads
        desk.lengths_B.zero_()
        desk.going_B.zero_()
        desk.lengths_B[:rows] = cache.lengths_B
        desk.ids_BW[:rows] = window.ids_BW
        desk.features_BD[:rows] = features_BD
        desk.going_B[:rows] = True
        desk.column_1.zero_()
        desk.uniforms_BT[:rows, :steps] = torch.from_numpy(uniforms_BT).to(desk.uniforms_BT.device)
        for _ in range(steps):
            play()
        self.steps += steps
        buffer.version += 1
        lengths_B = desk.lengths_B[:rows].clone()
        after = Cache(buffer, buffer.version, lengths_B, longest, False, cache.window)
        seen = Window(desk.ids_BW[:rows].clone(), lengths_B, longest, False)
        tokens_BT, scores_BT = desk.tokens_BT[:rows, :steps].clone(), desk.scores_BT[:rows, :steps].clone()
        return Written(after, seen, desk.features_BD[:rows].clone(), tokens_BT, scores_BT)

    def _adopt(self, cache: Cache, rows: int) -> Buffer:
        """The keys and values of a cache, at our addresses; who has them there now gets a copy."""
        owner = self.owner()
        if owner is not None and owner is cache.buffer and owner.version == cache.version:
            return owner
        if owner is not None:
            owner.keys_LBGSK, owner.values_LBGSK = owner.keys_LBGSK.clone(), owner.values_LBGSK.clone()
        used = min(cache.longest, cache.buffer.capacity)
        buffer = Buffer(self.keys_LBGSK[:, :rows], self.values_LBGSK[:, :rows])
        buffer.keys_LBGSK[:, :, :, :used] = cache.buffer.keys_LBGSK[:, :, :, :used]
        buffer.values_LBGSK[:, :, :, :used] = cache.buffer.values_LBGSK[:, :, :, :used]
        self.owner = weakref.ref(buffer)
        return buffer

    def _recorded(self, choose: Choose) -> Recorded:
        """The step as something to play; recorded now if it was not."""
        plan = plan_of(choose) if isinstance(self.network_step, FusedStep) else None
        on_gpu = self.desk.going_B.device.type == "cuda"
        is_worth_compiling = plan is None and on_gpu and self.steps >= _STEPS_THAT_REPAY
        key = choose, is_worth_compiling
        if key not in self.recordings:
            if len(self.recordings) >= _RECORDINGS:
                del self.recordings[next(iter(self.recordings))]
            step = self._by_loops(plan) if plan else self._by_torch(*key)
            self.recordings[key] = Recorded(self._record(step), step)
        return self.recordings[key]

    def _record(self, step: Callable[[], None]) -> Callable[[], None]:
        """A graph of the step; where there are no graphs, the step itself."""
        if self.desk.lengths_B.device.type != "cuda":
            return step
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside), warnings.catch_warnings():
            # the compiler warns of functions it looks into although they remember their results
            warnings.simplefilter("ignore", UserWarning)
            self._try_out(step)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def _try_out(self, step: Callable[[], None]) -> None:
        """Take the step, since libraries choose and compile kernels when they are first called.

        Somebody's keys and values may lie here: those of the first position, which is written to, are put back.
        """
        stores = self.keys_LBGSK, self.values_LBGSK
        first = [store_LBGSK[:, :, :, :1].clone() for store_LBGSK in stores]
        for _ in range(3):
            self.desk.lengths_B.zero_()
            self.desk.column_1.zero_()
            step()
        for store_LBGSK, known_LBG1K in zip(stores, first, strict=True):
            store_LBGSK[:, :, :, :1] = known_LBG1K

    def _by_loops(self, plan: Plan) -> Callable[[], None]:
        """A step, for a choice that has a plan."""
        assert isinstance(self.network_step, FusedStep)
        step = FusedChoice(plan, self.network_step, self.desk, self.bos)
        return lambda: step(self.keys_LBGSK, self.values_LBGSK)

    def _by_torch(self, choose: Choose, is_compiled: bool) -> Callable[[], None]:
        """A step, for any choice."""

        def decide(features_BD: Tensor, uniforms_B: Tensor, going_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return choose(self.log_probs(features_BD), uniforms_B, going_B)

        best = torch.compile(decide, dynamic=False) if is_compiled else decide
        return lambda: self._step(best)

    def _step(self, decide: Choose) -> None:
        desk = self.desk
        uniforms_B = desk.uniforms_BT.index_select(1, desk.column_1)[:, 0]
        tokens_B, scores_B, going_B = decide(desk.features_BD, uniforms_B, desk.going_B)
        desk.tokens_BT.index_copy_(1, desk.column_1, tokens_B[:, None])
        desk.scores_BT.index_copy_(1, desk.column_1, scores_B[:, None].float())
        desk.going_B.copy_(going_B)
        is_token_B = tokens_B != PAD
        ids_B = tokens_B.clamp(min=0)
        desk.ids_BW.scatter_(1, desk.lengths_B[:, None], ids_B[:, None])
        # what an ended row writes lies behind its end, where nothing looks
        features_BD = self.network_step(ids_B, self.keys_LBGSK, self.values_LBGSK, desk.lengths_B)
        desk.features_BD.copy_(torch.where(is_token_B[:, None], features_BD, desk.features_BD))
        desk.lengths_B.add_(is_token_B)
        desk.column_1.add_(1)
