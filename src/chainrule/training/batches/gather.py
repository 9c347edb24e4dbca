"""From the rows of a layout to arrays: ids are gathered, and an objective makes a batch of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from chainrule.training.batches.rows import Rows
from chainrule.training.objectives import Batch, Objective, Stretches


class Gatherer(Protocol):
    """Makes batches of the stretches of one text."""

    def batch(self, rows: Rows) -> Batch:
        """The batch of these rows, on the device of the engine."""


class HostGatherer:
    """Gathers with NumPy, from memory or a memory-mapped file."""

    def __init__(self, ids: np.ndarray, objective: Objective) -> None:
        self.ids = np.asarray(ids)  # a view as a plain array: indexing a np.memmap goes through slow Python
        self.objective = objective

    def batch(self, rows: Rows) -> Batch:
        # one column more than there are targets: the token before the first
        places = rows.starts_B[:, None] + np.arange(-1, rows.width)
        ids_BS = self.ids.take(places, mode="clip").astype(np.int64)
        return self.objective.batch(
            Stretches(ids_BS, rows.starts_B, rows.lengths_B, rows.skips_B, rows.is_full, rows.epoch)
        )
