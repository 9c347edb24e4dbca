"""The arrays that writing needs, and the call of the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD
from chainrule.fast_paths import Choose
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.writing.compiled import is_compiled
from chainrule.ngram.writing.cut_kernels import FIELDS
from chainrule.ngram.writing.draw_kernels import BLOCK, BUCKETS, Lists, trailing_bits
from chainrule.ngram.writing.level_kernels import COLUMNS, Directory, Spare
from chainrule.ngram.writing.occurred_kernels import ENTRY
from chainrule.ngram.writing.past_kernels import (
    EDITION,
    NUMBERS,
    RECENT,
    USED,
    Past,
)
from chainrule.ngram.writing.stack_kernels import (
    FEW,
    TOGETHER,
    Plan,
    Scratch,
    make_unigrams,
)
from chainrule.ngram.writing.step_kernels import DONE, MIN_P, NO_ROOM, TOP_K, TOP_P, write_rows
from chainrule.ngram.writing.walk_kernels import find_all_ends
from chainrule.system.parallel import Patience, announce, at_once, cores, stretches

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Operations = tuple[tuple[str, Any], ...]

_FIRST_PAIRS = 1 << 17
_MOST_PAIRS = 1 << 23
"""The most pairs that a thread keeps, of 56 bytes each; when there is room for no more, all are forgotten."""
_OCCURRED_PAIRS = 1 << 22
"""The pairs that lists of tokens that occurred have at least; when there is room for no more, all are forgotten."""
_SLOTS = 1 << 18
_NARROWING = {"top_k": TOP_K, "top_p": TOP_P, "min_p": MIN_P}
_NOTHING_DONE = {("top_p", 1.0), ("min_p", 0.0)}

_AXES = (0, 0, 1, 0, 0, 0, 0, 0)  # of each array of `Lists`, along which there are more and more

_MOST_DESKS = cores()
_WORTH_A_THREAD = 256  # tokens
_PLAIN_NANOSECONDS = (1 << 22) / 100  # for a token the plain way, as a share of compiling: 1,600 tokens come first


def plan_of(operations: Operations | None, automaton: Automaton) -> Plan | None:
    """The plan of operations; None if one is not known, or changes single tokens after another operation."""
    if operations is None:
        return None
    forbidden: list[int] = []
    penalties: list[tuple[str, float]] = []
    temperatures: list[float] = []
    narrowing: list[tuple[int, float, float, int]] = []
    beta = 1.0
    for name, value in operations:
        if name == "temperature":
            temperatures.append(value)
            beta /= value
        elif name in _NARROWING:
            if (name, value) not in _NOTHING_DONE:
                narrowing.append((_NARROWING[name], value, beta, len(temperatures)))
        elif narrowing or temperatures:
            return None
        elif name == "forbid":
            forbidden += value
        elif name.endswith("_penalty"):
            if name == "repetition_penalty" and any(strength < 0 for _, strength in penalties):
                return None  # it divides what is above 0 by then
            penalties.append((name, value))
        else:
            return None
    others = {b for kind, _, b, _ in narrowing if kind == TOP_P} - {beta}
    betas = [*sorted(others), beta]
    kinds, numbers, powers, cooled = zip(*narrowing, strict=True) if narrowing else ((), (), (), ())
    return Plan(
        automaton.codes[np.asarray(sorted(set(forbidden)), dtype=np.int64)],
        bool(penalties),
        *_together(penalties),
        np.asarray(kinds, dtype=np.int64),
        np.asarray(numbers, dtype=np.float64),
        np.asarray([betas.index(b) if b in betas else -1 for b in powers], dtype=np.int64),
        np.asarray(cooled, dtype=np.int64),
        np.asarray(temperatures, dtype=np.float64),
        np.asarray(betas, dtype=np.float64),
        float(max(betas)),
        bool(narrowing) or beta > 1,
        float(automaton.log_alpha),
    )


def _together(penalties: list[tuple[str, float]]) -> tuple[float, float, float]:
    """The slope, per_time and offset of `Plan`."""
    slope, per_time, offset = 1.0, 0.0, 0.0
    for name, strength in penalties:
        if name == "repetition_penalty":
            slope, per_time, offset = slope * strength, per_time * strength, offset * strength
        elif name == "frequency_penalty":
            per_time += strength
        else:
            offset += strength
    return float(slope), float(per_time), float(offset)


class Task(NamedTuple):
    """Rows to be written, and how far they are."""

    ends_BN: Ints
    """The nodes of the last 1, 2, ... words of each row, from column 1 on; column 0 as `find_all_ends` has it."""
    uniforms_BT: Floats
    read_BT: Ints
    end: int
    tokens_BT: Ints
    scores_BT: Floats
    done_B: Ints
    """The number of columns that are written in each row."""


@dataclass
class Desk:
    """The lists of one thread, for the powers of one kind of plan, and its scratch arrays."""

    automaton: Automaton
    plan: Plan
    lists: Lists = field(init=False)
    directory: Directory = field(init=False)
    spare: Spare = field(init=False)
    scratch: Scratch = field(init=False)

    def __post_init__(self) -> None:
        size, order = self.automaton.trie.vocab_size, self.automaton.trie.order
        self.model = frozen(self.automaton)
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
        trie, prob, back, words = self.model
        is_stuck = False
        while True:
            arrays = (trie, prob, back, words, plan, self.lists, self.directory, self.spare, self.scratch)
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
            np.zeros((_SLOTS, 2)),
            np.asarray([max(2 * self.scratch.gathered[0], end), end // BLOCK, 0]),
        )
        past.numbers[EDITION] += 1
        past.numbers[USED] = begin
        make_unigrams(self.lists, self.directory, self.spare, self.model[3], self.model[1], self.plan)

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


class Writer:
    """Writes with an automaton; threads that write at the same time have a desk each."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.trie = frozen(automaton)[0]
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

    def write(
        self, words_BN: Ints, choose: Choose, uniforms_BT: Floats, read_BT: Ints
    ) -> tuple[Ints, Floats, Ints] | None:
        """A token for each column after the words of each row, its ln p, and the state of each row after them.

        None if the choice has no plan, or if it is too early to compile kernels.
        """
        plan = plan_of(choose.operations, self.automaton)
        if plan is None or not self.is_ready(write_rows, uniforms_BT.size):
            return None
        rows, order = len(words_BN), self.automaton.trie.order
        task = Task(
            np.zeros((rows, order), np.int64),
            np.ascontiguousarray(uniforms_BT, dtype=np.float64),
            np.ascontiguousarray(read_BT, dtype=np.int64),
            PAD if choose.end is None else choose.end,
            np.full(uniforms_BT.shape, PAD, dtype=np.int64),
            np.zeros(uniforms_BT.shape),
            np.zeros(rows, np.int64),
        )
        find_all_ends(words_BN, self.trie, task.ends_BN)

        def write_some(some: tuple[int, int]) -> None:
            desk = self.take_desk(plan)
            while (row := desk.advance(write_rows, task, some, plan)) is not None:
                self._choose_plainly(task, row, words_BN[row], choose)
            self.put_back(desk)

        at_once(write_some, stretches(rows, min(cores(), task.tokens_BT.size // _WORTH_A_THREAD)))
        # the state is the node of the longest context: the columns hold the nodes of longer and longer ones
        task.ends_BN[:, 0] = 0
        longest = order - 1 - np.argmax(task.ends_BN[:, ::-1] > 0, axis=1)
        return task.tokens_BT, task.scores_BT, task.ends_BN[np.arange(rows), longest]

    def take_desk(self, plan: Plan) -> Desk:
        """A desk that no other thread uses, with lists that suit a plan."""
        while self._desks:
            desk = self._desks.pop()
            if desk.fits(plan):
                return desk
        return Desk(self.automaton, plan)

    def put_back(self, desk: Desk) -> None:
        """Keep a desk for what is written next."""
        self._desks = [desk, *self._desks][:_MOST_DESKS]

    def _choose_plainly(self, task: Task, row: int, words: Ints, choose: Choose) -> None:
        """Choose the next token of a row from the probabilities of all tokens, and walk on."""
        t = int(task.done_B[row])
        history = np.concatenate([words, task.tokens_BT[row, :t]])[t:]
        log_probs_BV = self.automaton.next_after(history[None])
        read_BT = np.concatenate([task.read_BT[row], task.tokens_BT[row, :t]])[None]
        tokens, scores, going = choose(
            log_probs_BV, task.uniforms_BT[row, t : t + 1], np.ones(1, bool), lambda: read_BT
        )
        task.tokens_BT[row, t], task.scores_BT[row, t] = tokens[0], scores[0]
        task.done_B[row] = t + 1 if going[0] else task.tokens_BT.shape[1]
        if tokens[0] != PAD:
            find_all_ends(np.append(history, tokens)[None, 1:], self.trie, task.ends_BN[row : row + 1])


def frozen(automaton: Automaton) -> tuple[Any, ...]:
    """The arrays of an automaton, and the word of each code, read-only: Numba compiles for each such type anew."""
    named: tuple[Any, ...] = (automaton.trie_arrays, *automaton.value_arrays)
    return (*(arrays._make(map(_read_only, arrays)) for arrays in named), _read_only(automaton.words))


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view(np.ndarray)
        value.flags.writeable = False
    return value
