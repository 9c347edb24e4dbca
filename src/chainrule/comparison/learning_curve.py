"""Learning curves: the same models trained on parts of the training text, and measured on the same test text.

The parts are made of whole documents, drawn at random, and each part includes the smaller ones. All share the
tokenizer and the held-out text of the comparison, and a network has the time that it has on the whole text: only
the training text differs. (With time in proportion to the text, the curve of a short training shows the effect of
the time instead.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from chainrule.comparison.ladder import Ladder
from chainrule.comparison.results import Comparison, Point, Result
from chainrule.contract.kinds import Kind, LadderEntry
from chainrule.errors import CorpusError
from chainrule.evaluation.measure import Measured
from chainrule.system.disk import naming
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.split import split
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""The parts of the training text, beside all of it."""
NETWORK_SHARES = (1 / 4, 1 / 2)
"""The parts on which networks train: each takes as long as the whole text."""

_ANOTHER_DRAW = 1 << 64
"""Added to the seed: the split into training and test text used the draws of the seed itself."""


@dataclass(frozen=True)
class Job:
    """A model to train, on all of the training text or, for its learning curve, on a part."""

    kind: Kind
    entry: LadderEntry
    share: float = 1.0

    @property
    def order(self) -> tuple[bool, bool]:
        """Counted models come first, since they need no time of the budget; the whole text before its parts."""
        return "minutes" in self.entry.settings, self.share < 1


def curve_jobs(ladder: Ladder) -> list[Job]:
    """Return the trainings on parts of the text: of the models of the short ladder, or of all if there are none."""
    drawn = [(kind, entry) for kind, entry in ladder if entry.quick] or ladder
    return [
        Job(kind, entry, share)
        for kind, entry in drawn
        for share in (NETWORK_SHARES if "minutes" in entry.settings else SHARES)
    ]


@dataclass(frozen=True)
class CurveTexts:
    """The parts of a training text."""

    corpus: Corpus
    tokenizer: Tokenizer
    folder: Path
    seed: int = 0
    progress: Progress = SILENT
    shares: Sequence[float] = SHARES

    @cached_property
    def encoded(self) -> dict[float, Encoded]:
        """The ids of each part, by its share of the text; encoded on first use."""
        steps = pairwise((0.0, *self.shares, 1.0))
        pieces = {f"piece-{number}": larger - smaller for number, (smaller, larger) in enumerate(steps)}
        where = self.folder / "curve"
        with naming(where):
            where.mkdir()
        try:
            found = split(self.corpus, pieces, where, seed=self.seed + _ANOTHER_DRAW, progress=self.progress)
        except CorpusError:
            if all((where / f"{name}.txt").stat().st_size for name in pieces):
                raise
            raise CorpusError(
                f"the training text has too few documents for a learning curve, which needs {len(pieces)} that "
                "differ: a document ends at a blank line, or is a line where those are rare; add text, or leave "
                "out the curve"
            ) from None
        paths = [path for piece in found.values() for path in piece.paths]
        return {
            share: encode_corpus(
                Corpus(paths=tuple(paths[: number + 1])), self.tokenizer, where / f"{number}.ids", self.progress
            )
            for number, share in enumerate(self.shares)
        }


def fraction(share: float) -> str:
    """Return a share in words.

    >>> fraction(0.0625), fraction(1.0)
    ('1/16', 'all')
    """
    return "all" if share == 1 else str(Fraction(share).limit_denominator(1000))


def on_part(name: str, share: float) -> str:
    """Return the name of a model, with the part of the text that it is trained on.

    >>> on_part("bigram", 0.5), on_part("bigram", 1.0)
    ('bigram on 1/2 of the text', 'bigram')
    """
    return name if share == 1 else f"{name} on {fraction(share)} of the text"


def timed_as(entry: LadderEntry, whole: Result) -> LadderEntry:
    """Return the entry with the minutes that it had on the whole text."""
    if "minutes" not in entry.settings:
        return entry
    return replace(entry, settings={**entry.settings, "minutes": whole.settings["minutes"]})


def add_whole_text(comparison: Comparison, names: Iterable[str]) -> None:
    """Add a point for each result on the whole text, and sort all points.

    A model has no curve if its loss is infinite, or if it gives scores instead of probabilities.
    """
    there = {one.name for one in comparison.curve if one.share == 1}
    wanted, order = set(names) - there, [one.name for one in comparison.results]
    whole = comparison.parts["train"]
    for result in comparison.results:
        if result.name in wanted and result.has_finite_loss and isinstance(result.test, Measured):
            shared = {key: getattr(result, key) for key in ("name", "kind", "training_seconds", "seconds")}
            figures = {key: getattr(result.test, key) for key in ("bits_per_byte", "perplexity")}
            sizes: Any = {key: whole[key] for key in ("tokens", "bytes")}
            comparison.curve.append(Point(**shared, **sizes, **figures, settings=dict(result.settings), share=1.0))
    comparison.curve.sort(key=lambda one: (order.index(one.name), one.share))
