"""A job: everything about a run that does not change while it trains, such as its texts, cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.designs.training import TrainingSettings
from chainrule.errors import SettingsError
from chainrule.kinds import TrainingData
from chainrule.training.autotune import Autotune
from chainrule.training.batches.layouts import Size, choose_layout
from chainrule.training.batches.sample import sample_of
from chainrule.training.checkpoints.checkpoint import Checkpoints
from chainrule.training.checkpoints.compatibility import identity
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.objectives import Objective


@dataclass(frozen=True)
class Job:
    """Everything about a run that does not change while it trains."""

    engine: Engine
    settings: TrainingSettings
    data: TrainingData
    train: Feed
    valid: Feed | None
    """All of the held-out text."""
    feed: Callable[[np.ndarray], Feed]
    """Cuts the ids of a text into batches."""
    identity: dict[str, Any]
    """Settings, network, objective and data, which resuming compares with those of the checkpoint."""
    checkpoints: Checkpoints | None
    sample: Callable[[], str] | None

    @property
    def autotune(self) -> Autotune:
        return Autotune(self.engine, self.settings, self.train, self.valid)

    def held_out(self, tokens: int | None) -> Feed | None:
        """The held-out text, or a sample of about so many tokens."""
        if tokens is None or self.data.valid is None:
            return self.valid
        return self.feed(sample_of(self.data.valid.ids, self.data.tokenizer.eos, self.data.context, tokens))


def open_job(
    engine: Engine,
    settings: TrainingSettings,
    data: TrainingData,
    objective: Objective,
    sample: Callable[[], str] | None,
) -> Job:
    feed = feeder(engine, settings, data, objective)
    train, valid = feed(data.train.ids), None if data.valid is None else feed(data.valid.ids)
    if settings.vary_length and not train.layout.carries:
        raise SettingsError("vary_length is for a network that carries its memory on, and for --context stream")
    checkpoints = None if data.run is None else Checkpoints(data.run, data.progress)
    made_of = identity(engine.shapes(), settings, data, objective)
    return Job(engine, settings, data, train, valid, feed, made_of, checkpoints, sample)


def feeder(
    engine: Engine, settings: TrainingSettings, data: TrainingData, objective: Objective
) -> Callable[[np.ndarray], Feed]:
    """A function that cuts the ids of a text into the batches of a run."""
    length = settings.row_length(engine.window, data.context)
    size = Size(length, settings.batch, settings.device_batch or settings.batch)

    def feed(ids: np.ndarray) -> Feed:
        layout = choose_layout(
            ids, data.tokenizer.eos, data.context, engine.window, size, data.seed, vary=settings.vary_length
        )
        return Feed(layout, engine.gatherer(ids, objective))

    return feed
