"""What a filter counts: the documents kept and dropped, and the quantiles of their perplexities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.evaluation.metrics import perplexity_of
from chainrule.tasks.filtering.documents import Batch, Bools, Floats, Ints

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BIN = 5e-4  # nats
_BINS = 100_000  # of mean surprisals; what is above the last, or infinite, is counted apart


@dataclass(frozen=True)
class Filtered:
    """What a filter kept and dropped."""

    documents: int
    kept: int
    bytes: int
    """Of the text of all documents."""
    kept_bytes: int
    max_perplexity: float
    """The highest perplexity of a document that is kept, or the limit that was given."""
    quantiles: dict[float, float]
    """Of the perplexities of all documents, to one part in a thousand."""
    without_text: int = 0
    """Records that have no text, which are dropped and not counted as documents."""

    @property
    def dropped(self) -> int:
        """Documents that were not kept."""
        return self.documents - self.kept

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "documents": self.documents,
            "kept": self.kept,
            "dropped": self.dropped,
            "without_text": self.without_text,
            "bytes": self.bytes,
            "kept_bytes": self.kept_bytes,
            "max_perplexity": self.max_perplexity,
            "perplexity_quantiles": {f"{share:g}": value for share, value in self.quantiles.items()},
        }


class Counts:
    """Counts of documents, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self.documents = self.kept = self.bytes = self.kept_bytes = 0
        self._histogram = np.zeros(_BINS + 1, np.int64)

    def add(self, batch: Batch, nats_D: Floats, kept_D: Bools) -> None:
        """Count the documents of a batch."""
        if not len(nats_D):
            return
        in_document = batch.document_U >= 0
        sizes_U = _unit_sizes(batch)[in_document]
        sizes_D = np.bincount(batch.document_U[in_document], sizes_U, len(nats_D))
        self.documents += len(nats_D)
        self.kept += int(kept_D.sum())
        self.bytes += int(sizes_D.sum())
        self.kept_bytes += int(sizes_D[kept_D].sum())
        bins = np.clip(nats_D, 0, _BIN * _BINS) / _BIN
        self._histogram += np.bincount(bins.astype(np.int64), minlength=_BINS + 1)

    def result(self, limit: float, without_text: int) -> Filtered:
        """What was counted."""
        cumulative = np.cumsum(self._histogram)
        quantiles = {}
        for share in QUANTILES:
            place = int(np.searchsorted(cumulative, max(math.ceil(share * self.documents), 1)))
            quantiles[share] = math.inf if place == _BINS else perplexity_of((place + 0.5) * _BIN)
        return Filtered(
            self.documents, self.kept, self.bytes, self.kept_bytes, perplexity_of(limit), quantiles, without_text
        )


def _unit_sizes(batch: Batch) -> Ints:
    """The bytes of the text of each unit, with its line ends."""
    if batch.source is batch.block:
        return np.diff(batch.ends_U, prepend=0)
    ends_L = np.flatnonzero(np.frombuffer(batch.block, np.uint8) == ord("\n")) + 1
    return np.diff(ends_L[np.cumsum(batch.lines_U) - 1], prepend=0)
