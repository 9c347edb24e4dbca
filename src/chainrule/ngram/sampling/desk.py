"""What writing with a model keeps between calls: the lists of its contexts, and arrays for one step.

Nothing here knows what kind of n-gram model it is: that is a `Source`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from chainrule.contract.capabilities import Choose
from chainrule.ngram.sampling.compiled import is_compiled
from chainrule.ngram.sampling.cut_kernels import FIELDS
from chainrule.ngram.sampling.draw_kernels import BLOCK, BUCKETS, Lists, trailing_bits
from chainrule.ngram.sampling.level_kernels import COLUMNS, Directory, Spare
from chainrule.ngram.sampling.occurred_kernels import ENTRY
from chainrule.ngram.sampling.past_kernels import EDITION, NUMBERS, RECENT, USED, Past
from chainrule.ngram.sampling.stack_kernels import FEW, TOGETHER, Plan, Scratch, make_unigrams
from chainrule.ngram.sampling.step_kernels import DONE, NO_ROOM
from chainrule.system.parallel import Patience, announce, cores

_FIRST_PAIRS = 1 << 17
_MOST_PAIRS = 1 << 23
"""The most pairs that a thread keeps, of 56 bytes each; when there is room for no more, all are forgotten."""
_OCCURRED_PAIRS = 1 << 22
"""The pairs that lists of tokens that occurred have at least; when there is room for no more, all are forgotten."""
_SLOTS = 1 << 18
_AXES = (0, 0, 1, 0, 0, 0, 0, 0)  # of each array of `Lists`, along which there are more and more

_MOST_DESKS = cores()
_PLAIN_NANOSECONDS = (1 << 22) / 100  # for a token the plain way, as a share of compiling: 1,600 tokens come first


class Source(NamedTuple):
    """The model that lists are made from."""

    arrays: tuple[Any, ...]
    """What kernels are given of it, between their task and the plan."""
    vocab_size: int
    order: int
    """One more than the most contexts of a text."""
    words: Any
    """The token of each code,"""
    log_probs: Any
    """and its ln p without context."""


@dataclass
class Desk:
    """The lists of one thread, for the powers of one kind of plan, and its scratch arrays."""

    source: Source
    plan: Plan
    lists: Lists = field(init=False)
    directory: Directory = field(init=False)
    spare: Spare = field(init=False)
    scratch: Scratch = field(init=False)

    def __post_init__(self) -> None:
        size, order = self.source.vocab_size, self.source.order
        self.spare = Spare(
            np.empty((2, size), np.uint32),
            np.empty((2, size), np.int32),
            np.empty(size, np.int32),
            np.empty(size, np.float64),
            np.empty(size, np.float32),
            np.empty(256, np.int64),
        )
        looks_back = self.plan.looks_back
        lists = (6 if looks_back else 2) * order + 2
        width = max(BUCKETS, 1 << trailing_bits(size))
        room = size if looks_back else min(size, FEW * order + len(self.plan.forbidden))
        self.scratch = Scratch(
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1),
            np.zeros(1, np.int64),
            np.zeros((lists, FIELDS), np.int64),
            np.ones((lists, len(self.plan.betas))),
            np.zeros(lists),
            np.zeros((TOGETHER, order + 1, 3), np.int64),
            np.zeros((TOGETHER, order + 1)),
            np.zeros(TOGETHER, np.int64),
            np.zeros((3, width)),
            np.asarray([room]),
            _past(size + 1, 2 * room) if looks_back else _past(0, 0),
        )
        self._begin(max(_FIRST_PAIRS, 4 * (room + size)) + int(self.scratch.past.region[1]))

    def fits(self, plan: Plan) -> bool:
        """Whether the lists serve for another plan, too."""
        own = self.plan
        return bool(
            np.array_equal(own.betas, plan.betas)
            and own.by_value == plan.by_value
            and len(plan.forbidden) <= len(own.forbidden)
            and (not plan.looks_back or _penalties(own) == _penalties(plan))
        )

    def advance(self, run: Any, task: Any, rows: tuple[int, int], plan: Plan) -> int | None:
        """Run a kernel on some rows of a task; returns the row that has to go on the plain way, or None.

        A task is a named tuple; its `done_B` grows with what is done.
        """
        is_stuck = False
        while True:
            arrays = (*self.source.arrays, plan, self.lists, self.directory, self.spare, self.scratch)
            written = int(task.done_B.sum())
            status, row = run(rows, *task, *arrays)
            if status != NO_ROOM:
                return None if status == DONE else int(row)
            self._make_room(is_stuck and int(task.done_B.sum()) == written)
            is_stuck = True

    def _begin(self, pairs: int) -> None:
        """Begin with no lists but that of all words, with room for so many pairs."""
        powers, past = len(self.plan.betas), self.scratch.past
        begin, end = past.region
        self.lists = Lists(
            np.empty(pairs, np.int32),
            np.empty(pairs, np.float64),
            np.empty((powers, pairs)),
            np.empty((2 * pairs // BLOCK, BUCKETS)),
            np.empty(pairs, np.int32),
            np.empty(pairs, np.int32),
            np.empty(pairs, np.float64),
            np.empty(pairs, np.int32),
        )
        self.directory = Directory(
            np.zeros(_SLOTS, np.int64),
            np.zeros((_SLOTS, COLUMNS), np.int64),
            np.zeros((_SLOTS, 3)),
            np.asarray([max(2 * self.scratch.gathered[0], end), end // BLOCK, 0]),
        )
        past.numbers[EDITION] += 1
        past.numbers[USED] = begin
        make_unigrams(self.lists, self.directory, self.spare, self.source.words, self.source.log_probs, self.plan)

    def _make_room(self, is_stuck: bool) -> None:
        """Make the arrays larger, or empty them if they are large enough and were not emptied just now."""
        pairs = len(self.lists.ids)
        if pairs - int(self.scratch.past.region[1]) >= _MOST_PAIRS and not is_stuck:
            self._begin(pairs)
            return
        self.lists = Lists(*(_doubled(array, axis) for array, axis in zip(self.lists, _AXES, strict=True)))


def _doubled(array: Any, axis: int) -> Any:
    """An array with twice the room along an axis."""
    more = np.empty([size * 2 if k == axis else size for k, size in enumerate(array.shape)], array.dtype)
    more[tuple(slice(size) for size in array.shape)] = array
    return more


def _past(size: int, begin: int) -> Past:
    """An empty text of a vocabulary; lists of its tokens have room from a pair on."""
    room = max(_OCCURRED_PAIRS, 8 * size) if size else 0
    slots = 2 * _SLOTS if size else 0
    return Past(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.full(size, -1),
        np.zeros(2 * size + 4 * RECENT, np.int64),
        np.zeros(size, np.int64),
        np.zeros(RECENT, np.int64),
        np.zeros(NUMBERS, np.int64),
        np.zeros(1, np.uint64),
        np.zeros((slots, ENTRY), np.int64),
        np.zeros(slots),
        np.zeros(size),
        np.asarray([begin, -(-(begin + room) // BLOCK) * BLOCK]),
    )


def _penalties(plan: Plan) -> tuple[bool, float, float, float]:
    return plan.looks_back, plan.slope, plan.per_time, plan.offset


def choose_plainly(task: Any, row: int, choose: Choose, log_probs_BV: Any) -> Any:
    """Choose the next token of one row of a task from ln p of all tokens; returns it, as an array of one."""
    t = int(task.done_B[row])
    read_BT = np.concatenate([task.read_BT[row], task.tokens_BT[row, :t]])[None]
    tokens, scores, going = choose(
        log_probs_BV, task.uniforms_BT[row, t : t + 1], np.ones(1, bool), lambda: read_BT
    )
    task.tokens_BT[row, t], task.scores_BT[row, t] = tokens[0], scores[0]
    task.done_B[row] = t + 1 if going[0] else task.tokens_BT.shape[1]
    return tokens


class Desks:
    """The desks of the threads that write with a model at the same time, one each."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._desks: list[Desk] = []
        self._patience = Patience(_PLAIN_NANOSECONDS)

    def is_ready(self, run: Any, tokens: int) -> bool:
        """Whether a kernel is compiled, or so much has been written the plain way that compiling it pays."""
        if is_compiled(run):
            return True
        if not self._patience.count(tokens):
            return False
        announce(
            "compiling the code that writes with n-grams, once on this machine; that takes about half a minute"
        )
        return True

    def take_desk(self, plan: Plan) -> Desk:
        """A desk that no other thread uses, with lists that suit a plan."""
        while self._desks:
            desk = self._desks.pop()
            if desk.fits(plan):
                return desk
        return Desk(self.source, plan)

    def put_back(self, desk: Desk) -> None:
        """Keep a desk for what is written next."""
        self._desks = [desk, *self._desks][:_MOST_DESKS]
