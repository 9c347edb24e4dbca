"""Sampling and reading on a GPU by CUDA graphs: one step is captured, then replayed without the host.

A small network's step takes the GPU less time than the host needs to launch its kernels. So everything a step needs
lies at fixed addresses, the step is captured once as a CUDA graph (probabilities, choice, token, keys and values,
features), and is then replayed as a whole. Once a model has sampled much, the choice of tokens is compiled too.

The state after a step is a value like any other: older states stay valid.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.inference.gpu.choice import FusedChoice, StepBuffers, TopKPlan, plan_of
from chainrule.inference.gpu.step import FusedStep, is_available
from chainrule.inference.state import NeuralState, Window
from chainrule.networks.transformer.cache import Buffer, Cache
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import current_device, has_triton

Decide: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
LogProbs: TypeAlias = Callable[[Tensor], Tensor]

MOST_STEPS = 64
"""The most tokens a row that one call can write."""
_MOST_CAPTURED = 8
_STEPS_THAT_REPAY = 2048  # after this many steps, compiling the choice of tokens takes less time than it saves


class GraphSampler:
    """Captured steps of one network, for batches of at most `batch_size` rows."""

    def __init__(self, network: Transformer, log_probs: LogProbs, batch_size: int, bos: int) -> None:
        self.log_probs, self.bos = log_probs, bos
        weight = network.head.weight
        empty = network.begin(batch_size, network.window)
        self.keys_LBGSK, self.values_LBGSK = empty.buffer.keys_LBGSK, empty.buffer.values_LBGSK
        self.owner: weakref.ref[Buffer] = weakref.ref(empty.buffer)
        self.buffers = StepBuffers.of_size(batch_size, MOST_STEPS, network.config.window, weight.detach())
        self.on_gpu = weight.device.type == "cuda"
        is_fused = is_available(network, batch_size)
        self.network_step = FusedStep(network, batch_size) if is_fused else network.step
        self.captured: dict[Any, tuple[Callable[[], None], Callable[[], None]]] = {}
        """The replay of each captured step, and the step, which owns arrays that the CUDA graph uses."""
        self.steps = 0
        self.compiles = has_triton()
        """True if choices of tokens can be compiled; False once one could not."""

    @torch.no_grad()
    def write(
        self, cache: Cache, window: Window, features_BD: Tensor, choose: Choose, uniforms_BT: np.ndarray
    ) -> tuple[NeuralState, Tensor, Tensor]:
        """Sample a token a row for each column of `uniforms_BT`, by these random numbers.

        Return the state after the tokens, the tokens [B, T], and ln p of each.
        """
        buffers, (rows, steps) = self.buffers, uniforms_BT.shape
        with current_device(self.keys_LBGSK.device):
            longest = window.longest + steps
            replay = self._captured(choose)
            buffer = self.adopt(cache, rows)
            # surplus rows are like rows that have ended: nothing reads their tokens
            buffers.lengths_B.zero_()
            buffers.active_B.zero_()
            buffers.lengths_B[:rows] = cache.lengths_B
            buffers.ids_BW[:rows] = window.ids_BW
            buffers.features_BD[:rows] = features_BD
            buffers.active_B[:rows] = True
            buffers.column_1.zero_()
            buffers.uniforms_BT[:rows, :steps] = torch.from_numpy(uniforms_BT).to(buffers.uniforms_BT.device)
            for _ in range(steps):
                replay()
            self.steps += steps
            buffer.version += 1
            lengths_B = buffers.lengths_B[:rows].clone()
            after = Cache(buffer, buffer.version, lengths_B, longest, False, cache.window)
            seen = Window(buffers.ids_BW[:rows].clone(), lengths_B, longest, False)
            state = NeuralState(after, buffers.features_BD[:rows].clone(), seen)
            return state, buffers.tokens_BT[:rows, :steps].clone(), buffers.scores_BT[:rows, :steps].clone()

    def adopt(self, cache: Cache, rows: int) -> Buffer:
        """Return a buffer at the fixed addresses with the keys and values of a cache.

        Another buffer that lives there moves to a copy of its arrays.
        """
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

    def _captured(self, choose: Choose) -> Callable[[], None]:
        """Return the replay of the step that chooses tokens by `choose`, which is captured at its first use."""
        plan = plan_of(choose) if isinstance(self.network_step, FusedStep) else None
        is_worth_compiling = plan is None and self.on_gpu and self.steps >= _STEPS_THAT_REPAY and self.compiles
        key = choose, is_worth_compiling
        if key not in self.captured:
            if len(self.captured) >= _MOST_CAPTURED:
                del self.captured[next(iter(self.captured))]
            step = self._by_kernels(plan) if plan else self._by_torch(*key)
            try:
                self.captured[key] = self.capture(step), step
            except Exception:  # what compilers raise has no common class
                if not is_worth_compiling:
                    raise
                self.compiles = False
                return self._captured(choose)
        return self.captured[key][0]

    def capture(self, step: Callable[[], None], positions: int = 1) -> Callable[[], None]:
        """Capture the step as a CUDA graph, and return its replay; on other devices, return the step itself.

        The step writes to this many positions of the cache.
        """
        if not self.on_gpu:
            return step
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream), warnings.catch_warnings():
            # torch.compile warns when it traces into functions that are wrapped by functools.cache
            warnings.simplefilter("ignore", UserWarning)
            self._try_out(step, positions)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def _try_out(self, step: Callable[[], None], positions: int = 1) -> None:
        """Take the step a few times as a warm-up: libraries choose and compile kernels when they are first called.

        A cache may live in these arrays: its first positions, which the step writes to, are restored.
        """
        stores = self.keys_LBGSK, self.values_LBGSK
        first = [store_LBGSK[:, :, :, :positions].clone() for store_LBGSK in stores]
        for _ in range(3):
            self.buffers.lengths_B.zero_()
            self.buffers.column_1.zero_()
            step()
        for store_LBGSK, known_LBGSK in zip(stores, first, strict=True):
            store_LBGSK[:, :, :, :positions] = known_LBGSK

    def _by_kernels(self, plan: TopKPlan) -> Callable[[], None]:
        """Return a step by Triton kernels, for a choice that has a plan."""
        assert isinstance(self.network_step, FusedStep)
        step = FusedChoice(plan, self.network_step, self.buffers, self.bos)
        return lambda: step(self.keys_LBGSK, self.values_LBGSK)

    def _by_torch(self, choose: Choose, is_compiled: bool) -> Callable[[], None]:
        """Return a step in torch, for any choice, which is compiled if `is_compiled`."""

        def decide(features_BD: Tensor, uniforms_B: Tensor, active_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return choose(self.log_probs(features_BD), uniforms_B, active_B)

        chosen = torch.compile(decide, dynamic=False) if is_compiled else decide
        return lambda: self._step(chosen)

    def _step(self, decide: Decide) -> None:
        """Choose a token for each row by `decide`, read it, and update the buffers in place."""
        buffers = self.buffers
        uniforms_B = buffers.uniforms_BT.index_select(1, buffers.column_1)[:, 0]
        tokens_B, scores_B, active_B = decide(buffers.features_BD, uniforms_B, buffers.active_B)
        buffers.tokens_BT.index_copy_(1, buffers.column_1, tokens_B[:, None])
        buffers.scores_BT.index_copy_(1, buffers.column_1, scores_B[:, None].to(buffers.scores_BT.dtype))
        buffers.active_B.copy_(active_B)
        is_token_B = tokens_B != PAD
        ids_B = tokens_B.clamp(min=0)
        buffers.ids_BW.scatter_(1, buffers.lengths_B[:, None], ids_B[:, None])
        # an ended row writes behind its end, where nothing looks
        features_BD = self.network_step(ids_B, self.keys_LBGSK, self.values_LBGSK, buffers.lengths_B)
        buffers.features_BD.copy_(torch.where(is_token_B[:, None], features_BD, buffers.features_BD))
        buffers.lengths_B.add_(is_token_B)
        buffers.column_1.add_(1)


# -- reading ----------------------------------------------------------------------------------------------


class RowReader:
    """Reads `tokens` tokens of one row after those in the cache of a sampler.

    To the kernels of step.py, the T tokens of one row are T rows of one token each, whose keys and values lie in
    one place: a batch axis of stride 0. Row t has read t tokens more than the first, so that it sees the keys of
    the tokens before it and no others.
    """

    def __init__(self, network: Transformer, sampler: GraphSampler, tokens: int) -> None:
        self.network, self.sampler, self.tokens = network, sampler, tokens
        self.fused = FusedStep(network, tokens) if is_available(network, tokens) else None

    def features(self, ids_T: Tensor, places_T: Tensor) -> Tensor:
        """Return the features of tokens at successive places; keys and values are written in place."""
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
        """Return the cache after the tokens, features [1, T, D], and ln p of the token after each, [1, T, V]."""
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
        """Read the tokens of `ids_T` after those that the sampler's cache has; the results stay in place."""
        places_T = self.sampler.buffers.lengths_B + self.further_T
        self.features_TD.copy_(self.reader.features(self.ids_T, places_T))
        self.log_probs_TV = self.sampler.log_probs(self.features_TD)
