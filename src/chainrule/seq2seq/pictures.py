"""Pictures of translations, as SVG files: alignments, and BLEU against the length of the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from chainrule.seq2seq.alignments import Alignment
from chainrule.seq2seq.quality import OfLength

COLOURS = ("#3d6ea8", "#c8372d", "#2f8f5b", "#b98a17", "#7a4fa3", "#5c6770")
_CELL, _LETTER, _GAP, _LONGEST = 26, 7.6, 30, 24
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 376, 56, 80, 44, 20
_STYLE = """
.chainrule-picture text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733 }
.chainrule-picture .paper { fill: #ffffff }
.chainrule-picture .title { font-size: 15px; font-weight: bold }
.chainrule-picture .count { font-size: 11px; opacity: 0.7 }
.chainrule-picture .side { font-size: 12px; fill: #6b7682 }
.chainrule-picture .grid { stroke: #d5dae0; stroke-width: 1 }
.chainrule-picture .axis { stroke: #48535f; stroke-width: 1.2 }
.chainrule-picture .line { fill: none; stroke-width: 2.2 }
.chainrule-picture .frame { fill: none; stroke: #c3cad2; stroke-width: 1 }
.chainrule-picture .weight { fill: #2456a6 }
@media (prefers-color-scheme: dark) {
  .chainrule-picture .paper { fill: #14181d }
  .chainrule-picture text { fill: #e4e8ec }
  .chainrule-picture .side { fill: #9aa5b1 }
  .chainrule-picture .grid { stroke: #333b44 }
  .chainrule-picture .axis { stroke: #9aa5b1 }
  .chainrule-picture .frame { stroke: #46505b }
  .chainrule-picture .weight { fill: #7fb2ff }
}
"""


def _svg(title: str, width: float, height: float, lines: Iterable[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg class="chainrule-picture" xmlns="http://www.w3.org/2000/svg" {box} {size} role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" {size}/>',
            *lines,
            "</svg>\n",
        ]
    )


# -- alignments -------------------------------------------------------------------------------------------


def alignment_picture(alignments: Sequence[Alignment]) -> str:
    """Return the text of an SVG file: alignments one below the other, sources across and targets down."""
    panels, top, widest = [], 8.0, 240.0
    for alignment in alignments:
        lines, width, height = _panel(alignment, top)
        panels += lines
        top += height + _GAP
        widest = max(widest, width)
    return _svg("which words of the source each word of the target looked at", widest, top - _GAP + 8, panels)


def _panel(alignment: Alignment, top: float) -> tuple[list[str], float, float]:
    """Return the lines of one alignment, its width and its height."""
    sources, targets = ([_short(name) for name in names] for names in (alignment.source, alignment.target))
    S, T = len(sources), len(targets)
    left = 16 + _LETTER * max(map(len, targets))
    above = 36 + _LETTER * max(map(len, sources)) * 0.8  # the labels of the source are slanted
    x0, y0 = left + 8, top + above
    lines = [f'<text class="side" x="8" y="{top + 14:.0f}">source across, target down</text>']
    for s, name in enumerate(sources):
        x, y = x0 + (s + 0.5) * _CELL, y0 - 8
        slant = f"rotate(-50 {x:.1f} {y:.1f})"
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="{slant}">{escape(name)}</text>')
    for t, name in enumerate(targets):
        at = y0 + (t + 0.5) * _CELL + 4.5
        lines.append(f'<text x="{left:.1f}" y="{at:.1f}" text-anchor="end">{escape(name)}</text>')
    for t in range(1, T):
        y = y0 + t * _CELL
        lines.append(f'<line class="grid" x1="{x0:.1f}" x2="{x0 + S * _CELL:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for s in range(1, S):
        x = x0 + s * _CELL
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y0:.1f}" y2="{y0 + T * _CELL:.1f}"/>')
    for t in range(T):
        for s in range(S):
            weight = float(alignment.weights_TS[t, s])
            if weight >= 0.005:
                lines.append(
                    f'<rect class="weight" x="{x0 + s * _CELL:.1f}" y="{y0 + t * _CELL:.1f}" width="{_CELL}" '
                    f'height="{_CELL}" fill-opacity="{weight:.3f}"><title>{escape(alignment.target[t])} looked at '
                    f"{escape(alignment.source[s])}: {weight:.2f}</title></rect>"
                )
    lines.append(f'<rect class="frame" x="{x0:.1f}" y="{y0:.1f}" width="{S * _CELL}" height="{T * _CELL}"/>')
    slanted = _LETTER * max(len(name) for name in sources) * 0.65
    return lines, x0 + S * _CELL + max(slanted - _CELL, 0) + 16, above + T * _CELL


def _short(name: str) -> str:
    """Return a label, cut if it is long."""
    name = name.strip() or "␣"
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


# -- BLEU against the length of the source ----------------------------------------------------------------


def length_plot(curves: Sequence[tuple[str, Sequence[OfLength]]]) -> str:
    """Return the text of an SVG file: BLEU against the length of the source, a line for each model."""
    buckets = sorted({(one.least, one.name) for _, curve in curves for one in curve})
    place = {name: i for i, (_, name) in enumerate(buckets)}
    top = _ceiling(max((one.bleu for _, curve in curves for one in curve), default=0.0))
    height = _HEIGHT + 20 * len(curves)

    def x(name: str) -> float:
        return _LEFT + (place[name] + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(len(buckets), 1)

    def y(bleu: float) -> float:
        return _HEIGHT - _BOTTOM - bleu / top * (_HEIGHT - _BOTTOM - _TOP)

    title = "BLEU against the length of the source"
    lines = [f'<text class="title" x="{_LEFT}" y="26">{title}</text>']
    for step in range(5):
        bleu = top * step / 4
        lines.append(
            f'<line class="{"grid" if step else "axis"}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(bleu):.1f}" '
            f'y2="{y(bleu):.1f}"/>'
        )
        lines.append(f'<text x="{_LEFT - 8}" y="{y(bleu) + 4:.1f}" text-anchor="end">{bleu:g}</text>')
    pairs = {one.name: one.pairs for _, curve in curves for one in curve}
    for _, name in buckets:
        place_x, below = f'x="{x(name):.1f}" text-anchor="middle"', _HEIGHT - _BOTTOM
        lines.append(f'<text {place_x} y="{below + 20}">{escape(name)}</text>')
        lines.append(f'<text class="count" {place_x} y="{below + 36}">{pairs[name]:,}</text>')
    middle, axis = (_LEFT + _WIDTH - _RIGHT) / 2, "words of the source, and how many sources"
    lines.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">{axis}</text>')
    for number, (name, curve) in enumerate(curves):
        lines += _curve(name, curve, COLOURS[number % len(COLOURS)], _HEIGHT + 20 * number, x, y)
    return _svg(title, _WIDTH, height, lines)


def _curve(name: str, curve: Iterable[OfLength], colour: str, below: float, x: Any, y: Any) -> list[str]:
    """Return a line with its points, and its name below the plot."""
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
    """Return a round number, which four steps divide, above the highest value."""
    return next((float(top) for top in (4, 8, 20, 40, 60, 80) if highest <= top), 100.0)
