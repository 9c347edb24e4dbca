"""Layouts: how a text is cut into rows, batches and epochs.

A text is one array of ids, each line ended by </s>. A row of a batch is a stretch of it: the targets are the tokens
of the stretch, the inputs the token before each. There are three ways to cut a text into rows:

    Windows   context flows, the network reads a window: windows in random order, at another offset in each epoch
    Streams   context flows, the network carries its memory: as many streams as there are rows, read in order
    Lines     a line is a sequence: lines of similar length together, long ones in pieces

In each of them every token is a target exactly once an epoch. Randomness depends only on the seed and the number of
the epoch: epoch and step are all that is needed to resume anywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from chainrule.contract.lm import Context
from chainrule.networks.training_settings import EPOCHS, TrainingSettings
from chainrule.tokens.base import line_bounds

OVERLAP = 4
"""The pieces of a long line overlap by 1/OVERLAP of a row's length, which is read again as context."""

_SHORTEST = 5  # the least length of a row, in tokens, where lengths vary
_VALIDATION_STEPS = 8  # the least number of steps over a stream in validation


# -- rows, steps, epochs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Stretches of a text, one for each row of a batch."""

    starts_B: np.ndarray
    """The index in the text of the first target of each row."""
    lengths_B: np.ndarray
    skips_B: np.ndarray
    """The number of tokens at the beginning of each row that are read as context and not predicted."""
    width: int
    """The number of columns of the batch; short rows are filled up with PAD."""
    epoch: int | None = None
    """The number of the epoch; None: a validation."""
    predicted: int | None = None
    """How many tokens the objective predicts; None: all but those that are skipped."""
    room: tuple[int, int] | None = None
    """The rows and columns, one of few such shapes, up to which the batch may be filled; None: of any shape."""
    is_filled: bool = False
    """True if it is filled: then every side of the batch has `width` columns, the sources too."""

    @property
    def targets(self) -> int:
        """How many tokens are predicted."""
        if self.predicted is not None:
            return self.predicted
        return int(self.lengths_B.sum() - self.skips_B.sum())

    @property
    def is_full(self) -> bool:
        """Return True if no position is PAD."""
        return bool((self.lengths_B == self.width).all() and not self.skips_B.any())

    def taken(self, which: slice) -> Rows:
        """Return some of the rows."""
        return Rows(self.starts_B[which], self.lengths_B[which], self.skips_B[which], self.width, self.epoch)

    def every(self, first: int, stride: int) -> Rows:
        """Return the rows `first`, `first + stride`, ...; if there are none, one empty row."""
        if first >= len(self.starts_B):
            return Rows(self.starts_B[:1], self.lengths_B[:1] * 0, self.skips_B[:1] * 0, self.width, self.epoch)
        return self.taken(slice(first, None, stride))


@dataclass(frozen=True)
class Step:
    """The rows of one optimiser step, in micro-batches that fit into memory."""

    parts: list[Rows]
    scale: float = 1.0
    """The factor of the learning rate: a short step over streams counts in proportion to its length."""
    of: int | None = None
    """The targets of the whole step if `parts` are the rows of one process only; None: `parts` are all rows."""

    @cached_property
    def targets(self) -> int:
        """The number of targets of the whole step."""
        return sum(part.targets for part in self.parts) if self.of is None else self.of


@dataclass(frozen=True)
class Size:
    """The size of rows and batches, in tokens."""

    length: int
    """Tokens of a row."""
    step: int
    """Tokens of an optimiser step."""
    at_once: int
    """Tokens of a micro-batch."""
    examples: int | None = None
    """Lines or rows of a step in training, whatever their length; None: as many as `step` has room for."""

    @property
    def rows(self) -> int:
        """Rows of a step."""
        return self.examples or max(1, self.step // self.length)

    @property
    def rows_at_once(self) -> int:
        """Rows of a micro-batch."""
        return min(self.rows, max(1, min(self.at_once, self.step) // self.length))


@dataclass(frozen=True)
class Epoch:
    """The steps of one pass over the text; `epoch[number]` makes one of them."""

    count: int
    make: Callable[[int], Step]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Step:
        return self.make(number)


class Layout(ABC):
    """A way to cut a text into batches."""

    carries = False
    """True if the memory after a micro-batch carries over to the same micro-batch of the next step."""
    size: Size
    tokens: int
    """The number of targets of an epoch."""
    one_shape = True
    """True if all micro-batches have one width and, apart from the last one of a step, equally many rows."""
    few_shapes = False
    """True if every micro-batch may be filled up to one of few shapes."""

    @property
    def read(self) -> int:
        """The number of tokens that an epoch reads, targets or not."""
        return self.tokens

    @property
    def is_capturable(self) -> bool:
        """True if nearly every step is one micro-batch of one shape, or of few."""
        if self.few_shapes:
            return self.size.step <= self.size.at_once
        return self.one_shape and self.size.rows <= self.size.rows_at_once

    @abstractmethod
    def epoch(self, number: int | None) -> Epoch:
        """Return the steps of an epoch; None: the steps of a validation, without randomness."""

    def count(self, number: int | None) -> int:
        """Return the number of steps of an epoch."""
        return len(self.epoch(number))

    def validation(self, most_steps: int | None = None) -> list[Step]:
        """Return the steps of a validation, or only the first `most_steps` of them."""
        epoch = self.epoch(None)
        return [epoch[number] for number in range(len(epoch))[:most_steps]]

    def steps(self, epochs: float) -> int:
        """Return the number of steps of the first `epochs` epochs, at least one."""
        whole = int(epochs)
        steps = sum(self.count(number) for number in range(whole))
        if epochs > whole:
            steps += round((epochs - whole) * self.count(whole))
        return max(1, steps)

    def planned(self, settings: TrainingSettings) -> int | None:
        """Return the number of steps that `steps` or `epochs` ask for; None if only `minutes` limits the run."""
        if settings.steps is not None:
            return settings.steps
        if settings.epochs is None and settings.minutes is not None:
            return None
        return self.steps(settings.epochs or EPOCHS)


class Predicting(Layout):
    """The layout `of`, for an objective that predicts only `predicted(rows)` of the tokens of some rows."""

    def __init__(self, of: Layout, predicted: Callable[[Rows], int]) -> None:
        self.of, self.predicted = of, predicted
        self.carries, self.size, self.one_shape = of.carries, of.size, of.one_shape

    @property
    def read(self) -> int:
        return self.of.tokens

    @cached_property
    def tokens(self) -> int:  # type: ignore[override]
        """The number of targets of a validation; that of an epoch is about the same."""
        return sum(step.targets for step in self.validation())

    def epoch(self, number: int | None) -> Epoch:
        steps = self.of.epoch(number)

        def counted(step: int) -> Step:
            found = steps[step]
            return Step([replace(rows, predicted=self.predicted(rows)) for rows in found.parts], found.scale)

        return Epoch(len(steps), counted)

    def count(self, number: int | None) -> int:
        return self.of.count(number)


def choose_layout(
    ids: np.ndarray, eos: int, context: Context, window: int | None, size: Size, seed: int, *, vary: bool = False
) -> Layout:
    """Return the layout for a network that reads `window` tokens at once, or (None) carries its memory on."""
    if context == "line":
        overlap = 0 if window is None else size.length // OVERLAP
        return Lines(*line_bounds(ids, eos), overlap, size, seed)
    size = replace(size, length=min(size.length, len(ids)))  # a row is no longer than the text
    return Streams(len(ids), size, seed, vary=vary) if window is None else Windows(len(ids), size, seed)


# -- windows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows(Layout):
    """Windows in random order, cut at another offset in each epoch."""

    tokens: int
    size: Size
    seed: int

    def epoch(self, number: int | None) -> Epoch:
        """Return the windows in random order; at both ends of the text there may be a shorter one."""
        first, generator = self._first(number)
        starts = np.arange(first, self.tokens, self.size.length)
        ends = np.minimum(starts + self.size.length, self.tokens)
        starts = np.maximum(starts, 0)
        order = np.arange(len(starts)) if generator is None else generator.permutation(len(starts))
        starts, lengths = starts[order], (ends - starts)[order]

        def step(index: int) -> Step:
            rows = slice(index * self.size.rows, (index + 1) * self.size.rows)
            return Step(_in_parts(starts[rows], lengths[rows], self.size.length, self.size.rows_at_once, number))

        return Epoch(math.ceil(len(starts) / self.size.rows), step)

    def count(self, number: int | None) -> int:
        """Return the number of steps, which depends on the offset: there may be one short row more."""
        windows = math.ceil((self.tokens - self._first(number)[0]) / self.size.length)
        return math.ceil(windows / self.size.rows)

    def _first(self, number: int | None) -> tuple[int, np.random.Generator | None]:
        """Return the index of the first window, 0 or before the text, and the random generator of the order."""
        if number is None:
            return 0, None
        generator = np.random.default_rng((self.seed % 2**64, number))
        return -int(generator.integers(self.size.length)), generator


def _in_parts(
    starts: np.ndarray, lengths: np.ndarray, width: int, at_once: int, epoch: int | None = None
) -> list[Rows]:
    """Return rows without skips, in micro-batches of at most `at_once` rows."""
    parts = []
    for low in range(0, len(starts), at_once):
        some = slice(low, low + at_once)
        parts.append(Rows(starts[some], lengths[some], np.zeros_like(starts[some]), width, epoch))
    return parts


# -- streams ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Streams(Layout):
    """The text in as many stretches as there are rows, all read in order; their lengths differ by one at most.

    A short text has fewer rows, and fewer still in validation: tokens of short stretches have little context.
    """

    tokens: int
    size: Size
    seed: int
    vary: bool = False
    carries = True

    @property
    def one_shape(self) -> bool:  # type: ignore[override]
        """True unless lengths vary: the last step of an epoch is padded."""
        return not self.vary

    def epoch(self, number: int | None) -> Epoch:
        """Return the steps of an epoch, of random lengths if lengths vary; nothing else is random."""
        steps = _VALIDATION_STEPS if number is None else 1
        rows = min(self.size.rows, max(1, self.tokens // (steps * self.size.length)))
        bounds = np.arange(rows + 1) * self.tokens // rows
        longest = int(np.diff(bounds).max())
        if self.vary and number is not None:
            cuts = self._varied(longest, number)
        else:
            cuts = np.arange(0, longest, self.size.length)
        cuts = np.append(cuts, longest)  # where each step begins in a row, and the end of the longest row

        def step(index: int) -> Step:
            first, last = int(cuts[index]), int(cuts[index + 1])
            # the last step of an epoch may be short: it is padded, so that all steps have one shape
            width = last - first if self.vary else self.size.length
            starts = bounds[:-1] + first
            lengths = np.clip(bounds[1:] - starts, 0, last - first)
            parts = _in_parts(starts, lengths, width, self.size.rows_at_once)
            return Step(parts, scale=(last - first) / self.size.length)

        return Epoch(len(cuts) - 1, step)

    def _varied(self, longest: int, number: int) -> np.ndarray:
        """Return random places where steps begin: mostly about `length` apart, one in twenty about half of it."""
        generator = np.random.default_rng((self.seed % 2**64, number))
        count = -(-longest // _SHORTEST)
        means = np.where(generator.random(count) < 0.95, self.size.length, self.size.length / 2)
        lengths = np.maximum(_SHORTEST, generator.normal(means, 5).astype(np.int64))
        cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cuts[cuts < longest]


# -- lines ------------------------------------------------------------------------------------------------


def in_pieces(
    starts: np.ndarray, ends: np.ndarray, length: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cut lines into pieces of at most `length` tokens; a later piece begins with `overlap` of the one before.

    Return, for each piece, the number of its line, its start, its length, and how many of its first tokens are
    only context.

    >>> [found.tolist() for found in in_pieces(np.array([0, 10]), np.array([10, 14]), 6, 2)]
    [[0, 0, 1], [0, 4, 10], [6, 6, 4], [0, 2, 0]]
    """
    stride = length - overlap
    pieces = 1 + np.maximum(0, -(-(ends - starts - length) // stride))
    line = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(len(line)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[line] + number * stride
    return line, first, np.minimum(length, ends[line] - first), np.where(number > 0, overlap, 0)


class Lines(Layout):
    """Lines of similar length together, the batches in random order; long lines are cut into pieces.

    If the size of a step is a number of examples, lines of any length are together, in random order.
    A later piece begins with `overlap` tokens of the one before, which are read and not predicted.
    """

    one_shape = False

    def __init__(
        self,
        starts: np.ndarray,
        ends: np.ndarray,
        overlap: int,
        size: Size,
        seed: int,
        sizes: np.ndarray | None = None,
        skips: np.ndarray | None = None,
        most: int | None = None,
    ) -> None:
        """`sizes` are the tokens that each line takes in a batch, if more than its own; lines are then not cut.

        `skips` are the first tokens of each line that are read and not predicted; nor are lines cut with them.
        With `most`, the most columns of a batch, lines that round up to one width are together: shapes are few.
        """
        self.size, self.seed = size, seed
        _, self.starts, self.lengths, self.skips = in_pieces(starts, ends, size.length, overlap)
        if skips is not None:
            self.skips = skips
        self.tokens = int(self.lengths.sum() - self.skips.sum())
        self.sizes = self.lengths if sizes is None else sizes
        if most is not None and size.examples is None:
            self.few_shapes, self.sizes = True, np.minimum(rounded_widths(self.sizes), most)
        self.bounds = _bounds(np.sort(self.sizes), size.step)

    @property
    def read(self) -> int:
        return int(self.lengths.sum())

    def epoch(self, number: int | None) -> Epoch:
        """Return the batches in random order; which lines of equal length share a batch is random, too."""
        generator = None if number is None else np.random.default_rng((self.seed % 2**64, number))
        count = len(self.starts)
        order = np.arange(count) if generator is None else generator.permutation(count)
        bounds = self._bounds_of(number)
        if bounds is self.bounds:
            order = order[np.argsort(self.sizes[order], kind="stable")]
        batches = np.arange(len(bounds) - 1)
        batches = batches if generator is None else generator.permutation(batches)

        def part(rows: np.ndarray) -> Rows:
            lengths, room = self.lengths[rows], None
            if self.few_shapes:
                wide = int(self.sizes[rows].max())
                room = max(1, min(self.size.at_once, self.size.step) // wide), wide
            return Rows(self.starts[rows], lengths, self.skips[rows], int(lengths.max()), number, room=room)

        def step(index: int) -> Step:
            batch = batches[index]
            rows = order[bounds[batch] : bounds[batch + 1]]
            rows = rows[np.argsort(self.sizes[rows], kind="stable")]
            fitting = _bounds(self.sizes[rows], self.size.at_once)
            return Step([part(rows[low:high]) for low, high in pairwise(fitting)])

        return Epoch(len(batches), step)

    def count(self, number: int | None) -> int:
        """Return the number of steps, the same in all epochs: which lengths share a batch is not random."""
        return len(self._bounds_of(number)) - 1

    def _bounds_of(self, number: int | None) -> np.ndarray:
        """Return the bounds of the batches among the lines of an epoch, or of a validation."""
        if self.size.examples is None or number is None:
            return self.bounds
        return np.append(np.arange(0, len(self.starts), self.size.examples), len(self.starts))


def rounded_widths(lengths: np.ndarray) -> np.ndarray:
    """Return lengths rounded up to widths of which there are few: four between a length and its double.

    >>> rounded_widths(np.array([1, 8, 9, 13, 17, 33, 34, 65])).tolist()
    [4, 8, 12, 16, 20, 40, 40, 80]
    """
    doublings = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    unit = np.maximum(4, 1 << np.maximum(doublings - 3, 0))
    widths: np.ndarray = -(-lengths // unit) * unit
    return widths


def _bounds(lengths: np.ndarray, most: int) -> np.ndarray:
    """Return the bounds of batches of at most `most` positions, padding included, among rows sorted by length."""
    ends, bounds = range(len(lengths) + 1), [0]

    def positions(end: int) -> int:
        return (end - bounds[-1]) * int(lengths[end - 1])

    while (first := bounds[-1]) < len(lengths):
        # rows · longest grows with the rows; one row is a batch even if it has too many
        bounds.append(max(first + 1, bisect_right(ends, most, lo=first + 1, key=positions) - 1))
    return np.asarray(bounds)
