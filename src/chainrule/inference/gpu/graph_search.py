"""Beam search by a captured step: rank, reorder and read on the device; the host follows a few steps behind.

A step finds the W best next tokens of each hypothesis, and goes on with the W best continuations of each text. It
needs nothing from the host, which decides what is finished from the log that the device keeps. So the device is
some steps ahead; what it does for texts that are finished is dropped.

Axes: P texts, W hypotheses of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from chainrule.arrays import to_numpy, without
from chainrule.decode.top import top_places_by_bits
from chainrule.inference.choice_plan import TOP_K, ChoicePlan
from chainrule.inference.gpu.choice import FusedSampling
from chainrule.inference.gpu.graph_sampling import GraphSampler
from chainrule.inference.gpu.step import power_of_two
from chainrule.inference.state import NeuralState
from chainrule.system.devices import current_device

_AT_ONCE = 8
"""The steps that the device takes before their log goes to the host."""
_MOST_BY_KERNELS = 16
"""The largest width for the kernel that ranks the continuations of a text."""


class Ranking(NamedTuple):
    """Which tokens a step looks for."""

    width: int
    """The number of hypotheses of a text, and of the tokens that are looked at after each."""
    never: tuple[int, ...]
    """Tokens that no hypothesis contains."""
    end: int | None
    """The token whose ln p the host asks for; None if it needs none."""


def rows_of_search(texts: int, width: int) -> int:
    """Return the number of rows for a search: that of a few captured steps serves every number of texts."""
    return power_of_two(power_of_two(texts) * width)


class GraphSearch:
    """The captured step of one beam search; its memory is that of a sampler."""

    def __init__(self, sampler: GraphSampler, texts: int, ranking: Ranking) -> None:
        """The sampler has `rows_of_search` rows."""
        self.sampler, self.ranking = sampler, ranking
        self.texts, width, device = power_of_two(texts), ranking.width, sampler.device
        self.rows = self.texts * width
        self.first_P1 = torch.arange(self.texts, device=device)[:, None] * width
        """The row of the first hypothesis of each text."""
        self.live_PW = torch.zeros(self.texts, width, dtype=torch.float64, device=device)
        """ln p of each hypothesis."""
        self.shared_P = torch.zeros(self.texts, dtype=torch.int64, device=device)
        """How many tokens the hypotheses of a text have in common, at least."""
        columns = 2 * width + 2
        self.log = torch.zeros(2 * _AT_ONCE, self.rows, columns, dtype=torch.float64, device=device)
        """Of each step: ln p of the best tokens, those tokens, ln p of the end, and the sum of all ln p."""
        self.host_log = torch.zeros(self.log.shape, dtype=self.log.dtype, pin_memory=sampler.on_gpu)
        self.parents_B = torch.zeros(self.rows, dtype=torch.int64, device=device)
        """The row whose hypothesis each row continues."""
        self.choice: FusedSampling | None = None
        """The kernels that rank tokens; None if torch ranks them."""
        if sampler.has_kernels and width <= _MOST_BY_KERNELS:
            plan = ChoicePlan(ranking.never, ((TOP_K, width),), None)
            head, fused = sampler.network.head, sampler.memory.fused
            self.choice = FusedSampling(plan, head, sampler.buffers, sampler.bos, step=fused)
            self.choice.is_token_B = sampler.has_next_B
        with torch.no_grad(), current_device(device):
            self._replay = sampler.capture(self._by_torch if self.choice is None else self._by_kernels)

    @torch.no_grad()
    def run(self, state: NeuralState, live_PW: np.ndarray, steps: int, take: Callable[[np.ndarray], bool]) -> None:
        """Give `take` the log of each step, [PW, 2 W + 2], until it returns False.

        The state has a row for each hypothesis, or for each text if all of its hypotheses have read the same.
        """
        sampler, (texts, width) = self.sampler, live_PW.shape
        copies = texts * width // len(state)
        with current_device(sampler.device):
            # a copy in any case: a step changes the memory of the rows, and the state is a value
            whole = state.select(np.repeat(np.arange(len(state)), copies))
            sampler.put(whole)
            sampler.buffers.features_BD[: len(whole)] = whole.features_BD
            sampler.has_next_B.zero_()
            sampler.has_next_B[: len(whole)] = True
            self.shared_P.zero_()
            if copies == width and not sampler.slides:
                self.shared_P.copy_(sampler.buffers.lengths_B[: self.rows : width])
            self.live_PW.fill_(-torch.inf)
            self.live_PW[:texts] = torch.from_numpy(live_PW).to(sampler.device)
            sampler.buffers.column_1.zero_()
            try:
                self._run(steps, len(whole), take)
            finally:
                rows_B = sampler.buffers.lengths_B[: len(whole)]
                sampler.memory.taken(whole.memory, len(whole), rows_B, 0)

    def _run(self, steps: int, rows: int, take: Callable[[np.ndarray], bool]) -> None:
        """Take the steps, and let the host follow one piece of the log behind the device."""
        done, before = 0, range(0)
        while done < steps or before:
            after = range(done, min(done + _AT_ONCE, steps))
            for _ in after:
                self._replay()
            copied = self._copy(after)
            if not all(take(to_numpy(self.host_log[step % len(self.log), :rows])) for step in before):
                return
            copied()
            done, before = after.stop, after

    def _copy(self, steps: range) -> Callable[[], None]:
        """Begin to copy the log of these steps to the host; return what waits for the end of it."""
        at = slice(steps.start % len(self.log), steps.start % len(self.log) + len(steps))
        self.host_log[at].copy_(self.log[at], non_blocking=True)
        if not self.sampler.on_gpu:
            return lambda: None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event.synchronize

    def _by_kernels(self) -> None:
        """Take the step of `_by_torch`; one kernel ranks, and writes windows and embeddings too."""
        from chainrule.inference.gpu.search_kernels import continue_text

        sampler, choice, (width, _, end) = self.sampler, self.choice, self.ranking
        assert choice is not None
        buffers, head, pieces = sampler.buffers, choice.head, power_of_two(choice.pieces)
        logits_BV = F.linear(buffers.features_BD, head.weight, head.bias)
        choice.keep_best(logits_BV, logits_BV)
        scale, _, _, *sizes = choice.sizes()
        continue_text[(self.texts,)](
            logits_BV, choice.kept, logits_BV.stride(0), buffers, choice.embedding(), sampler.next_B, self.live_PW,
            self.parents_B, self.shared_P, self.log, len(self.log), self.rows, end or 0, scale,
            buffers.ids_BW.shape[1], *sizes,
            width, power_of_two(width), choice.pieces, pieces, choice.slots, 64, choice.ahead,
            num_warps=4, **choice.launch,
        )  # fmt: skip
        sampler.memory.reorder(self.parents_B, width, self.shared_P, buffers.lengths_B)
        if sampler.memory.fused is None:
            sampler.read_next(sampler.next_B, sampler.has_next_B)
        else:
            choice.finish(sampler.memory.read_embedded(choice.x_BD, sampler.has_next_B, buffers.lengths_B))

    def _by_torch(self) -> None:
        """Rank the continuations of each hypothesis, go on with the best of each text, and read their tokens."""
        sampler, (width, never, end) = self.sampler, self.ranking
        buffers, rows = sampler.buffers, self.rows
        log_probs_BV = sampler.scores.log_probs(buffers.features_BD[:rows])
        tokens_BW = top_places_by_bits(without(log_probs_BV, never), width)
        values_BW = log_probs_BV.gather(1, tokens_BW)
        ends_B = log_probs_BV[:, 0 if end is None else end]
        log = torch.cat([values_BW, tokens_BW, torch.stack([ends_B, log_probs_BV.sum(dim=1)], dim=1)], dim=1)
        self.log.index_copy_(0, buffers.column_1 % len(self.log), log.double()[None])
        total_PN = (self.live_PW[:, :, None] + values_BW.double().reshape(self.texts, width, -1)).flatten(1)
        # stable: among equals the first hypothesis, and of one hypothesis the lowest token, as on the host
        best_PN, order_PN = total_PN.sort(dim=1, descending=True, stable=True)
        self.live_PW.copy_(best_PN[:, :width])
        chosen_PW = order_PN[:, :width]
        parents_B = (self.first_P1 + chosen_PW // width).flatten()
        sampler.next_B[:rows] = tokens_BW.reshape(self.texts, -1).gather(1, chosen_PW).flatten()
        sampler.memory.reorder(parents_B, width, self.shared_P, buffers.lengths_B)
        for array in (buffers.features_BD, buffers.lengths_B, buffers.ids_BW):
            array[:rows] = array[parents_B]
        sampler.read_next(sampler.next_B, sampler.has_next_B)
