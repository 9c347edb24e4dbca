"""Rows, steps and epochs: what a layout of a text is made of.

A row of a batch is a stretch of a text: its targets are the tokens of the stretch, its inputs those before each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Rows:
    """Stretches of a text, one for each row of a batch."""

    starts_B: np.ndarray
    """The index in the text of the first target of each row."""
    lengths_B: np.ndarray
    skips_B: np.ndarray
    """How many tokens at the beginning of each row are read as context and not predicted."""
    width: int
    """The number of columns of the batch; short rows are filled up with PAD."""
    epoch: int | None = None
    """The number of the epoch; None: a validation."""
    predicted: int | None = None
    """How many tokens the objective predicts; None: all but those that are skipped."""

    @property
    def targets(self) -> int:
        """How many tokens are predicted."""
        if self.predicted is not None:
            return self.predicted
        return int(self.lengths_B.sum() - self.skips_B.sum())

    @property
    def is_full(self) -> bool:
        """Whether no position is PAD."""
        return bool((self.lengths_B == self.width).all() and not self.skips_B.any())

    def every(self, first: int, stride: int) -> Rows:
        """Every so many-th row, from the first one on; where that is none, an empty row."""
        starts_B, lengths_B, skips_B = (
            array[first::stride] for array in (self.starts_B, self.lengths_B, self.skips_B)
        )
        if not len(starts_B):
            starts_B, lengths_B, skips_B = self.starts_B[:1], self.lengths_B[:1] * 0, self.skips_B[:1] * 0
        return Rows(starts_B, lengths_B, skips_B, self.width, self.epoch)


@dataclass(frozen=True)
class Step:
    """The rows of one optimiser step, in micro-batches that fit into memory."""

    parts: list[Rows]
    scale: float = 1.0
    """The factor of the learning rate: a short step over streams counts in proportion to its length."""
    of: int | None = None
    """The targets of the whole step, of which these are the rows of one process; None: these are all rows."""
    targets: int = field(init=False)

    def __post_init__(self) -> None:
        targets = sum(part.targets for part in self.parts) if self.of is None else self.of
        object.__setattr__(self, "targets", targets)


@dataclass(frozen=True)
class Size:
    """The size of rows and batches, in tokens."""

    length: int
    """Tokens of a row."""
    step: int
    """Tokens of an optimiser step."""
    at_once: int
    """Tokens of a micro-batch."""

    @property
    def rows(self) -> int:
        """Rows of a step."""
        return max(1, self.step // self.length)

    @property
    def rows_at_once(self) -> int:
        """Rows of a micro-batch."""
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
    """Whether the network's memory after a micro-batch carries over to the same micro-batch of the next step."""
    size: Size
    tokens: int
    """The number of targets of an epoch."""
    one_shape = True
    """Whether all micro-batches have one width and, apart from the last one of a step, equally many rows."""

    @property
    def read(self) -> int:
        """The number of tokens that an epoch reads, whether they are targets or not."""
        return self.tokens

    @abstractmethod
    def epoch(self, number: int | None) -> Epoch:
        """The steps of an epoch; None: the steps of a validation, without randomness."""

    @abstractmethod
    def count(self, number: int | None) -> int:
        """The number of steps of an epoch, as `len(epoch(number))`."""

    def steps(self, epochs: float) -> int:
        """The number of steps of the first `epochs` epochs, at least one."""
        whole = int(epochs)
        steps = sum(self.count(number) for number in range(whole))
        if epochs > whole:
            steps += round((epochs - whole) * self.count(whole))
        return max(1, steps)


@dataclass(frozen=True)
class Predicting(Layout):
    """A layout for an objective that predicts only some of the tokens of each row."""

    of: Layout
    predicted: Callable[[Rows], int]
    """The number of tokens that are predicted in the rows of a micro-batch."""

    @property
    def carries(self) -> bool:  # type: ignore[override]
        return self.of.carries

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self.of.size

    @property
    def one_shape(self) -> bool:  # type: ignore[override]
        return self.of.one_shape

    @property
    def read(self) -> int:
        return self.of.tokens

    @cached_property
    def tokens(self) -> int:  # type: ignore[override]
        """The number of targets of a validation; that of an epoch is about the same."""
        epoch = self.epoch(None)
        return sum(epoch[number].targets for number in range(len(epoch)))

    def epoch(self, number: int | None) -> Epoch:
        return _PredictingEpoch(self.of.epoch(number), self.predicted)

    def count(self, number: int | None) -> int:
        return self.of.count(number)


@dataclass(frozen=True)
class _PredictingEpoch(Epoch):
    of: Epoch
    predicted: Callable[[Rows], int]

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, number: int) -> Step:
        step = self.of[number]
        return Step([replace(rows, predicted=self.predicted(rows)) for rows in step.parts], step.scale)
