"""The plot of BLEU against the length of the source, a line for each model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from chainrule.seq2seq.quality import OfLength

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 376, 56, 80, 44, 20
COLOURS = ("#3d6ea8", "#c8372d", "#2f8f5b", "#b98a17", "#7a4fa3", "#5c6770")
_STYLE = """
text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733 }
.paper { fill: #ffffff }
.title { font-size: 15px; font-weight: bold }
.count { font-size: 11px; opacity: 0.7 }
.grid { stroke: #d5dae0; stroke-width: 1 }
.axis { stroke: #48535f; stroke-width: 1.2 }
.line { fill: none; stroke-width: 2.2 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d }
  text { fill: #e4e8ec }
  .grid { stroke: #333b44 }
  .axis { stroke: #9aa5b1 }
}
"""


def length_plot(curves: Sequence[tuple[str, Sequence[OfLength]]]) -> str:
    """BLEU against the length of the source, a line for each model, as the text of an SVG file."""
    buckets = sorted({(one.least, one.name) for _, curve in curves for one in curve})
    place = {name: i for i, (_, name) in enumerate(buckets)}
    top = _ceiling(max((one.bleu for _, curve in curves for one in curve), default=0.0))
    height = _HEIGHT + 20 * len(curves)

    def x(name: str) -> float:
        return _LEFT + (place[name] + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(len(buckets), 1)

    def y(bleu: float) -> float:
        return _HEIGHT - _BOTTOM - bleu / top * (_HEIGHT - _BOTTOM - _TOP)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">',
        "<title>BLEU against the length of the source</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="26">BLEU against the length of the source</text>',
    ]
    for step in range(5):
        bleu = top * step / 4
        lines.append(
            f'<line class="{"grid" if step else "axis"}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(bleu):.1f}" '
            f'y2="{y(bleu):.1f}"/>'
        )
        lines.append(f'<text x="{_LEFT - 8}" y="{y(bleu) + 4:.1f}" text-anchor="end">{bleu:g}</text>')
    for _, name in buckets:
        lines.append(
            f'<text x="{x(name):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{escape(name)}</text>'
        )
    pairs = {one.name: one.pairs for _, curve in curves for one in curve}
    for _, name in buckets:
        lines.append(
            f'<text class="count" x="{x(name):.1f}" y="{_HEIGHT - _BOTTOM + 36}" text-anchor="middle">'
            f"{pairs[name]:,}</text>"
        )
    middle, axis = (_LEFT + _WIDTH - _RIGHT) / 2, "words of the source, and how many sources"
    lines.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">{axis}</text>')
    for number, (name, curve) in enumerate(curves):
        lines += _curve(name, curve, COLOURS[number % len(COLOURS)], _HEIGHT + 20 * number, x, y)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _curve(name: str, curve: Iterable[OfLength], colour: str, below: float, x: Any, y: Any) -> list[str]:
    """A line with its points, and its name below the plot."""
    points = [(x(one.name), y(one.bleu), one) for one in curve]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in points)
    return [
        f'<polyline class="line" points="{path}" stroke="{colour}"/>',
        *(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"><title>{one.name} words: BLEU '
            f"{one.bleu:.1f}, {one.pairs} pairs</title></circle>"
            for px, py, one in points
        ),
        f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{below}" y2="{below}" stroke="{colour}" stroke-width="2.2"/>',
        f'<text x="{_LEFT + 32}" y="{below + 4}">{escape(name)}</text>',
    ]


def _ceiling(highest: float) -> float:
    """A round number, which four steps divide, above the highest value."""
    return next((float(top) for top in (4, 8, 20, 40, 60, 80) if highest <= top), 100.0)
