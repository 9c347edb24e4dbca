"""Walking text through the contexts of a training text: those that end at each token, and their counts.

A level is a context that occurs in training text, given by its range of ranks and its length (see `suffixes`). The
levels of a position are nested, from the empty context to the longest that was seen. Contexts of several lengths
with the same range occurred at the same positions: they are one level, with the greatest of these lengths.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, Array, to_numpy
from chainrule.contract.lm import Context, State
from chainrule.ngram.infinite.suffixes import BLOCK, LONGEST, Ints, Suffixes
from chainrule.system.parallel import Patience, at_once, cores, plain_up_to, stretches

ContextRange = tuple[int, int, int]
"""A level as (lo, hi, length): the ranks [lo, hi) of the context, and its number of tokens."""

Keep = Callable[[slice, slice, Ints, Ints, Ints], None]
"""A callback for the tokens w at some rows and positions of a batch, given as slices, and three arrays:

evidence [K, 4, B, T]: n, N(· h w), N(· h ·) and N(h ·) of each level; used [B, T]: the number of levels;
matched [B, T, 2]: length and count of the longest context that ends in this token.
"""

MOST_LEVELS = 64
"""The most levels of a row: only text that repeats one token has more, and loses its longest contexts."""

_NANOSECONDS = 20_000  # to walk a token in Python; up to 85,000 where there is much training text
FEW = plain_up_to(_NANOSECONDS)
"""The most tokens walked in Python, all calls together, before kernels are loaded; then `_VERY_FEW` a call."""

_VERY_FEW = 32
_KERNELS = "chainrule.ngram.infinite.kernels"
_CELLS = 1024  # tokens whose evidence one thread gathers at a time


@dataclass(frozen=True)
class AnyLengthState(State):
    """The levels of each row."""

    levels_BK3: Ints
    depth_B: Ints

    def __len__(self) -> int:
        return len(self.depth_B)

    def select(self, rows: Array) -> AnyLengthState:
        chosen = to_numpy(rows)
        return AnyLengthState(self.levels_BK3[chosen], self.depth_B[chosen])

    def join(self, other: AnyLengthState) -> AnyLengthState:
        deepest = max(self.levels_BK3.shape[1], other.levels_BK3.shape[1])
        levels = [
            np.pad(state.levels_BK3, ((0, 0), (0, deepest - state.levels_BK3.shape[1]), (0, 0)))
            for state in (self, other)
        ]
        return AnyLengthState(np.concatenate(levels), np.concatenate([self.depth_B, other.depth_B]))

    def row(self, b: int) -> list[ContextRange]:
        """Return the levels of one row."""
        return [(lo, hi, length) for lo, hi, length in self.levels_BK3[b, : self.depth_B[b]].tolist()]


@dataclass(frozen=True)
class Walker:
    """The walk of rows of ids through `suffixes`: in Python up to `few` tokens, else by Numba kernels."""

    suffixes: Suffixes
    bos: int
    eos: int
    context: Context
    few: int = FEW
    _patience: Patience = field(default_factory=lambda: Patience(_NANOSECONDS), repr=False, compare=False)

    @cached_property
    def start(self) -> list[ContextRange]:
        """The levels after <s>: the empty context, and </s>, which lines of training text follow."""
        lo, hi = self.suffixes.starts[self.eos : self.eos + 2].tolist()
        return [(0, len(self.suffixes), 0), (lo, hi, 1)]

    @cached_property
    def resets(self) -> NDArray[np.bool_]:
        """True for each token of the vocabulary that discards the context before it."""
        resets = np.zeros(self.suffixes.vocab_size, dtype=bool)
        resets[self.bos] = True
        resets[self.eos] = self.context == "line"
        return resets

    def walk(self, ids_BT: Ints, state: AnyLengthState, keep: Keep | None = None) -> AnyLengthState:
        """Return the state after the ids; `keep` is called with the evidence for each of them."""
        few = min(self.few, _VERY_FEW) if _KERNELS in sys.modules else self.few
        # many calls with a few tokens each, such as the batches of a long text, are worth the kernels too
        is_slow = ids_BT.size <= few and not (ids_BT.size > _VERY_FEW and self._patience.count(ids_BT.size))
        return (self._walk_slowly if is_slow else self._walk_compiled)(ids_BT, state, keep)

    def _walk_slowly(self, ids_BT: Ints, state: AnyLengthState, keep: Keep | None) -> AnyLengthState:
        """`walk` in Python, one token at a time: the reference for the kernels."""
        ended = []
        for b, row in enumerate(ids_BT.tolist()):
            levels, found, matched = state.row(b), [], []
            for token in row[: row.index(PAD)] if PAD in row else row:
                longer = self._read(levels, token)
                if keep:
                    found.append([self._evidence(*pair) for pair in zip(counted(levels), longer, strict=False)])
                    matched.append(max(((n, hi - lo) for lo, hi, n in longer if hi > lo), default=(0, 0)))
                levels = self.start if self.resets[token] else [levels[0], *_distinct(longer)]
            if keep and found:
                used = np.asarray([[len(known) for known in found]])
                evidence = np.zeros((used.max(), 4, 1, len(found)), dtype=np.int64)
                for t, known in enumerate(found):
                    evidence[: len(known), :, 0, t] = known
                keep(slice(b, b + 1), slice(len(found)), evidence, used, np.asarray([matched]))
            ended.append(levels)
        return state_of(ended)

    def _read(self, levels: list[ContextRange], token: int) -> list[ContextRange]:
        """Return each level's context followed by `token`; each range lies within the one before it."""
        first, last = self.suffixes.starts[token : token + 2].tolist()
        longer = []
        for lo, hi, length in levels:
            first, last = self.suffixes.followed(lo, hi, first, last)
            longer.append((first, last, length + 1))
        return longer

    def _evidence(self, level: ContextRange, longer: ContextRange) -> tuple[int, int, int, int]:
        """Return n, N(· h w), N(· h ·) and N(h ·), where h is the context of `level` and h w that of `longer`."""
        lo, hi, n = level
        fresh = self.suffixes.fresh[lo:hi]
        total, words = (_at_most(fresh, n + 1), _at_most(fresh, n)) if n > 0 else self._counts_of_empty
        return n, _at_most(self.suffixes.shared[longer[0] : longer[1]], n + 1), total, words

    @cached_property
    def _counts_of_empty(self) -> tuple[int, int]:
        return _at_most(self.suffixes.fresh, 1), _at_most(self.suffixes.fresh, 0)

    def _walk_compiled(self, ids_BT: Ints, state: AnyLengthState, keep: Keep | None) -> AnyLengthState:
        """`walk` by Numba kernels, pieces of the batch in parallel."""
        from chainrule.ngram.infinite import kernels

        suffixes, (B, T) = self.suffixes, ids_BT.shape
        levels_BK3 = np.zeros((B, MOST_LEVELS, 3), dtype=np.int64)
        levels_BK3[:, : state.levels_BK3.shape[1]] = state.levels_BK3
        depth_B = state.depth_B.copy()
        start, sizes = np.asarray(self.start), (BLOCK, LONGEST)
        arrays = (suffixes.places, suffixes.starts, suffixes.shared, suffixes.fresh, *suffixes.tables)

        def walk(piece: tuple[int, int]) -> None:
            rows = slice(*piece)
            width = max(1, _CELLS // (piece[1] - piece[0]))
            longer = np.empty((MOST_LEVELS, 3), dtype=np.int64)
            for t in range(0, T, width):
                places = slice(t, min(t + width, T))
                ids = np.ascontiguousarray(ids_BT[rows, places])
                shape = ids.shape if keep else (0, 0)
                evidence = np.empty((MOST_LEVELS, 4, *shape), dtype=np.int64)  # unused levels cost nothing
                used, matched = np.zeros(shape, dtype=np.int64), np.zeros((*shape, 2), dtype=np.int64)
                to = (evidence, used, matched)
                kernels.gather(
                    ids, levels_BK3[rows], depth_B[rows], start, self.resets, *arrays, *sizes, *to, longer
                )
                if keep:
                    keep(rows, places, *to)

        at_once(walk, stretches(B, max(cores(), B * min(T, _CELLS) // _CELLS)))
        return AnyLengthState(levels_BK3[:, : depth_B.max(initial=1)], depth_B)


def state_of(rows: list[list[ContextRange]]) -> AnyLengthState:
    """Return the state whose rows have the given levels."""
    depth_B = np.asarray([len(levels) for levels in rows], dtype=np.int64)
    levels_BK3 = np.zeros((len(rows), int(depth_B.max(initial=1)), 3), dtype=np.int64)
    for b, levels in enumerate(rows):
        levels_BK3[b, : len(levels)] = levels
    return AnyLengthState(levels_BK3, depth_B)


def counted(levels: list[ContextRange]) -> list[ContextRange]:
    """Return the levels that have counts: they differ in their last `LONGEST` tokens; longer lengths are cut."""
    reach = next((k for k, level in enumerate(levels) if level[2] >= LONGEST), len(levels))
    return [(lo, hi, min(length, LONGEST)) for lo, hi, length in levels[: reach + 1]]


def _distinct(longer: list[ContextRange]) -> list[ContextRange]:
    """Return the levels of the contexts that were seen; equal ranges become one level with the greatest length."""
    levels: list[ContextRange] = []
    for lo, hi, length in longer:
        if lo == hi:
            break
        if levels and levels[-1][1] - levels[-1][0] == hi - lo:
            levels[-1] = (lo, hi, length)
        elif len(levels) < MOST_LEVELS - 1:  # one is the empty context's
            levels.append((lo, hi, length))
        else:
            break
    return levels


def _at_most(values: NDArray[np.uint8], limit: int) -> int:
    return int(np.count_nonzero(values <= limit))
