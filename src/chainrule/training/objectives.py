"""Objectives: what a network is trained to do, as a value between the layout of batches and the network.

A layout says which stretches of a text stand in a batch; a gatherer fetches their ids; an objective turns them into
inputs and targets; the network has a loss for inputs and targets. The loop and its checkpoints know nothing else of
the objective, so that another one (masking, spans, pairs, tags) needs no other loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import device

from chainrule.arrays import PAD, Array, array_namespace
from chainrule.contract.lm import Context, start_token
from chainrule.tokens.base import Tokenizer
from chainrule.training.layouts import Layout, Rows


class Stretches(NamedTuple):
    """Stretches of a text, one for each row of a batch, gathered into arrays of NumPy or torch."""

    ids_BS: Array
    """The tokens of each stretch and the one before it, [B, T + 1]; the objective may write into this array."""
    starts_B: Array
    """The index in the text of the first token of each stretch."""
    lengths_B: Array
    skips_B: Array
    """The number of tokens at the beginning of each stretch that are read and not predicted."""
    is_full: bool
    """True if every stretch has T tokens, none of which is skipped."""
    epoch: int | None = None
    """The number of the epoch, on which the randomness of an objective depends; None: a validation."""
    is_filled: bool = False
    """True if every side of the batch, the sources too, has T columns."""


class Batch(NamedTuple):
    """The inputs and targets of a network; a target that is PAD does not count in the loss."""

    inputs: Any
    """Tokens [B, T]; a tuple of arrays for a network that takes more, such as sources and targets."""
    targets_BT: Array


class Objective(ABC):
    """The task that a network is trained for: a frozen value; equal objectives make equal batches."""

    name: ClassVar[str]
    """The name of the objective in checkpoints: a run is resumed only with the objective that it started with."""
    is_on_host: ClassVar[bool] = False
    """True if it makes batches of NumPy arrays only, which are then sent to the device."""

    @abstractmethod
    def batch(self, stretches: Stretches) -> Batch:
        """Return the inputs and targets of these stretches."""


class Gatherer:
    """Makes batches of one text with NumPy, from memory or a memory-mapped file; those of torch derive from it."""

    def __init__(self, ids: np.ndarray, objective: Objective) -> None:
        self.ids = np.asarray(ids)  # a view as a plain array: indexing a np.memmap goes through slow Python
        self.objective = objective

    def batch(self, rows: Rows) -> Batch:
        """Return the batch of these rows, on the device of the engine."""
        # one column more than there are targets: the token before the first
        places = rows.starts_B[:, None] + np.arange(-1, rows.width)
        ids_BS = self.ids.take(places, mode="clip").astype(np.int64)
        return self.objective.batch(
            Stretches(ids_BS, rows.starts_B, rows.lengths_B, rows.skips_B, rows.is_full, rows.epoch, rows.is_filled)
        )


@dataclass(frozen=True)
class Feed:
    """A text to train or validate on: how it is cut into batches, and what gathers them."""

    layout: Layout
    gatherer: Gatherer


@dataclass(frozen=True)
class NextToken(Objective):
    """Predict every token from those before it: the objective of a language model."""

    start: int
    """The token that is read before the first one of a sequence."""
    line_end: int | None
    """The token that ends a sequence; None if the text is one sequence."""
    name: ClassVar[str] = "next-token"

    @classmethod
    def of(cls, tokenizer: Tokenizer, context: Context) -> NextToken:
        """Return the objective of a language model with this tokenizer and context."""
        return cls(start_token(tokenizer, context), tokenizer.eos if context == "line" else None)

    def with_start(self, stretches: Stretches) -> Array:
        """Return each stretch after the token before it, [B, T + 1]; before a sequence that is `start`."""
        ids_BS = stretches.ids_BS
        xp = array_namespace(ids_BS)
        is_first_B = stretches.starts_B == 0
        if self.line_end is not None:
            is_first_B = is_first_B | (ids_BS[:, 0] == self.line_end)
        ids_BS[:, 0] = xp.where(is_first_B, self.start, ids_BS[:, 0])
        return ids_BS

    def batch(self, stretches: Stretches) -> Batch:
        ids_BS = self.with_start(stretches)
        xp = array_namespace(ids_BS)
        # the input at each position is the token before the target
        inputs_BT, targets_BT = ids_BS[:, :-1], ids_BS[:, 1:]
        if not stretches.is_full:
            columns_T = xp.arange(inputs_BT.shape[1], device=device(ids_BS))
            is_outside_BT = columns_T >= stretches.lengths_B[:, None]
            inputs_BT = xp.where(is_outside_BT, PAD, inputs_BT)
            is_skipped_BT = columns_T < stretches.skips_B[:, None]
            targets_BT = xp.where(is_outside_BT | is_skipped_BT, PAD, targets_BT)
        return Batch(inputs_BT, targets_BT)


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids that lie one after the other, each from a start to its end."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The number of ids of each sequence."""
        lengths: np.ndarray = self.ends - self.starts
        return lengths

    def taken(self, which: np.ndarray | slice) -> Sequences:
        """Return some of the sequences."""
        return replace(self, starts=self.starts[which], ends=self.ends[which])

    def gathered(
        self, numbers_B: np.ndarray, most_B: np.ndarray | None = None, columns: int | None = None
    ) -> np.ndarray:
        """Return the sequences of these numbers as [B, S], filled up with PAD.

        `most_B` are the most ids of each. S is the number of `columns`; None: the ids of the longest.
        """
        starts_B, lengths_B = self.starts[numbers_B], self.lengths[numbers_B]
        if most_B is not None:
            lengths_B = np.minimum(lengths_B, most_B)
        columns_S = np.arange(lengths_B.max(initial=0) if columns is None else columns)
        ids_BS = self.ids.take(starts_B[:, None] + columns_S, mode="clip").astype(np.int64)
        return np.where(columns_S < lengths_B[:, None], ids_BS, PAD)


@dataclass(frozen=True, eq=False)
class TargetOfSource(Objective):
    """Predict every token of a target from its source and the tokens before it: inputs are (sources, targets)."""

    next_token: NextToken
    sources: Sequences
    starts: np.ndarray
    """Where the target of each source begins in the text."""
    name: ClassVar[str] = "target-of-source"
    is_on_host: ClassVar[bool] = True

    def batch(self, stretches: Stretches) -> Batch:
        inputs_BT, targets_BT = self.next_token.batch(stretches)
        numbers_B: np.ndarray = np.searchsorted(self.starts, np.asarray(stretches.starts_B), side="right") - 1
        if not stretches.is_filled:
            return Batch((self.sources.gathered(numbers_B), inputs_BT), targets_BT)
        columns = inputs_BT.shape[1]
        # a row without a target only fills up the batch: it reads one token, since attention to none is 0/0
        most_B = np.where(np.asarray(stretches.lengths_B) == 0, 1, columns)
        return Batch((self.sources.gathered(numbers_B, most_B, columns), inputs_BT), targets_BT)
