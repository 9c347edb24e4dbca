"""Writing with n-grams of any length: the arrays that the kernels need, and their call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.ngram.infinite.suffixes import LONGEST, Ints
from chainrule.ngram.infinite.walk import MOST_LEVELS, AnyLengthState, Walker
from chainrule.ngram.infinite.write_kernels import Contexts, write_rows
from chainrule.ngram.sampling.desk import Desks, Source, choose_plainly
from chainrule.ngram.sampling.writer import Floats, plan_of
from chainrule.system.parallel import at_once, cores, stretches

_WORTH_A_THREAD = 256  # tokens


class _Task(NamedTuple):
    """Rows to be written, and how far they are."""

    levels_BK3: Ints
    depth_B: Ints
    longer_K3: Ints
    """Room for the levels of one row."""
    uniforms_BT: Floats
    read_BT: Ints
    end: int
    tokens_BT: Ints
    scores_BT: Floats
    done_B: Ints
    """The number of columns that are written in each row."""


class AnyLengthWriter(Desks):
    """Writes with a model of any length."""

    def __init__(
        self, walker: Walker, unigrams: Floats, parameters: Callable[[Ints], tuple[Floats, Floats]]
    ) -> None:
        """`unigrams` are p of each token without context, `parameters` d and θ of contexts of some lengths."""
        self.walker, suffixes = walker, walker.suffixes
        with np.errstate(divide="ignore"):  # <s> is impossible
            log_p = np.log(unigrams)
        size = suffixes.vocab_size
        discount, strength = parameters(np.arange(LONGEST + 1))
        words, start = np.arange(size), np.asarray(walker.start)
        arrays = (suffixes.follower, suffixes.places, suffixes.starts, suffixes.fresh, unigrams, log_p)
        contexts = Contexts(*arrays, discount, strength, start, walker.resets, words)
        super().__init__(Source((contexts,), size, MOST_LEVELS + 1, words, log_p))

    def write(
        self,
        state: AnyLengthState,
        choose: Choose,
        uniforms_BT: Floats,
        read_BT: Ints,
        next_log_probs: Callable[[AnyLengthState], Any],
    ) -> tuple[AnyLengthState, Ints, Floats] | None:
        """The state after a token for each column, the tokens, and ln p of each.

        None if the choice has no plan, or if it is too early to compile kernels.
        """
        plan = plan_of(choose.operations)
        if plan is None or not self.is_ready(write_rows, uniforms_BT.size):
            return None
        rows = len(state)
        levels_BK3 = np.zeros((rows, MOST_LEVELS, 3), np.int64)
        levels_BK3[:, : state.levels_BK3.shape[1]] = state.levels_BK3
        task = _Task(
            levels_BK3,
            state.depth_B.copy(),
            np.zeros((MOST_LEVELS, 3), np.int64),
            np.ascontiguousarray(uniforms_BT, dtype=np.float64),
            np.ascontiguousarray(read_BT, dtype=np.int64),
            PAD if choose.end is None else choose.end,
            np.full(uniforms_BT.shape, PAD, dtype=np.int64),
            np.zeros(uniforms_BT.shape),
            np.zeros(rows, np.int64),
        )

        def write_some(some: tuple[int, int]) -> None:
            desk = self.take_desk(plan)
            own = task._replace(longer_K3=np.zeros_like(task.longer_K3))
            while (row := desk.advance(write_rows, own, some, plan)) is not None:
                self._choose_plainly(task, row, choose, next_log_probs)
            self.put_back(desk)

        at_once(write_some, stretches(rows, min(cores(), uniforms_BT.size // _WORTH_A_THREAD)))
        after = AnyLengthState(levels_BK3[:, : task.depth_B.max(initial=1)], task.depth_B)
        return after, task.tokens_BT, task.scores_BT

    def _choose_plainly(
        self, task: _Task, row: int, choose: Choose, next_log_probs: Callable[[AnyLengthState], Any]
    ) -> None:
        """Choose the next token of a row from the probabilities of all tokens, and walk on."""
        state = AnyLengthState(task.levels_BK3[row : row + 1], task.depth_B[row : row + 1])
        tokens = choose_plainly(task, row, choose, next_log_probs(state))
        if tokens[0] != PAD:
            after = self.walker.walk(np.asarray(tokens)[:, None], state)
            depth = task.depth_B[row] = after.depth_B[0]
            task.levels_BK3[row, :depth] = after.levels_BK3[0, :depth]
