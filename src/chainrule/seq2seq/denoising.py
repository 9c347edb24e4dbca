"""Denoising: encoder-decoders are pretrained on text alone, by repairing damaged lines.

    Spans       T5: 15 % of the tokens, in spans of 3 on average, are each replaced by a sentinel in the source;
                the target is the sentinels, each followed by the tokens it replaced (Raffel and others 2020)
    Infilling   BART: 30 % of the tokens, in spans whose length is Poisson(3), are each replaced by one mask in the
                source, also spans of length 0; the target is the whole text (Lewis and others 2020)

    text      the cat sat on the mat
    Spans     the <0> on the <1>            ->  <0> cat sat <1> mat
    Infilling the <0> on <0> the <0>        ->  the cat sat on the mat

Sentinels and masks are ids above the vocabulary. The damage depends on the seed, the epoch and the place in the
text alone; the number of tokens of the target depends on the length of the text alone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from chainrule.arrays import pad
from chainrule.contract.lm import start_token
from chainrule.networks.seq2seq.config import EXTRA_IDS
from chainrule.networks.training_settings import TrainingSettings
from chainrule.tokens.base import Tokenizer, line_bounds
from chainrule.training.engines.base import Engine
from chainrule.training.examples import TextExamples, size_for
from chainrule.training.layouts import Lines, Predicting, Rows
from chainrule.training.objectives import Batch, Feed, Objective, Stretches

MEAN_SPAN = 3.0
SPANS_SHARE, INFILLING_SHARE = 0.15, 0.3


@dataclass(frozen=True)
class Denoising(Objective):
    """Repair damaged lines: inputs are (damaged sources, targets after <s>)."""

    bos: int
    eos: int
    vocab_size: int
    """The number of tokens, and the first of the ids above the vocabulary."""
    seed: int
    is_on_host: ClassVar[bool] = True

    @classmethod
    def of(cls, tokenizer: Tokenizer, seed: int) -> Denoising:
        """Return the objective for a tokenizer."""
        return cls(start_token(tokenizer, "line"), tokenizer.eos, tokenizer.vocab_size, seed)

    @abstractmethod
    def targets_of(self, length: int) -> int:
        """Return the number of tokens of a target, </s> included, for a text of `length` tokens."""

    @abstractmethod
    def damaged(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the source and the target of a text, both without </s>."""

    def batch(self, stretches: Stretches) -> Batch:
        sources, inputs, targets = [], [], []
        epoch = 0 if stretches.epoch is None else stretches.epoch + 1
        lengths = np.asarray(stretches.lengths_B).tolist()
        starts = np.asarray(stretches.starts_B).tolist()
        for ids_S, length, start in zip(stretches.ids_BS, lengths, starts, strict=True):
            random = np.random.default_rng((self.seed % 2**64, epoch, start))
            source, target = self.damaged(self.without_end(ids_S[1 : 1 + length]), random)
            sources.append(np.append(source, self.eos))
            inputs.append(np.append(self.bos, target))
            targets.append(np.append(target, self.eos))
        return Batch((pad(sources), pad(inputs)), pad(targets))

    def without_end(self, ids: np.ndarray) -> np.ndarray:
        """Return a line, or a piece of one, without </s>."""
        return ids[:-1] if len(ids) and ids[-1] == self.eos else ids


@dataclass(frozen=True)
class Spans(Denoising):
    """T5's span corruption."""

    name: ClassVar[str] = "spans"

    def targets_of(self, length: int) -> int:
        removed, spans = self._counts(length)
        return removed + spans + 1

    def damaged(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        removed, spans = self._counts(len(ids))
        # cuts between the removed tokens divide them into spans that are not empty
        cuts = np.sort(random.choice(max(removed - 1, 0), max(spans - 1, 0), replace=False)) + 1
        lengths = np.diff(np.concatenate([[0], cuts, [removed]])) if spans else np.zeros(0, np.int64)
        sentinels = self.vocab_size + np.arange(spans)
        starts = _starts(len(ids), lengths, random)
        target: list[int] = []
        for sentinel, start, length in zip(sentinels, starts, lengths, strict=True):
            target += [int(sentinel), *ids[start : start + length].tolist()]
        return _replaced(ids, starts, lengths, sentinels), np.asarray(target, dtype=np.int64)

    @staticmethod
    def _counts(length: int) -> tuple[int, int]:
        """Return how many of `length` tokens are removed, and in how many spans."""
        if not length:
            return 0, 0
        removed = max(1, round(SPANS_SHARE * length))
        # between two spans there is a token that stays
        return removed, max(1, min(round(removed / MEAN_SPAN), EXTRA_IDS, length - removed + 1))


@dataclass(frozen=True)
class Infilling(Denoising):
    """BART's text infilling."""

    name: ClassVar[str] = "infilling"

    def targets_of(self, length: int) -> int:
        return length + 1

    def damaged(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        removed = max(1, round(INFILLING_SHARE * len(ids))) if len(ids) else 0
        # at most as many spans as removed tokens: a source is never longer than its text
        drawn = random.poisson(MEAN_SPAN, min(removed, len(ids) - removed + 1))
        enough = int(np.searchsorted(np.cumsum(drawn), removed)) + 1
        lengths = drawn[:enough]
        if len(lengths):
            lengths[-1] += removed - lengths.sum()
        starts = _starts(len(ids), lengths, random)
        return _replaced(ids, starts, lengths, np.full(len(lengths), self.vocab_size)), ids


def _starts(size: int, lengths: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return where spans of these lengths begin in a text of that size, in order, with a token between any two."""
    gaps = np.sort(random.choice(size - int(lengths.sum()) + 1, len(lengths), replace=False))
    before: np.ndarray = np.cumsum(lengths) - lengths
    starts: np.ndarray = gaps + before
    return starts


def _replaced(ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return the text with one id instead of each span."""
    stays = np.ones(len(ids), bool)
    for start, length in zip(starts, lengths, strict=True):
        stays[start : start + length] = False
    # where each id goes in: before the first token that stays after its span
    kept_before = np.concatenate([[0], np.cumsum(stays)])[starts]
    return np.insert(ids[stays].astype(np.int64), kept_before, by)


@dataclass(frozen=True)
class DamagedExamples(TextExamples):
    """Lines that are damaged, and repaired; a long one is cut into pieces."""

    objective: Denoising

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        # </s> takes a place at the end of every piece
        size = size_for(max(1, settings.row_length(engine.window, "line") - 1), engine, settings)
        layout = Lines(*line_bounds(self.ids, self.eos), 0, size, seed)
        return Feed(Predicting(layout, self._targets), engine.gatherer(self.ids, self.objective))

    def _targets(self, rows: Rows) -> int:
        ends = self.ids.take(rows.starts_B + rows.lengths_B - 1, mode="clip") == self.eos
        lengths = (rows.lengths_B - ends).tolist()
        return sum(self.objective.targets_of(length) for length in lengths)
