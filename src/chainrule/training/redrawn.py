"""Examples that are drawn anew for each epoch, as by BPE dropout: an epoch has a layout and a gatherer of its own.

The examples of the next epoch are made by a thread beside, while the network learns from those of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from chainrule.system.parallel import Background
from chainrule.training.layouts import Epoch, Layout, Rows
from chainrule.training.objectives import Batch, Feed, Gatherer


class Redrawn(Layout, Gatherer):
    """The layout and the gatherer of each epoch; `make(number)` depends on nothing else, to be resumed anywhere."""

    def __init__(self, usual: Feed, make: Callable[[int], Feed]) -> None:
        """`usual` is the feed of a validation, in which nothing is random."""
        self.usual, self.make = usual, make
        self.carries, self.size = usual.layout.carries, usual.layout.size
        self.one_shape, self.few_shapes = usual.layout.one_shape, usual.layout.few_shapes
        self._now, self._next = (-1, usual), -1
        self._beside: Background[Feed] = Background()

    @cached_property
    def first(self) -> Feed:
        """The feed of the first epoch, which is kept for plans."""
        return self.make(0)

    @property
    def tokens(self) -> int:  # type: ignore[override]
        """The number of targets of the first epoch."""
        return self.first.layout.tokens

    def of(self, number: int | None) -> Feed:
        """Return the feed of an epoch; None: of a validation."""
        if number is None:
            return self.usual
        if number != self._now[0]:
            before = self._beside.result()
            if before is None or self._next != number:
                before = self.make(number) if number else self.first
            self._now, self._next = (number, before), number + 1
            self._beside.start(self.make, self._next)
        return self._now[1]

    def epoch(self, number: int | None) -> Epoch:
        return self.of(number).layout.epoch(number)

    def count(self, number: int | None) -> int:
        """Return the steps of the first epoch, or of a validation: those of another one are about as many."""
        return (self.usual if number is None else self.first).layout.count(number)

    def batch(self, rows: Rows) -> Batch:
        return self.of(rows.epoch).gatherer.batch(rows)

    def feed(self) -> Feed:
        """Return one feed, which is that of its epoch in every batch."""
        return Feed(self, self)
