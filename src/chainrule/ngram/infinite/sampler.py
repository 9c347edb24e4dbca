"""Sampling and drafting with n-grams of any length: the arrays that the kernels need, and their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.ngram.infinite.sample_kernels import Contexts, draft_tokens, sample_rows
from chainrule.ngram.infinite.suffixes import LONGEST, Ints
from chainrule.ngram.infinite.walk import MOST_LEVELS, AnyLengthState, Walker
from chainrule.ngram.sampling.sampler import Floats, Sampler, Task, sample_one
from chainrule.ngram.sampling.workspace import Source


class AnyLengthSampler(Sampler):
    """Samples and drafts with a model of any length."""

    def __init__(
        self, walker: Walker, unigrams: Floats, parameters: Callable[[Ints], tuple[Floats, Floats]]
    ) -> None:
        """`unigrams` are p of each token without context, `parameters` returns d and θ for lengths of contexts."""
        self.walker, suffixes = walker, walker.suffixes
        with np.errstate(divide="ignore"):  # <s> is impossible
            log_p = np.log(unigrams)
        size = suffixes.vocab_size
        discount, strength = parameters(np.arange(LONGEST + 1))
        words, start = np.arange(size), np.asarray(walker.start)
        arrays = (suffixes.follower, suffixes.places, suffixes.starts, suffixes.fresh, unigrams, log_p)
        self.contexts = Contexts(*arrays, discount, strength, start, walker.resets, words)
        super().__init__(Source((self.contexts,), size, MOST_LEVELS + 1, words, log_p))

    def sample(
        self,
        state: AnyLengthState,
        choose: Choose,
        uniforms_BT: Floats,
        read_BT: Ints | None,
        next_log_probs: Callable[[AnyLengthState], Any],
    ) -> tuple[AnyLengthState, Ints, Floats] | None:
        """Return the state after a token for each column, the tokens, and ln p of each; None as `run` does."""
        levels_BK3 = np.zeros((len(state), MOST_LEVELS, 3), np.int64)
        levels_BK3[:, : state.levels_BK3.shape[1]] = state.levels_BK3
        depth_B = state.depth_B.copy()

        def step(task: Task, row: int) -> None:
            own = AnyLengthState(levels_BK3[row : row + 1], depth_B[row : row + 1])
            tokens = sample_one(task, row, choose, next_log_probs(own))
            if tokens[0] != PAD:
                after = self.walker.walk(tokens[:, None], own)
                depth = depth_B[row] = after.depth_B[0]
                levels_BK3[row, :depth] = after.levels_BK3[0, :depth]

        task = self.run(sample_rows, (levels_BK3, depth_B), choose, uniforms_BT, read_BT, step)
        if task is None:
            return None
        return AnyLengthState(levels_BK3[:, : depth_B.max(initial=1)], depth_B), task.tokens_BT, task.scores_BT

    def draft(self, memory: tuple[Ints, int] | None, ids: Ints, count: int) -> tuple[tuple[Ints, int], Ints]:
        """Return the levels after more ids and their number, and `count` tokens that may follow."""
        levels, depth = np.zeros((MOST_LEVELS, 3), np.int64), len(self.contexts.start)
        levels[:depth] = self.contexts.start
        if memory is not None:
            levels, depth = memory[0].copy(), memory[1]
        tokens, (ahead, longer) = np.zeros(count, np.int64), np.zeros((2, MOST_LEVELS, 3), np.int64)
        depth = draft_tokens(ids, levels, depth, ahead, longer, self.contexts, tokens)
        return (levels, depth), tokens
