"""Pictures of translations, as SVG files: alignments, and BLEU against the length of the source."""

from __future__ import annotations

from collections.abc import Sequence

from chainrule.seq2seq.alignments import Alignment
from chainrule.seq2seq.quality import OfLength
from chainrule.system.pictures import Axis, Cells, Point, cells_picture, curves_picture


def alignment_picture(alignments: Sequence[Alignment]) -> str:
    """Return the text of an SVG file: alignments one below the other, sources across and targets down."""
    return cells_picture("which words of the source each word of the target looked at", [*map(_cells, alignments)])


def _cells(alignment: Alignment) -> Cells:
    def tip(target: int, source: int, weight: float) -> str:
        return f"{alignment.target[target]} looked at {alignment.source[source]}: {weight:.2f}"

    names = alignment.target, alignment.source
    return Cells("source across, target down", alignment.weights_TS, *names, full=1.0, tip=tip)


def length_plot(curves: Sequence[tuple[str, Sequence[OfLength]]]) -> str:
    """Return the text of an SVG file: BLEU against the length of the source, a line for each model."""
    pairs = {(one.least, one.name): one.pairs for _, curve in curves for one in curve}
    places = {name: place for place, (_, name) in enumerate(sorted(pairs))}
    top = _ceiling(max((one.bleu for _, curve in curves for one in curve), default=0.0))
    lengths = [
        (float(place), f"{name}\n{pairs[least, name]:,}") for place, (least, name) in enumerate(sorted(pairs))
    ]
    x = Axis("words of the source, and how many sources", -0.5, max(len(places), 1) - 0.5, lengths)
    y = Axis("", 0.0, top, [(top * step / 4, f"{top * step / 4:g}") for step in range(5)])
    points = [(name, [(float(places[one.name]), one.bleu) for one in curve]) for name, curve in curves]
    names = [*places]

    def tip(_: str, at: Point) -> str:
        return f"{names[int(at[0])]} words: BLEU {at[1]:.1f}"

    return curves_picture("BLEU against the length of the source", points, x, y, tip)


def _ceiling(highest: float) -> float:
    """Return a round number, which four steps divide, above the highest value."""
    return next((float(top) for top in (4, 8, 20, 40, 60, 80) if highest <= top), 100.0)
