"""Feeds: the texts of a run, cut into batches for an engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chainrule.designs.training import TrainingSettings
from chainrule.kinds import TrainingData
from chainrule.training.batches.layouts import Size, choose_layout
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.objectives import Objective


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
