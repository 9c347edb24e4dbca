"""Examples: what a network learns from, cut into batches for an engine.

TextExamples   a text: lines, or one long sequence
PairExamples   sources and their targets
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from chainrule.contract.kinds import TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import CorpusError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.progress import SILENT, Progress
from chainrule.tokens.base import line_bounds
from chainrule.training.batches.layouts import Lines, choose_layout
from chainrule.training.batches.rows import Size
from chainrule.training.batches.sample import sample_of
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.objectives import NextToken, Objective, Sequences, TargetOfSource


class Examples(ABC):
    """Examples to learn from, or to validate on."""

    objective: Objective

    @property
    @abstractmethod
    def tokens(self) -> int:
        """How many tokens there are to predict."""

    @abstractmethod
    def sampled(self, tokens: int) -> Examples:
        """About so many tokens of them, evenly spread; all of them, if there are no more."""

    @abstractmethod
    def beginning(self, tokens: int) -> Examples:
        """The first of them, of so many tokens at most if that is a whole example."""

    @abstractmethod
    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        """Their batches, as the settings say, for the engine."""


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

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def sampled(self, tokens: int) -> TextExamples:
        return replace(self, ids=sample_of(self.ids, self.eos, self.context, tokens))

    def beginning(self, tokens: int) -> TextExamples:
        ends = np.flatnonzero(self.ids[:tokens] == self.eos)
        return replace(self, ids=self.ids[: ends[-1] + 1]) if len(ends) else self

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        length = settings.row_length(engine.window, self.context)
        size = Size(length, settings.batch, _at_once(engine, settings))
        vary = settings.vary_length
        layout = choose_layout(self.ids, self.eos, self.context, engine.window, size, seed, vary=vary)
        return Feed(layout, engine.gatherer(self.ids, self.objective))


@dataclass(frozen=True)
class PairExamples(Examples):
    """Targets, each with its source."""

    targets: Sequences
    sources: Sequences
    next_token: NextToken

    @property
    def objective(self) -> TargetOfSource:  # type: ignore[override]
        """The objective, which knows the sources."""
        return TargetOfSource(self.next_token, self.sources, self.targets.starts)

    @property
    def tokens(self) -> int:
        return int((self.targets.ends - self.targets.starts).sum())

    def taken(self, which: np.ndarray | slice) -> PairExamples:
        """Some of the pairs."""
        some = [replace(side, starts=side.starts[which], ends=side.ends[which]) for side in self._sides]
        return replace(self, targets=some[0], sources=some[1])

    @property
    def _sides(self) -> tuple[Sequences, Sequences]:
        return self.targets, self.sources

    def sampled(self, tokens: int) -> PairExamples:
        return self.taken(slice(None, None, max(1, round(self.tokens / tokens))))

    def beginning(self, tokens: int) -> PairExamples:
        lengths = np.cumsum(self.targets.ends - self.targets.starts)
        return self.taken(slice(0, max(1, int(np.searchsorted(lengths, tokens, side="right")))))

    def fitting(self, target: int | None, source: int | None, progress: Progress = SILENT) -> PairExamples:
        """The pairs whose sides have no more tokens than these; how many are left out is noted."""
        fits = np.ones(len(self.targets.starts), bool)
        for side, most in zip(self._sides, (target, source), strict=True):
            if most is not None:
                fits &= side.ends - side.starts <= most
        if not fits.any():
            raise CorpusError(
                f"every pair is longer than what the network reads at once, {target} tokens: set window"
            )
        if not fits.all():
            progress.note(
                f"left out, since longer than what the network reads at once: {int((~fits).sum()):,} pairs"
            )
        return self if fits.all() else self.taken(fits)

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        lengths = self.targets.ends - self.targets.starts
        sizes = np.maximum(lengths, self.sources.ends - self.sources.starts)
        size = Size(int(lengths.max()), settings.batch, _at_once(engine, settings))
        layout = Lines(self.targets.starts, self.targets.ends, 0, size, seed, sizes)
        return Feed(layout, engine.gatherer(self.targets.ids, self.objective))


def _at_once(engine: Engine, settings: TrainingSettings) -> int:
    """The tokens of a micro-batch, of which each process has its share in memory."""
    return (settings.device_batch or settings.batch) * engine.processes


def texts_of(data: TrainingData) -> Texts:
    """The texts of a language model, as examples."""
    eos, context = data.tokenizer.eos, data.context
    objective = NextToken.of(data.tokenizer, context)
    valid = None if data.valid is None else TextExamples(data.valid.ids, eos, context, objective)
    return Texts(TextExamples(data.train.ids, eos, context, objective), valid)


def pairs_of(data: TrainingData) -> Texts:
    """The pairs of a model that is conditioned on sources, as examples."""
    assert data.sources is not None
    next_token = NextToken.of(data.tokenizer, "line")

    def examples(target: np.ndarray, source: np.ndarray) -> PairExamples:
        assert data.sources is not None
        sides = (target, data.tokenizer.eos), (source, data.sources.tokenizer.eos)
        targets, sources = (Sequences(ids, *line_bounds(ids, eos)) for ids, eos in sides)
        return PairExamples(targets, sources, next_token)

    valid = None
    if data.valid is not None and data.sources.valid is not None:
        valid = examples(data.valid.ids, data.sources.valid.ids)
    return Texts(examples(data.train.ids, data.sources.train.ids), valid)
