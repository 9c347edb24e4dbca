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
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from chainrule.contract.lm import Context
from chainrule.tokens.base import line_bounds
from chainrule.training.batches.rows import Epoch, Layout, Rows, Size, Step

OVERLAP = 4
"""The pieces of a long line overlap by 1/OVERLAP of a row's length, which is read again as context."""

_SHORTEST = 5  # the least length of a row, in tokens, where lengths vary
_VALIDATION_STEPS = 8  # the least number of steps over a stream in validation


def choose_layout(
    ids: np.ndarray, eos: int, context: Context, window: int | None, size: Size, seed: int, *, vary: bool = False
) -> Layout:
    """The layout for a network that reads `window` tokens at once, or (None) carries its memory between batches."""
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
        """The windows in random order; tokens before the first whole window, and after the last, are short rows."""
        first, generator = self._first(number)
        starts = np.arange(first, self.tokens, self.size.length)
        ends = np.minimum(starts + self.size.length, self.tokens)
        starts = np.maximum(starts, 0)
        order = np.arange(len(starts)) if generator is None else generator.permutation(len(starts))
        return _WindowsOfEpoch(starts[order], (ends - starts)[order], self.size, number)

    def count(self, number: int | None) -> int:
        """The number of steps, which depends on the offset: there may be one short row more."""
        windows = math.ceil((self.tokens - self._first(number)[0]) / self.size.length)
        return math.ceil(windows / self.size.rows)

    def _first(self, number: int | None) -> tuple[int, np.random.Generator | None]:
        """The index of the first window, 0 or before the text, and the random generator of the order."""
        if number is None:
            return 0, None
        generator = np.random.default_rng((self.seed % 2**64, number))
        return -int(generator.integers(self.size.length)), generator


@dataclass(frozen=True)
class _WindowsOfEpoch(Epoch):
    starts: np.ndarray
    lengths: np.ndarray
    size: Size
    number: int | None

    def __len__(self) -> int:
        return math.ceil(len(self.starts) / self.size.rows)

    def __getitem__(self, number: int) -> Step:
        rows = slice(number * self.size.rows, (number + 1) * self.size.rows)
        width, at_once = self.size.length, self.size.rows_at_once
        return Step(_in_parts(self.starts[rows], self.lengths[rows], width, at_once, self.number))


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
        """The steps of an epoch, of random lengths if lengths vary; nothing else is random."""
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
        """The number of steps, from the epoch itself, which costs little to make."""
        return len(self.epoch(number))

    def _varied(self, longest: int, number: int) -> np.ndarray:
        """Random positions where steps begin: mostly about `length` apart, one time in twenty about half of it."""
        generator = np.random.default_rng((self.seed % 2**64, number))
        count = -(-longest // _SHORTEST)
        means = np.where(generator.random(count) < 0.95, self.size.length, self.size.length / 2)
        lengths = np.maximum(_SHORTEST, generator.normal(means, 5).astype(np.int64))
        cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cuts[cuts < longest]


@dataclass(frozen=True)
class _StreamsOfEpoch(Epoch):
    bounds: np.ndarray
    """The index in the text where each row begins, and the end of the text."""
    cuts: np.ndarray
    """The index in a row where each step begins, and the end of the longest row."""
    size: Size
    vary: bool

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, number: int) -> Step:
        first, last = int(self.cuts[number]), int(self.cuts[number + 1])
        # the last step of an epoch may be short: it is padded, so that all steps have one shape
        width = last - first if self.vary else self.size.length
        starts = self.bounds[:-1] + first
        lengths = np.clip(self.bounds[1:] - starts, 0, last - first)
        return Step(_in_parts(starts, lengths, width, self.size.rows_at_once), (last - first) / self.size.length)


def _in_parts(
    starts: np.ndarray, lengths: np.ndarray, width: int, at_once: int, epoch: int | None = None
) -> list[Rows]:
    """Rows without skips, in micro-batches of at most `at_once` rows."""
    parts = []
    for low in range(0, len(starts), at_once):
        some = slice(low, low + at_once)
        parts.append(Rows(starts[some], lengths[some], np.zeros_like(starts[some]), width, epoch))
    return parts


# -- lines ------------------------------------------------------------------------------------------------


class Lines(Layout):
    """Lines of similar length together, the batches in random order; long lines are cut into pieces.

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
    ) -> None:
        """`sizes` are what lines take in a batch, where that is more than their tokens; they are then not cut."""
        self.size, self.seed = size, seed
        stride = size.length - overlap
        pieces = 1 + np.maximum(0, -(-(ends - starts - size.length) // stride))
        line = np.repeat(np.arange(len(starts)), pieces)
        number = np.arange(len(line)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self.starts = starts[line] + number * stride
        self.lengths = np.minimum(size.length, ends[line] - self.starts)
        self.skips = np.where(number > 0, overlap, 0)
        self.tokens = int(self.lengths.sum() - self.skips.sum())
        self.sizes = self.lengths if sizes is None else sizes
        self.bounds = _bounds(np.sort(self.sizes), size.step)

    def epoch(self, number: int | None) -> Epoch:
        """The batches in random order; which lines of equal length share a batch is random, too."""
        generator = None if number is None else np.random.default_rng((self.seed % 2**64, number))
        count = len(self.starts)
        order = np.arange(count) if generator is None else generator.permutation(count)
        order = order[np.argsort(self.sizes[order], kind="stable")]
        batches = np.arange(len(self.bounds) - 1)
        batches = batches if generator is None else generator.permutation(batches)
        return _LinesOfEpoch(self, order, batches, number)

    def count(self, number: int | None) -> int:
        """The number of steps, the same in all epochs: which lengths share a batch is not random."""
        return len(self.bounds) - 1


@dataclass(frozen=True)
class _LinesOfEpoch(Epoch):
    lines: Lines
    order: np.ndarray
    batches: np.ndarray
    number: int | None

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Step:
        batch = self.batches[number]
        rows = self.order[self.lines.bounds[batch] : self.lines.bounds[batch + 1]]
        bounds = _bounds(self.lines.sizes[rows], self.lines.size.at_once)
        return Step([self._rows(rows[low:high]) for low, high in pairwise(bounds)])

    def _rows(self, rows: np.ndarray) -> Rows:
        lengths = self.lines.lengths[rows]
        width = int(lengths.max())
        return Rows(self.lines.starts[rows], lengths, self.lines.skips[rows], width, self.number)


def _bounds(lengths: np.ndarray, most: int) -> np.ndarray:
    """The bounds of batches of at most `most` positions, padding included, among rows sorted by length."""
    bounds = [0]
    while bounds[-1] < len(lengths):
        first = bounds[-1]
        # rows · longest grows with the rows: a binary search finds the most that fit
        low, high = 1, len(lengths) - first
        while low < high:
            middle = (low + high + 1) // 2
            if middle * int(lengths[first + middle - 1]) <= most:
                low = middle
            else:
                high = middle - 1
        bounds.append(first + low)
    return np.asarray(bounds)
