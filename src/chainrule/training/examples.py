"""Examples: what a network learns from, cut into batches for an engine.

TextExamples       a text: lines, or one long sequence
SequenceExamples   sequences to predict, one by one: of tags, or
PairExamples       of targets, each with its source
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from chainrule.contract.data import Sources, TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import CorpusError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.progress import SILENT, Progress
from chainrule.tokens.base import line_bounds
from chainrule.tokens.ids import Encoded
from chainrule.training.engines.base import Engine
from chainrule.training.layouts import Lines, Size, choose_layout
from chainrule.training.objectives import Feed, NextToken, Objective, Sequences, TargetOfSource

STRETCHES = 16
"""The number of stretches that make up the sample of a text whose context flows from line to line."""


class Examples(ABC):
    """Examples to learn from, or to validate on."""

    objective: Objective

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The number of tokens to predict."""

    @abstractmethod
    def sampled(self, tokens: int) -> Examples:
        """Return about `tokens` tokens of the examples, evenly spread; all of them if there are no more."""

    @abstractmethod
    def beginning(self, tokens: int) -> Examples:
        """Return the first examples, with at most `tokens` tokens, but at least one example."""

    @abstractmethod
    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        """Return their batches, as the settings say, for the engine."""


class Texts(NamedTuple):
    """The examples of a run."""

    train: Examples
    valid: Examples | None


@dataclass(frozen=True)
class TextExamples(Examples):
    """A text, each line ended by `eos`, for an objective."""

    ids: np.ndarray
    eos: int
    context: Context
    objective: Objective

    @classmethod
    def of(cls, data: TrainingData, objective: Objective) -> Texts:
        """Return the texts of a training as examples of this class."""
        valid = None if data.valid is None else cls(data.valid.ids, data.tokenizer.eos, data.context, objective)
        return Texts(cls(data.train.ids, data.tokenizer.eos, data.context, objective), valid)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def at(self, places: np.ndarray | slice) -> Self:
        """Return the tokens at these places of the text, as examples."""
        return replace(self, ids=self.ids[places])

    def sampled(self, tokens: int) -> Self:
        return self.at(sample_of(self.ids, self.eos, self.context, tokens))

    def beginning(self, tokens: int) -> Self:
        ends = np.flatnonzero(self.ids[:tokens] == self.eos)
        return self.at(slice(0, ends[-1] + 1)) if len(ends) else self

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        size = size_for(settings.row_length(engine.window, self.context), engine, settings)
        vary = settings.vary_length
        layout = choose_layout(self.ids, self.eos, self.context, engine.window, size, seed, vary=vary)
        return Feed(layout, engine.gatherer(self.ids, self.objective))


@dataclass(frozen=True)
class SequenceExamples(Examples):
    """Sequences to predict, one by one."""

    targets: Sequences

    @property
    def tokens(self) -> int:
        return int(self.targets.lengths.sum())

    def taken(self, which: np.ndarray | slice) -> Self:
        """Return some of the examples."""
        return replace(self, targets=self.targets.taken(which))

    def sampled(self, tokens: int) -> Self:
        return self.taken(slice(None, None, max(1, round(self.tokens / tokens))))

    def beginning(self, tokens: int) -> Self:
        lengths = np.cumsum(self.targets.lengths)
        return self.taken(slice(0, max(1, int(np.searchsorted(lengths, tokens, side="right")))))


@dataclass(frozen=True)
class PairExamples(SequenceExamples):
    """Targets, each with its source."""

    IF_TOO_LONG: ClassVar[str] = ": set window"

    sources: Sequences
    next_token: NextToken
    longest: int | None = None
    """The most tokens of either side; None: any number, or not the same of both."""

    @classmethod
    def of(cls, data: TrainingData, targets: Encoded, sources: Encoded) -> Self:
        """Return the pairs of a part of the data, line by line."""
        assert isinstance(data.sources, Sources)
        sides = (targets.ids, data.tokenizer.eos), (sources.ids, data.sources.tokenizer.eos)
        written, given = (Sequences(ids, *line_bounds(ids, eos)) for ids, eos in sides)
        return cls(written, given, NextToken.of(data.tokenizer, "line"))

    @classmethod
    def texts(cls, data: TrainingData, target: int | None, source: int | None) -> Texts:
        """Return the pairs of a training whose sides have no more tokens than these."""
        assert isinstance(data.sources, Sources)
        longest = target if target == source else None
        train = cls.of(data, data.train, data.sources.train).fitting(target, source, data.progress)
        train = replace(train, longest=longest)
        if data.valid is None or data.sources.valid is None:
            return Texts(train, None)
        return Texts(train, cls.of(data, data.valid, data.sources.valid).fitting(target, source))

    @property
    def objective(self) -> TargetOfSource:  # type: ignore[override]
        """The objective, which knows the sources."""
        return TargetOfSource(self.next_token, self.sources, self.targets.starts)

    def taken(self, which: np.ndarray | slice) -> Self:
        return replace(super().taken(which), sources=self.sources.taken(which))

    def fitting(self, target: int | None, source: int | None, progress: Progress = SILENT) -> Self:
        """Return the pairs whose sides have no more tokens than these; note how many are left out."""
        fits = np.ones(len(self.targets.starts), bool)
        for side, most in ((self.targets, target), (self.sources, source)):
            if most is not None:
                fits &= side.lengths <= most
        if not fits.any():
            raise CorpusError(
                f"every pair is longer than the {target} tokens that the network reads at once{self.IF_TOO_LONG}"
            )
        if not fits.all():
            progress.note(
                f"left out, since longer than what the network reads at once: {int((~fits).sum()):,} pairs"
            )
        return self if fits.all() else self.taken(fits)

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        sizes = np.maximum(self.targets.lengths, self.sources.lengths)
        size = size_for(int(self.targets.lengths.max()), engine, settings)
        most = self.longest if engine.prefers_few_shapes else None
        layout = Lines(self.targets.starts, self.targets.ends, 0, size, seed, sizes, most=most)
        return Feed(layout, engine.gatherer(self.targets.ids, self.objective))


def size_for(length: int, engine: Engine, settings: TrainingSettings) -> Size:
    """Return the size of batches in rows of `length` tokens; each process has its share of a micro-batch."""
    at_once = (settings.device_batch or settings.batch) * engine.team.size
    return Size(length, settings.batch, at_once, settings.examples)


def texts_of(data: TrainingData) -> Texts:
    """Return the texts of a language model, as examples."""
    return TextExamples.of(data, NextToken.of(data.tokenizer, data.context))


def sample_of(ids: np.ndarray, eos: int, context: Context, tokens: int) -> np.ndarray | slice:
    """Return the places of about `tokens` tokens, evenly spread: whole lines or, of a stream, a few long stretches.

    >>> ids = np.array([5, 0, 6, 0, 7, 0, 8, 0])
    >>> ids[sample_of(ids, 0, "line", 4)]
    array([5, 0, 7, 0])
    """
    if tokens >= len(ids):
        return slice(None)
    if context == "stream":
        length = max(1, tokens // STRETCHES)
        starts = np.linspace(0, len(ids) - length, STRETCHES).astype(np.int64)
        return (starts[:, None] + np.arange(length)).ravel()
    starts, ends = line_bounds(ids, eos)
    every = max(1, round(len(ids) / tokens))
    bounds = zip(starts[::every], ends[::every], strict=True)
    return np.concatenate([np.arange(start, end) for start, end in bounds])
