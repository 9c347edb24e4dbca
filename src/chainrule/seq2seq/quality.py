"""BLEU and chrF of translations, by sacrebleu, also for each length of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.errors import MissingExtraError

BUCKETS = (8, 12, 16, 20, 25, 30, 40, 60)
"""Where the lengths of sources are divided, in words."""
ENOUGH = 0.02
"""The share of the pairs that the longest sources have at least: BLEU of a few of them would be chance."""


@dataclass(frozen=True)
class OfLength:
    """BLEU for sources of about the same length."""

    least: int
    """The words of the shortest source that belongs here."""
    most: int | None
    """The words of the longest; None: any number."""
    pairs: int
    bleu: float

    @property
    def name(self) -> str:
        """The lengths as text: 9-12."""
        return f"{self.least}+" if self.most is None else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class Quality:
    """How close translations are to references, by sacrebleu."""

    bleu: float
    chrf: float
    signatures: dict[str, str]

    @classmethod
    def of(cls, translations: Sequence[str], references: Sequence[str]) -> Quality:
        """Return the metrics of translations, each with a reference."""
        bleu_of, chrf_of = _metrics()
        bleu = bleu_of.corpus_score(list(translations), [list(references)])
        chrf = chrf_of.corpus_score(list(translations), [list(references)])
        signatures = {"bleu": str(bleu_of.get_signature()), "chrf": str(chrf_of.get_signature())}
        return cls(bleu.score, chrf.score, signatures)


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MissingExtraError("sacrebleu", "translation", "measuring translations") from None
    return BLEU(), CHRF()


def by_length(examples: Sequence[tuple[str, str]], written: Sequence[str]) -> tuple[OfLength, ...]:
    """Return BLEU for each length of the source; lengths without any source are left out.

    The longest sources are joined into one group where there are few of them.
    """
    words = np.asarray([len(source.split()) for source, _ in examples])
    of = np.searchsorted(BUCKETS, words)  # a source of BUCKETS[i] words belongs to bucket i
    edges, longest = [0, *BUCKETS], int(of.max(initial=0))
    joined = next((i for i in range(longest, 0, -1) if (of >= i).mean() >= ENOUGH), 0)
    of = np.minimum(of, joined)
    found = []
    for bucket in np.unique(of).tolist():
        rows = np.flatnonzero(of == bucket).tolist()
        quality = _metrics()[0].corpus_score([written[i] for i in rows], [[examples[i][1] for i in rows]])
        last = longest if bucket == joined else bucket
        most = BUCKETS[last] if last < len(BUCKETS) else None
        found.append(OfLength(edges[bucket] + 1, most, len(rows), quality.score))
    return tuple(found)
