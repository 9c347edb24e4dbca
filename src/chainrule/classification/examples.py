"""Labelled texts as examples for the training loop, and the objective: the label of each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from chainrule.arrays import PAD
from chainrule.networks.training_settings import TrainingSettings
from chainrule.text.labelled import Labelled
from chainrule.tokens.base import line_bounds
from chainrule.tokens.ids import Encoded
from chainrule.training.engines.base import Engine
from chainrule.training.examples import SequenceExamples, size_for
from chainrule.training.layouts import Lines, Predicting
from chainrule.training.objectives import Batch, Feed, Objective, Sequences, Stretches


@dataclass(frozen=True, eq=False)
class LabelOfText(Objective):
    """Predict the label of a text from all of its tokens: inputs are rows after the start token, [B, T + 1]."""

    start: int
    """The token before the first one of a text."""
    starts_N: np.ndarray
    """Where each text begins."""
    labels_N: np.ndarray
    """The number of its label."""
    name: ClassVar[str] = "label-of-text"
    is_on_host: ClassVar[bool] = True

    def batch(self, stretches: Stretches) -> Batch:
        ids_BS, lengths_B1 = np.asarray(stretches.ids_BS), np.asarray(stretches.lengths_B)[:, None]
        ids_BS[:, 0] = self.start
        ids_BS = np.where(np.arange(ids_BS.shape[1]) <= lengths_B1, ids_BS, PAD)
        numbers_B = np.searchsorted(self.starts_N, np.asarray(stretches.starts_B), side="right") - 1
        # an empty row fills up the batch of a process: it has no label
        return Batch(ids_BS, np.where(lengths_B1 > 0, self.labels_N[numbers_B][:, None], PAD))


@dataclass(frozen=True)
class LabelledExamples(SequenceExamples):
    """Texts, `targets`, each cut to the tokens that are read, and the numbers of their labels."""

    labels_N: np.ndarray
    start: int

    @classmethod
    def of(
        cls, encoded: Encoded, part: Labelled, labels: Sequence[str], eos: int, start: int, longest: int
    ) -> LabelledExamples:
        """Return the texts of a part that have one of the labels; of a long text, the beginning."""
        starts, ends = line_bounds(encoded.ids, eos)
        numbers = {label: number for number, label in enumerate(labels)}
        labels_N = np.asarray([numbers.get(one.label, PAD) for one in part], np.int64)
        every = cls(Sequences(encoded.ids, starts, np.minimum(ends, starts + longest)), labels_N, start)
        return every.taken(labels_N != PAD)

    @property
    def objective(self) -> LabelOfText:  # type: ignore[override]
        """The objective, which knows the labels."""
        return LabelOfText(self.start, self.targets.starts, self.labels_N)

    @property
    def tokens(self) -> int:
        """The number of labels to predict."""
        return len(self.labels_N)

    @property
    def read(self) -> int:
        """The number of tokens that are read."""
        return super().tokens

    def taken(self, which: np.ndarray | slice) -> Self:
        return replace(super().taken(which), labels_N=self.labels_N[which])

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        size = size_for(int(self.targets.lengths.max()), engine, settings)
        lines = Lines(self.targets.starts, self.targets.ends, 0, size, seed)
        layout = Predicting(lines, lambda rows: int((rows.lengths_B > 0).sum()))
        return Feed(layout, engine.gatherer(self.targets.ids, self.objective))
