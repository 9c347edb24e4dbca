"""Examples that are drawn anew for each epoch, as by BPE dropout: an epoch has a layout and a gatherer of its own.

The examples of the next epoch are made by a thread beside, while the network learns from those of this one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chainrule.system.parallel import Background
from chainrule.training.layouts import Epoch, Layout, Rows
from chainrule.training.objectives import Batch, Feed, Gatherer, Objective


class Redrawn:
    """The feed of each epoch; `make(number)` depends on nothing else, so that a run can be resumed anywhere."""

    def __init__(self, usual: Feed, make: Callable[[int], Feed]) -> None:
        """`usual` is the feed of a validation, in which nothing is random."""
        self.usual, self.make = usual, make
        self.first: Feed | None = None
        self._now, self._next = (-1, usual), -1
        self._beside: Background[Feed] = Background()

    def of(self, number: int | None) -> Feed:
        """Return the feed of an epoch; None: of a validation."""
        if number is None:
            return self.usual
        if number != self._now[0]:
            before = self._beside.result()
            made = before if before is not None and self._next == number else self._made(number)
            self._now, self._next = (number, made), number + 1
            self._beside.start(self.make, self._next)
        return self._now[1]

    def of_first(self) -> Feed:
        """Return the feed of the first epoch, for plans: it is kept."""
        if self.first is None:
            self.first = self.make(0)
        return self.first

    def _made(self, number: int) -> Feed:
        return self.make(number) if number else self.of_first()

    def feed(self) -> Feed:
        """Return one feed, which is that of its epoch in every batch."""
        return Feed(RedrawnLayout(self), RedrawnGatherer(self))


class RedrawnLayout(Layout):
    """The layout of each epoch."""

    def __init__(self, feeds: Redrawn) -> None:
        self.feeds, usual = feeds, feeds.usual.layout
        self.carries, self.size = usual.carries, usual.size
        self.one_shape, self.few_shapes = usual.one_shape, usual.few_shapes

    @property
    def tokens(self) -> int:  # type: ignore[override]
        """The number of targets of the first epoch."""
        return self.feeds.of_first().layout.tokens

    def epoch(self, number: int | None) -> Epoch:
        return self.feeds.of(number).layout.epoch(number)

    def count(self, number: int | None) -> int:
        """Return the steps of the first epoch, or of a validation: those of another one are about as many."""
        return (self.feeds.usual if number is None else self.feeds.of_first()).layout.count(number)


class RedrawnGatherer(Gatherer):
    """Makes the batches of each epoch from its own examples."""

    def __init__(self, feeds: Redrawn) -> None:
        self.feeds = feeds

    @property
    def ids(self) -> np.ndarray:  # type: ignore[override]
        """The ids of a validation."""
        return self.feeds.usual.gatherer.ids

    @property
    def objective(self) -> Objective:  # type: ignore[override]
        """The objective of a validation."""
        return self.feeds.usual.gatherer.objective

    def batch(self, rows: Rows) -> Batch:
        return self.feeds.of(rows.epoch).gatherer.batch(rows)
