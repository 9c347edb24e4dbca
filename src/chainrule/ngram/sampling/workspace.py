"""The arrays that a thread keeps between calls of the kernels: lists of contexts, and scratch arrays for one step.

Nothing here depends on the kind of n-gram model: a `Source` describes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.cut_kernels import STACKED
from chainrule.ngram.sampling.draw_kernels import BLOCK, BUCKETS, Lists, trailing_bits
from chainrule.ngram.sampling.level_kernels import PLACE, Directory, Spare
from chainrule.ngram.sampling.penalty_kernels import EDITION, ENTRY, NUMBERS, OLDEST, RECENT, USED, Text
from chainrule.ngram.sampling.sample_kernels import DONE, NO_ROOM
from chainrule.ngram.sampling.stack_kernels import FEW, TOGETHER, Plan, Scratch, make_unigrams

_FIRST_PAIRS = 1 << 17
_MOST_PAIRS = 1 << 23
"""The most pairs that a thread keeps, of 56 bytes each; when these are full, all lists are discarded."""
_OCCURRED_PAIRS = 1 << 22
"""The least room for pairs of tokens that occurred; when it is full, the lists of these are discarded."""
_SLOTS = 1 << 18
_AXES = (0, 0, 1, 0, 0, 0, 0, 0)  # the axis along which each array of `Lists` grows


class Source(NamedTuple):
    """The model that lists are built from."""

    arrays: tuple[Any, ...]
    """The arguments of a kernel between its task and the plan."""
    vocab_size: int
    order: int
    """One more than the greatest number of contexts of a text."""
    words: Any
    """The token of each code."""
    log_probs: Any
    """ln p of each code without context."""


class Workspace:
    """The lists of one thread, for plans with the same powers, and its scratch arrays."""

    lists: Lists
    directory: Directory

    def __init__(self, source: Source, plan: Plan) -> None:
        self.source, self.plan = source, plan
        size, order, looks_back = source.vocab_size, source.order, plan.looks_back
        self.spare = Spare(
            np.empty((2, size), np.uint32),
            np.empty((2, size), np.int32),
            np.empty(size, np.int32),
            np.empty(size, np.float64),
            np.empty(size, np.float32),
            np.empty(256, np.int64),
        )
        lists = (6 if looks_back else 2) * order + 2
        width = max(BUCKETS, 1 << trailing_bits(size))
        room = size if looks_back else min(size, FEW * order + len(plan.forbidden))
        self.scratch = Scratch(
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1, np.int64),
            np.zeros(size + 1),
            np.zeros(1, np.int64),
            np.zeros(lists, STACKED),
            np.ones((lists, len(plan.betas))),
            np.zeros(lists),
            np.zeros((TOGETHER, order + 1, 3), np.int64),
            np.zeros((TOGETHER, order + 1)),
            np.zeros(TOGETHER, np.int64),
            np.zeros((3, width)),
            np.asarray([room]),
            _empty_text(size + 1, 2 * room) if looks_back else _empty_text(0, 0),
        )
        self._discard_lists(max(_FIRST_PAIRS, 4 * (room + size)) + int(self.scratch.text.region[1]))

    def fits(self, plan: Plan) -> bool:
        """Return True if the lists serve another plan too."""
        own = self.plan
        return bool(
            np.array_equal(own.betas, plan.betas)
            and own.by_value == plan.by_value
            and len(plan.forbidden) <= len(own.forbidden)
            and (not plan.looks_back or _penalties(own) == _penalties(plan))
        )

    def advance(self, run: Any, task: Any, rows: tuple[int, int], plan: Plan) -> int | None:
        """Run a kernel on some rows of a task; returns the row whose next token it cannot choose, or None.

        A task is a named tuple of arguments; its `done_B` counts the tokens that are done.
        """
        is_stuck = False
        while True:
            arrays = (*self.source.arrays, plan, self.lists, self.directory, self.spare, self.scratch)
            before = int(task.done_B.sum())
            status, row = run(rows, *task, *arrays)
            if status != NO_ROOM:
                return None if status == DONE else int(row)
            self._make_room(is_stuck and int(task.done_B.sum()) == before)
            is_stuck = True

    def _discard_lists(self, pairs: int) -> None:
        """Discard all lists but that of all words, and make room for a number of pairs."""
        powers, text = len(self.plan.betas), self.scratch.text
        begin, end = text.region
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
            np.zeros(_SLOTS, PLACE),
            np.zeros((_SLOTS, 3)),
            np.asarray([max(2 * self.scratch.gathered[0], end), end // BLOCK, 0]),
        )
        text.numbers[EDITION] += 1
        text.numbers[OLDEST] = text.numbers[EDITION]
        text.numbers[USED] = begin
        make_unigrams(self.lists, self.directory, self.spare, self.source.words, self.source.log_probs, self.plan)

    def _make_room(self, is_stuck: bool) -> None:
        """Discard the lists if they have their full size and were not discarded just now; else double the room."""
        pairs = len(self.lists.ids)
        if pairs - int(self.scratch.text.region[1]) >= _MOST_PAIRS and not is_stuck:
            self._discard_lists(pairs)
            return
        self.lists = Lists(*(_doubled(array, axis) for array, axis in zip(self.lists, _AXES, strict=True)))


def _doubled(array: Any, axis: int) -> Any:
    """Return a copy of an array with twice the room along an axis."""
    more = np.empty([size * 2 if k == axis else size for k, size in enumerate(array.shape)], array.dtype)
    more[tuple(slice(size) for size in array.shape)] = array
    return more


def _empty_text(size: int, begin: int) -> Text:
    """Return the counts of an empty text; the lists of its tokens have room from the pair `begin` on."""
    room = max(_OCCURRED_PAIRS, 8 * size) if size else 0
    slots = 2 * _SLOTS if size else 0
    return Text(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(RECENT, np.int64),
        np.zeros(NUMBERS, np.int64),
        np.zeros(slots, ENTRY),
        np.zeros(slots),
        np.zeros(size),
        np.asarray([begin, -(-(begin + room) // BLOCK) * BLOCK]),
    )


def _penalties(plan: Plan) -> tuple[bool, float, float, float]:
    return plan.looks_back, plan.slope, plan.per_time, plan.offset
