"""Which tokens stand in which batch.

A text is one array of ids, each line ended by </s>. A row of a batch is a stretch of it: the targets are the tokens
of the stretch, the inputs the token before each. There are three ways to cut a text into rows:

    Windows   context flows, the network reads a window: windows in random order, cut elsewhere in each epoch
    Streams   context flows, the network carries its memory: as many streams as there are rows, read in order
    Lines     a line is a sequence: lines of like length together, long ones in pieces

In each of them every token is a target exactly once an epoch. Chance depends on the seed and the number of the
epoch only: epoch and step are all that is needed to go on from anywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from chainrule.lm import Context
from chainrule.tokens.base import line_bounds

OVERLAP = 4
"""A later piece of a line reads the last quarter of its length again, as context."""

_SHORTEST = 5  # tokens of a step whose length varies
_VALIDATION_STEPS = 8  # of a stream, at least


@dataclass(frozen=True)
class Rows:
    """Stretches of a text, one for each row of a batch."""

    starts_B: np.ndarray
    """Where the first target stands."""
    lengths_B: np.ndarray
    skips_B: np.ndarray
    """How many targets at the beginning are not predicted: the tokens are there as context only."""
    width: int
    """How many columns the batch has; short rows are filled up with PAD."""

    @property
    def targets(self) -> int:
        """How many tokens are predicted."""
        return int(self.lengths_B.sum() - self.skips_B.sum())

    @property
    def is_full(self) -> bool:
        """Whether no place is PAD."""
        return bool((self.lengths_B == self.width).all() and not self.skips_B.any())


@dataclass(frozen=True)
class Step:
    """The rows of one optimiser step, in parts that fit into memory."""

    parts: list[Rows]
    scale: float = 1.0
    """What the learning rate is multiplied with, so that tokens of streams in a short step weigh as others do."""
    targets: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", sum(part.targets for part in self.parts))


@dataclass(frozen=True)
class Size:
    """How large batches are, in tokens."""

    length: int
    """Of a row."""
    step: int
    at_once: int

    @property
    def rows(self) -> int:
        """Rows of a step."""
        return max(1, self.step // self.length)

    @property
    def rows_at_once(self) -> int:
        """Rows in memory."""
        return max(1, min(self.at_once, self.step) // self.length)


class Epoch(ABC):
    """The steps of one pass over the text."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, number: int) -> Step: ...


class Layout(ABC):
    """A way to cut a text into batches."""

    carries = False
    """Whether what the network remembers of each part goes on into the same part of the next step."""
    size: Size
    one_shape = True
    """Whether every part of a step has as many rows, the last parts apart, and all are of one width."""

    @abstractmethod
    def epoch(self, number: int | None) -> Epoch:
        """The steps of an epoch; None: without chance, to validate."""

    @abstractmethod
    def count(self, number: int | None) -> int:
        """How many steps an epoch has, without making it."""

    def steps(self, epochs: float) -> int:
        """How many steps so many epochs have, at least one."""
        whole = int(epochs)
        steps = sum(self.count(number) for number in range(whole))
        if epochs > whole:
            steps += round((epochs - whole) * self.count(whole))
        return max(1, steps)


def choose_layout(
    ids: np.ndarray, eos: int, context: Context, window: int | None, size: Size, seed: int, *, vary: bool = False
) -> Layout:
    """The layout for a network that reads `window` tokens at once, or carries its memory on (None)."""
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
        """What stands before the first whole window, and after the last, is a short row."""
        first, generator = self._first(number)
        starts = np.arange(first, self.tokens, self.size.length)
        ends = np.minimum(starts + self.size.length, self.tokens)
        starts = np.maximum(starts, 0)
        order = np.arange(len(starts)) if generator is None else generator.permutation(len(starts))
        return _WindowsOfEpoch(starts[order], (ends - starts)[order], self.size)

    def count(self, number: int | None) -> int:
        """It depends on the offset: there may be one short row more."""
        windows = math.ceil((self.tokens - self._first(number)[0]) / self.size.length)
        return math.ceil(windows / self.size.rows)

    def _first(self, number: int | None) -> tuple[int, np.random.Generator | None]:
        """Where the first window begins, mostly before the text, and what the order is drawn from."""
        if number is None:
            return 0, None
        generator = np.random.default_rng((self.seed % 2**64, number))
        return -int(generator.integers(self.size.length)), generator


@dataclass(frozen=True)
class _WindowsOfEpoch(Epoch):
    starts: np.ndarray
    lengths: np.ndarray
    size: Size

    def __len__(self) -> int:
        return math.ceil(len(self.starts) / self.size.rows)

    def __getitem__(self, number: int) -> Step:
        rows = slice(number * self.size.rows, (number + 1) * self.size.rows)
        return Step(_in_parts(self.starts[rows], self.lengths[rows], self.size.length, self.size.rows_at_once))


# -- streams ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Streams(Layout):
    """The text in as many stretches as there are rows, all read in order; their lengths differ by one at most.

    Of a short text there are fewer, to validate still fewer: tokens of short stretches have little before them.
    """

    tokens: int
    size: Size
    seed: int
    vary: bool = False
    carries = True

    @property
    def one_shape(self) -> bool:  # type: ignore[override]
        """Unless lengths vary: the last step of an epoch is filled up."""
        return not self.vary

    def epoch(self, number: int | None) -> Epoch:
        """Only the lengths of steps are left to chance."""
        steps = _VALIDATION_STEPS if number is None else 1
        rows = min(self.size.rows, max(1, self.tokens // (steps * self.size.length)))
        bounds = np.arange(rows + 1) * self.tokens // rows
        longest = int(np.diff(bounds).max())
        if self.vary and number is not None:
            cuts = self._varied(longest, number)
        else:
            cuts = np.arange(0, longest, self.size.length)
        return _StreamsOfEpoch(bounds, np.append(cuts, longest), self.size, self.vary)

    def count(self, number: int | None) -> int:
        """There is little to an epoch."""
        return len(self.epoch(number))

    def _varied(self, longest: int, number: int) -> np.ndarray:
        """Where steps begin: mostly about `length` apart, one time in twenty about half of it."""
        generator = np.random.default_rng((self.seed % 2**64, number))
        count = -(-longest // _SHORTEST)
        means = np.where(generator.random(count) < 0.95, self.size.length, self.size.length / 2)
        lengths = np.maximum(_SHORTEST, generator.normal(means, 5).astype(np.int64))
        cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cuts[cuts < longest]


@dataclass(frozen=True)
class _StreamsOfEpoch(Epoch):
    bounds: np.ndarray
    """Where rows begin in the text; the last one is its end."""
    cuts: np.ndarray
    """Where steps begin in rows; the last one is the end of the longest."""
    size: Size
    vary: bool

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, number: int) -> Step:
        first, last = int(self.cuts[number]), int(self.cuts[number + 1])
        # the last step of an epoch may be short: it is filled up, so that all steps have one shape
        width = last - first if self.vary else self.size.length
        starts = self.bounds[:-1] + first
        lengths = np.clip(self.bounds[1:] - starts, 0, last - first)
        return Step(_in_parts(starts, lengths, width, self.size.rows_at_once), (last - first) / self.size.length)


def _in_parts(starts: np.ndarray, lengths: np.ndarray, width: int, at_once: int) -> list[Rows]:
    """Rows without skips, some at once."""
    parts = []
    for low in range(0, len(starts), at_once):
        some = slice(low, low + at_once)
        parts.append(Rows(starts[some], lengths[some], np.zeros_like(starts[some]), width))
    return parts


# -- lines ------------------------------------------------------------------------------------------------


class Lines(Layout):
    """Lines of like length together, the batches in random order; long lines are cut into pieces.

    A later piece begins with `overlap` tokens of the one before, which are read and not predicted.
    """

    one_shape = False

    def __init__(self, starts: np.ndarray, ends: np.ndarray, overlap: int, size: Size, seed: int) -> None:
        self.size, self.seed = size, seed
        stride = size.length - overlap
        pieces = 1 + np.maximum(0, -(-(ends - starts - size.length) // stride))
        line = np.repeat(np.arange(len(starts)), pieces)
        number = np.arange(len(line)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self.starts = starts[line] + number * stride
        self.lengths = np.minimum(size.length, ends[line] - self.starts)
        self.skips = np.where(number > 0, overlap, 0)
        self.bounds = _bounds(np.sort(self.lengths), size.step)

    def epoch(self, number: int | None) -> Epoch:
        """Which of the lines of one length stand together is left to chance, and the order of batches."""
        generator = None if number is None else np.random.default_rng((self.seed % 2**64, number))
        count = len(self.starts)
        order = np.arange(count) if generator is None else generator.permutation(count)
        order = order[np.argsort(self.lengths[order], kind="stable")]
        batches = np.arange(len(self.bounds) - 1)
        return _LinesOfEpoch(self, order, batches if generator is None else generator.permutation(batches))

    def count(self, number: int | None) -> int:
        """The same in all epochs: which lengths stand together is not left to chance."""
        return len(self.bounds) - 1


@dataclass(frozen=True)
class _LinesOfEpoch(Epoch):
    lines: Lines
    order: np.ndarray
    batches: np.ndarray

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Step:
        batch = self.batches[number]
        rows = self.order[self.lines.bounds[batch] : self.lines.bounds[batch + 1]]
        bounds = _bounds(self.lines.lengths[rows], self.lines.size.at_once)
        return Step([self._rows(rows[low:high]) for low, high in pairwise(bounds)])

    def _rows(self, rows: np.ndarray) -> Rows:
        lengths = self.lines.lengths[rows]
        return Rows(self.lines.starts[rows], lengths, self.lines.skips[rows], int(lengths[-1]))


def _bounds(lengths: np.ndarray, most: int) -> np.ndarray:
    """Where batches of at most `most` places, PAD included, begin among rows that go from short to long."""
    bounds = [0]
    while bounds[-1] < len(lengths):
        first = bounds[-1]
        # rows · longest grows with the rows: the most that fit are found by halving
        low, high = 1, len(lengths) - first
        while low < high:
            middle = (low + high + 1) // 2
            if middle * int(lengths[first + middle - 1]) <= most:
                low = middle
            else:
                high = middle - 1
        bounds.append(first + low)
    return np.asarray(bounds)
