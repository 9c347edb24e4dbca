"""Sampling and reading on a GPU by CUDA graphs: one step is captured, then replayed without the host.

A small network's step takes the GPU less time than the host needs to launch its kernels. So everything a step needs
lies at fixed addresses, the step is captured once as a CUDA graph (probabilities, choice, token, memory, features),
and is then replayed as a whole. One mechanism serves every network; fixed_memory.py knows how their memories
differ. Tokens are chosen by the kernels of choice.py where these can, and else by torch.

The state after a step is a value like any other: older states stay valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.inference.choice_plan import ChoicePlan, plan_of
from chainrule.inference.gpu.choice import FusedChoice, FusedSampling, StepBuffers
from chainrule.inference.gpu.fixed_memory import FixedArrays, FixedCache, FixedMemory
from chainrule.inference.gpu.step import MOST_ROWS, FusedStep, is_available
from chainrule.inference.state import NeuralState, Window, on_device
from chainrule.networks.network import Network
from chainrule.networks.seq2seq.encoder_decoder import SourcedMemory
from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import current_device, has_triton

MOST_STEPS = 64
"""The most tokens a row that one call can write."""
_MOST_CAPTURED = 8
_READING = "reading"  # the key of the step that reads tokens and chooses none


class Scores(NamedTuple):
    """How a model scores the next token, from features [..., D]."""

    logits: Callable[[Tensor], Tensor]
    log_probs: Callable[[Tensor], Tensor]


class GraphSampler:
    """Captured steps of one network, for batches of at most `batch_size` rows."""

    def __init__(
        self, network: Network, memory: FixedMemory, scores: Scores, batch_size: int, bos: int, slides: int = 0
    ) -> None:
        """`slides` is the number of tokens that a full window drops within a step; 0: it never is full."""
        self.network, self.memory, self.scores, self.bos, self.slides = network, memory, scores, bos, slides
        weight = network.head.weight.detach()
        self.device, self.on_gpu = weight.device, weight.device.type == "cuda"
        self.buffers = StepBuffers.of_size(batch_size, MOST_STEPS, network.window or 0, weight)
        self.has_kernels = self.on_gpu and has_triton() and weight.dtype != torch.float64
        self.next_B = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        """The tokens to read, where they are given and not chosen."""
        self.has_next_B = torch.zeros(batch_size, dtype=torch.bool, device=self.device)
        self.places_W = torch.arange(network.window or 0, device=self.device)
        self.counts_BV: Tensor | None = None
        """How often each token occurred, for penalties."""
        self.captured: dict[Any, tuple[Callable[[], None], Callable[[], None]]] = {}
        """The replay of each captured step, and the step, which owns arrays that the CUDA graph uses."""

    @property
    def cache(self) -> FixedCache:
        """The fixed memory of a Transformer."""
        assert isinstance(self.memory, FixedCache)
        return self.memory

    def plan(self, choose: Choose) -> ChoicePlan | None:
        """Return the plan by which kernels make a choice; None if torch makes it."""
        return plan_of(choose) if self.has_kernels else None

    @torch.no_grad()
    def write(
        self,
        state: NeuralState,
        choose: Choose,
        uniforms_BT: np.ndarray,
        read_BT: np.ndarray | None = None,
        active_B: Tensor | None = None,
    ) -> tuple[NeuralState, Tensor, Tensor] | None:
        """Sample a token a row for each column of `uniforms_BT`, by these random numbers.

        Return the state after the tokens, the tokens [B, T], and ln p of each. None for a choice that looks back at
        `read_BT` and that no kernel makes. Rows where `active_B` is False have ended.
        """
        buffers, (rows, steps) = self.buffers, uniforms_BT.shape
        if read_BT is not None and self.plan(choose) is None:
            return None
        with current_device(self.device):
            if read_BT is not None:
                self._count(read_BT)
            replay = self._captured(choose)
            self.put(state)
            buffers.features_BD[:rows] = state.features_BD
            # surplus rows are like rows that have ended: nothing reads their tokens
            buffers.active_B.zero_()
            buffers.active_B[:rows] = True if active_B is None else active_B
            buffers.column_1.zero_()
            buffers.uniforms_BT[:rows, :steps] = torch.from_numpy(uniforms_BT).to(self.device)
            for _ in range(steps):
                replay()
            after = self._taken(state, steps)
            return after, buffers.tokens_BT[:rows, :steps].clone(), buffers.scores_BT[:rows, :steps].clone()

    @torch.no_grad()
    def read(self, state: NeuralState, ids_B1: Tensor, is_token_B1: Tensor | None) -> NeuralState | None:
        """Return the state after one more token of each row; None where no captured step reads faster."""
        if isinstance(self.memory, FixedCache) and self.memory.fused is None and self.on_gpu:
            return None  # it would look at a whole window of keys, however few there are
        rows = len(state)
        with current_device(self.device):
            replay = self._replay_of(_READING, lambda: partial(self.read_next, self.next_B, self.has_next_B))
            self.put(state)
            self.buffers.features_BD[:rows] = state.features_BD
            self.next_B[:rows] = ids_B1[:, 0]
            self.has_next_B.zero_()
            self.has_next_B[:rows] = True if is_token_B1 is None else is_token_B1[:, 0]
            replay()
            after = self._taken(state, 1)
            if state.window is not None:
                after = replace(after, window=state.window.append(ids_B1, is_token_B1))
            if not isinstance(self.memory, FixedCache):
                return after
            # a copy, so that threads that only read never share the arrays of a step; no step writes to sources
            copied = after.select(np.arange(rows))
            if isinstance(after.memory, SourcedMemory) and isinstance(copied.memory, SourcedMemory):
                copied = replace(copied, memory=replace(copied.memory, sources=after.memory.sources))
            return copied

    def put(self, state: NeuralState) -> None:
        """Copy a state to the fixed addresses, but for its features."""
        buffers, window, rows = self.buffers, state.window, len(state)
        self.memory.put(state.memory, rows)
        buffers.lengths_B.zero_()
        if window is not None:
            buffers.lengths_B[:rows] = window.lengths_B
            buffers.ids_BW[:rows] = window.ids_BW

    def _taken(self, state: NeuralState, steps: int) -> NeuralState:
        """Return the state after so many steps as a value."""
        buffers, window, rows = self.buffers, state.window, len(state)
        lengths_B = buffers.lengths_B[:rows].clone()
        longest = steps if window is None else min(window.longest + steps, window.size)
        seen = None if window is None else Window(buffers.ids_BW[:rows].clone(), lengths_B, longest, False)
        memory = self.memory.taken(state.memory, rows, lengths_B, longest)
        return NeuralState(memory, buffers.features_BD[:rows].clone(), seen)

    def _count(self, read_BT: np.ndarray) -> None:
        """Count how often each token occurred in what each row has read."""
        if self.counts_BV is None:
            shape = len(self.buffers.active_B), self.network.head.vocab_size
            self.counts_BV = torch.zeros(shape, dtype=torch.int32, device=self.device)
        self.counts_BV.zero_()
        ids_BT = on_device(read_BT, self.device)
        self.counts_BV[: len(ids_BT)].scatter_add_(1, ids_BT.clamp(min=0), (ids_BT != PAD).to(torch.int32))

    def _captured(self, choose: Choose) -> Callable[[], None]:
        """Return the replay of the step that chooses tokens by `choose`, which is captured at its first use."""

        def make() -> Callable[[], None]:
            plan = self.plan(choose)
            return self._by_torch(choose) if plan is None else self._by_kernels(plan)

        return self._replay_of(choose, make)

    def _replay_of(self, key: Any, make: Callable[[], Callable[[], None]]) -> Callable[[], None]:
        """Return the replay of a step, which is made and captured when the key is first used."""
        if key not in self.captured:
            if len(self.captured) >= _MOST_CAPTURED:
                del self.captured[next(iter(self.captured))]
            step = make()
            self.captured[key] = self.capture(step), step
        return self.captured[key][0]

    def capture(self, step: Callable[[], None], positions: int = 1) -> Callable[[], None]:
        """Capture the step as a CUDA graph, and return its replay; on other devices, return the step itself.

        The step writes to this many positions of a cache.
        """
        if not self.on_gpu:
            return step
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            self._try_out(step, positions)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    @torch.no_grad()
    def _try_out(self, step: Callable[[], None], positions: int = 1) -> None:
        """Take the step a few times as a warm-up: libraries choose and compile kernels at the first call."""
        counts_BV = None if self.counts_BV is None else self.counts_BV.clone()
        with self.memory.tried(positions):
            for _ in range(3):
                self.buffers.lengths_B.zero_()
                self.buffers.column_1.zero_()
                step()
        if self.counts_BV is not None and counts_BV is not None:
            self.counts_BV.copy_(counts_BV)

    def _by_kernels(self, plan: ChoicePlan) -> Callable[[], None]:
        """Return a step whose choice is made by kernels, which read the token too where the memory has them."""
        counts_BV = self.counts_BV if plan.penalties else None
        head, memory = self.network.head, self.memory
        if memory.fused is not None:
            whole = FusedSampling(plan, head, self.buffers, self.bos, counts_BV=counts_BV, step=memory.fused)
            return partial(whole, memory.read_embedded)
        choice = FusedChoice(plan, head, self.buffers, self.bos, counts_BV=counts_BV)

        def step() -> None:
            choice.from_features()
            self.read_next(choice.ids_B, choice.is_token_B)

        return step

    def _by_torch(self, choose: Choose) -> Callable[[], None]:
        """Return a step in torch, for any choice that does not look back."""
        score = self.scores.logits if choose.by_logits else self.scores.log_probs

        def step() -> None:
            buffers = self.buffers
            uniforms_B = buffers.uniforms_BT.index_select(1, buffers.column_1)[:, 0]
            tokens_B, scores_B, active_B = choose(score(buffers.features_BD), uniforms_B, buffers.active_B)
            buffers.tokens_BT.index_copy_(1, buffers.column_1, tokens_B[:, None])
            buffers.scores_BT.index_copy_(1, buffers.column_1, scores_B[:, None].to(buffers.scores_BT.dtype))
            buffers.active_B.copy_(active_B)
            self.read_next(tokens_B.clamp(min=0), tokens_B != PAD)

        return step

    def read_next(self, ids_B: Tensor, is_token_B: Tensor) -> None:
        """Read a token of each row that has one, and update the buffers in place."""
        buffers = self.buffers
        if self.slides:
            features_BD = self._read_window(ids_B, is_token_B)
        else:
            if self.network.window is not None:
                buffers.ids_BW.scatter_(1, buffers.lengths_B[:, None], ids_B[:, None])
            features_BD = self.memory.read(ids_B, is_token_B, buffers.lengths_B)
        old_BD = buffers.features_BD
        torch.where(is_token_B[:, None], features_BD.to(old_BD.dtype), old_BD, out=old_BD)
        buffers.lengths_B.add_(is_token_B)
        buffers.column_1.add_(1)

    def _read_window(self, ids_B: Tensor, is_token_B: Tensor) -> Tensor:
        """Return the features after one more token of each row that has one, by reading its whole window.

        So a window may slide in any step: full ones first drop their oldest tokens.
        """
        assert isinstance(self.memory, FixedArrays)
        buffers, size = self.buffers, self.buffers.ids_BW.shape[1]
        is_full_B = buffers.lengths_B == size
        # what is dropped goes behind the end, where tokens are overwritten
        slid_BW = buffers.ids_BW.roll(-self.slides, dims=1)
        buffers.ids_BW.copy_(torch.where(is_full_B[:, None], slid_BW, buffers.ids_BW))
        buffers.lengths_B.sub_(is_full_B * self.slides)
        buffers.ids_BW.scatter_(1, buffers.lengths_B[:, None], ids_B[:, None])
        is_read_BW = self.places_W < (buffers.lengths_B + is_token_B)[:, None]
        return self.memory.read_windows(buffers.ids_BW, is_read_BW)


# -- reading ----------------------------------------------------------------------------------------------


class RowReader:
    """Reads `tokens` tokens of one row after those in the cache of a sampler.

    To the kernels of step.py, the T tokens of one row are T rows of one token each, whose keys and values lie in
    one place: a batch axis of stride 0. Row t has read t tokens more than the first, so that it sees the keys of
    the tokens before it and no others.
    """

    def __init__(self, network: Transformer, sampler: GraphSampler, tokens: int) -> None:
        self.network, self.sampler, self.tokens = network, sampler, tokens
        # with more tokens, too much time would go into loading for each of them the keys that all look at
        can_fuse = tokens <= MOST_ROWS and is_available(network, tokens)
        self.fused = FusedStep(network, tokens) if can_fuse else None

    def features(self, ids_T: Tensor, places_T: Tensor) -> Tensor:
        """Return the features of tokens at successive places; keys and values are written in place."""
        keys_L1GSK, values_L1GSK = self.sampler.cache.keys_LBGSK, self.sampler.cache.values_LBGSK
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
        with current_device(sampler.device):
            buffer = sampler.cache.adopt(cache, 1)
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
        self.log_probs_TV = self.sampler.scores.log_probs(self.features_TD)
