"""Learning curves: the same models trained on parts of the training text, and measured on the same test text.

The parts are made of whole documents, drawn at random, and each holds those of the smaller ones. All have the
tokenizer and the held-out text of the comparison, and a network has the time that it has on the whole text: only
the training text differs. (With time in proportion to the text, a network of few minutes shows the time instead.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from chainrule.comparison.ladder import Ladder
from chainrule.comparison.results import Comparison, Point, Result, loss_of
from chainrule.contract.kinds import Kind, Rung
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
"""Those on which networks train: each takes as long as the whole text."""

_ANOTHER_DRAW = 1 << 64
"""Added to the seed: the training text has the documents whose draws by the seed itself are high."""


def points_of(ladder: Ladder) -> list[tuple[Kind, Rung, float]]:
    """The rungs that have a curve, each with its shares: those of the short ladder, or all where none is of it."""
    drawn = [(kind, rung) for kind, rung in ladder if rung.quick] or ladder
    return [
        (kind, rung, share)
        for kind, rung in drawn
        for share in (NETWORK_SHARES if "minutes" in rung.settings else SHARES)
    ]


@dataclass(frozen=True)
class CurveTexts:
    """The parts of a training text, written and encoded when they are asked for."""

    corpus: Corpus
    tokenizer: Tokenizer
    folder: Path
    seed: int = 0
    progress: Progress = SILENT
    shares: Sequence[float] = SHARES

    @cached_property
    def encoded(self) -> dict[float, Encoded]:
        """The ids of each part, by its share of the text."""
        pieces = {f"piece-{one}": share for one, share in enumerate(_steps(self.shares))}
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


def _steps(shares: Sequence[float]) -> list[float]:
    """What each share has more than the one before it, up to all."""
    return [after - before for before, after in zip((0.0, *shares), (*shares, 1.0), strict=True)]


def fraction(share: float) -> str:
    """A share as it is said.

    >>> fraction(0.0625), fraction(1.0)
    ('1/16', 'all')
    """
    return "all" if share == 1 else str(Fraction(share).limit_denominator(1000))


def on_part(name: str, share: float) -> str:
    """The name of a model, with the part of the text that it is trained on.

    >>> on_part("bigram", 0.5), on_part("bigram", 1.0)
    ('bigram on 1/2 of the text', 'bigram')
    """
    return name if share == 1 else f"{name} on {fraction(share)} of the text"


def timed_as(rung: Rung, whole: Result) -> Rung:
    """The rung with the minutes that it had on the whole text."""
    if "minutes" not in rung.settings:
        return rung
    return replace(rung, settings={**rung.settings, "minutes": whole.settings["minutes"]})


def add_whole_text(comparison: Comparison, names: Iterable[str]) -> None:
    """Add the points of the whole text, which are results of the ladder, and put all points in order.

    A model without a finite figure has no curve, nor has one whose figures are scores: they do not compare.
    """
    there = {one.name for one in comparison.curve if one.share == 1}
    wanted, order = set(names) - there, [one.name for one in comparison.results]
    whole = comparison.parts["train"]
    for result in comparison.results:
        loss = loss_of(result) if result.name in wanted else None
        if loss is not None and math.isfinite(loss) and isinstance(result.test, Measured):
            comparison.curve.append(
                Point(
                    name=result.name,
                    kind=result.kind,
                    settings=dict(result.settings),
                    share=1.0,
                    tokens=whole["tokens"],
                    bytes=whole["bytes"],
                    bits_per_byte=result.test.bits_per_byte,
                    perplexity=result.test.perplexity,
                    training_seconds=result.training_seconds,
                    seconds=result.seconds,
                )
            )
    comparison.curve.sort(key=lambda one: (order.index(one.name), one.share))
