"""Small pictures as the text of SVG files: curves over two axes, tables of numbers as coloured cells, and trees.

>>> squares = [(1, 1), (2, 4), (3, 9)]
>>> picture = curves_picture("squares", [("x²", squares)], linear_axis("x", [1, 3]), linear_axis("x²", [0, 9]))
>>> picture.count("<circle")
3
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.sax.saxutils import escape

import numpy as np

COLOURS = ("#3d6ea8", "#c8372d", "#2f8f5b", "#b98a17", "#7a4fa3", "#5c6770")
Point: TypeAlias = tuple[float, float]
_LETTER, _GAP, _LONGEST = 7.6, 30, 24
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 376, 64, 80, 44, 20
_TICKS = 8
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
.chainrule-picture .negative { fill: #c8372d }
.chainrule-picture .box { fill: #dce8f7; stroke: #3d6ea8; stroke-width: 1.3 }
.chainrule-picture .edge { fill: none; stroke: #48535f; stroke-width: 1.5 }
.chainrule-picture .weak { opacity: 0.45 }
@media (prefers-color-scheme: dark) {
  .chainrule-picture .paper { fill: #14181d }
  .chainrule-picture text { fill: #e4e8ec }
  .chainrule-picture .side { fill: #9aa5b1 }
  .chainrule-picture .grid { stroke: #333b44 }
  .chainrule-picture .axis { stroke: #9aa5b1 }
  .chainrule-picture .frame { stroke: #46505b }
  .chainrule-picture .weight { fill: #7fb2ff }
  .chainrule-picture .negative { fill: #ff8a80 }
  .chainrule-picture .box { fill: #24364b; stroke: #7fb2ff }
  .chainrule-picture .edge { stroke: #9aa5b1 }
}
"""


class Picture(str):
    """The text of an SVG file, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def svg(title: str, width: float, height: float, lines: Iterable[str]) -> Picture:
    """Return the text of an SVG file of that size, on paper that is dark where the reader prefers it."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    return Picture(
        "\n".join(
            [
                f'<svg class="chainrule-picture" xmlns="http://www.w3.org/2000/svg" {box} {size} role="img">',
                f"<title>{escape(title)}</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="paper" {size}/>',
                *lines,
                "</svg>\n",
            ]
        )
    )


# -- curves -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, with the labels of some of its values."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    """Values and labels; what follows a line break in a label is smaller."""
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high end."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(title: str, values: Iterable[float]) -> Axis:
    """Return an axis of even steps of 1, 2 or 5 times a power of ten that covers the values."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    rough = max(high - low, 1e-12) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return Axis(title, first * step, last * step, [(n * step, f"{n * step:.6g}") for n in range(first, last + 1)])


def log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return an axis by logarithms, from a power of ten to a power of ten, that covers the values above 0."""
    powers = [math.log10(value) for value in values if 0 < value < math.inf] or [0.0]
    low = math.floor(min(powers))
    high = max(math.ceil(max(powers)), low + 1)
    every = -(-(high - low) // _TICKS)
    ticks = [(10.0**power, f"1e{power}" if power else "1") for power in range(high, low - 1, -every)]
    return Axis(title, 10.0**low, 10.0**high, ticks, is_log=True)


def curves_picture(
    title: str,
    curves: Sequence[tuple[str, Sequence[Point]]],
    x: Axis,
    y: Axis,
    tip: Callable[[str, Point], str] = lambda name, at: f"{name}: {at[0]:g}, {at[1]:.4g}",
) -> Picture:
    """Return a picture of curves with their names below; on an axis by logarithms only values above 0 are drawn."""
    below = _HEIGHT - _BOTTOM

    def across(value: float) -> float:
        return _LEFT + x.place(value) * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return below - y.place(value) * (below - _TOP)

    lines = [f'<text class="title" x="{_LEFT}" y="20">{escape(title)}</text>']
    for value, label in y.ticks:
        kind, at = "axis" if value == y.low else "grid", up(value)
        lines.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    lines.append(f'<text class="side" x="{_LEFT}" y="{_TOP - 6}">{escape(y.title)}</text>')
    for value, label in x.ticks:
        place, (first, _, second) = f'x="{across(value):.1f}" text-anchor="middle"', label.partition("\n")
        lines.append(f'<text {place} y="{below + 20}">{escape(first)}</text>')
        if second:
            lines.append(f'<text class="count" {place} y="{below + 36}">{escape(second)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">{escape(x.title)}</text>')
    for number, (name, curve) in enumerate(curves):
        colour, at = COLOURS[number % len(COLOURS)], _HEIGHT + 20 * number
        drawn = [point for point in curve if not y.is_log or 0 < point[1] < math.inf]
        places = [(across(px), up(py)) for px, py in drawn]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        lines.append(f'<polyline class="line" points="{path}" stroke="{colour}"/>')
        lines += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{4 if len(places) < 30 else 2}" fill="{colour}">'
            f"<title>{escape(tip(name, point))}</title></circle>"
            for (px, py), point in zip(places, drawn, strict=True)
        ]
        lines.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="2.2"/>'
        )
        lines.append(f'<text x="{_LEFT + 32}" y="{at + 4}">{escape(name)}</text>')
    return svg(title, _WIDTH, _HEIGHT + 20 * len(curves), lines)


# -- tables as coloured cells -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cells:
    """A table of numbers, drawn as cells: blue above 0, red below, the stronger the larger."""

    title: str
    values_RC: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str] = ()
    """The labels above the columns; none if empty."""
    size: int = 26
    """The width and height of a cell."""
    full: float | None = None
    """The number of the strongest colour; the largest of the table if None."""
    tip: Callable[[int, int, float], str] | None = None
    """What the pointer shows of a cell, from its row, its column and its number."""


def cells_picture(title: str, tables: Sequence[Cells]) -> Picture:
    """Return a picture of tables, one below the other."""
    panels: list[str] = []
    top, widest = 8.0, 240.0
    for table in tables:
        lines, width, height = _panel(table, top)
        panels += lines
        top += height + _GAP
        widest = max(widest, width)
    return svg(title, widest, top - _GAP + 8, panels)


def _panel(table: Cells, top: float) -> tuple[list[str], float, float]:
    """Return the lines of one table, its width and its height."""
    rows, columns = ([_short(name) for name in names] for names in (table.rows, table.columns))
    (R, C), cell = table.values_RC.shape, table.size
    full = table.full if table.full is not None else float(np.abs(table.values_RC).max(initial=0)) or 1.0
    left = 16 + _LETTER * max(map(len, rows), default=0)
    slanted = _LETTER * max(map(len, columns), default=0)
    above = 36 + slanted * 0.8 if columns else 28  # the labels above are slanted
    x0, y0 = left + 8, top + above
    lines = [f'<text class="side" x="8" y="{top + 14:.0f}">{escape(table.title)}</text>']
    for number, name in enumerate(columns):
        x, y = x0 + (number + 0.5) * cell, y0 - 8
        slant = f"rotate(-50 {x:.1f} {y:.1f})"
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="{slant}">{escape(name)}</text>')
    for number, name in enumerate(rows):
        at = y0 + (number + 0.5) * cell + 4.5
        lines.append(f'<text x="{left:.1f}" y="{at:.1f}" text-anchor="end">{escape(name)}</text>')
    if cell >= 20:
        for number in range(1, R):
            y = y0 + number * cell
            lines.append(f'<line class="grid" x1="{x0:.1f}" x2="{x0 + C * cell:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for number in range(1, C):
            x = x0 + number * cell
            lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y0:.1f}" y2="{y0 + R * cell:.1f}"/>')
    for (row, column), value in np.ndenumerate(table.values_RC):
        strength = min(abs(float(value)) / full, 1.0)
        if strength >= 0.005:
            tip = table.tip(row, column, float(value)) if table.tip else _tip(table, row, column, float(value))
            lines.append(
                f'<rect class="{"weight" if value > 0 else "negative"}" x="{x0 + column * cell:.1f}" '
                f'y="{y0 + row * cell:.1f}" width="{cell}" height="{cell}" fill-opacity="{strength:.3f}">'
                f"<title>{escape(tip)}</title></rect>"
            )
    lines.append(f'<rect class="frame" x="{x0:.1f}" y="{y0:.1f}" width="{C * cell}" height="{R * cell}"/>')
    width = max(x0 + C * cell + max(slanted * 0.65 - cell, 0) + 16, 16 + 6.6 * len(table.title))
    return lines, width, above + R * cell


def _tip(table: Cells, row: int, column: int, value: float) -> str:
    return f"{table.rows[row]}, {table.columns[column] if table.columns else column}: {value:.4g}"


def _short(name: str) -> str:
    """Return a label, cut if it is long."""
    name = name.strip() or "␣"
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


# -- trees ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """A node of a tree with all that grows from it."""

    label: str
    note: str = ""
    """What is written small in the box, below the label."""
    children: Sequence[Branch] = ()
    is_weak: bool = False
    """True if the node is drawn pale, such as a hypothesis that a search drops."""


def tree_picture(title: str, roots: Sequence[Branch], *, upward: bool = False) -> Picture:
    """Return a picture of trees that grow to the right; `upward`, the leaves stand at the bottom, in one row.

    >>> love = Branch("lo", "2 times", [Branch("l"), Branch("o")])
    >>> tree_picture("merges", [love], upward=True).count('class="edge')
    2
    """
    boxes: list[tuple[Branch, float, int]] = []  # each with its place among the leaves, and its level
    edges: list[tuple[int, int]] = []
    leaves = 0

    def place(branch: Branch, depth: int) -> int:
        nonlocal leaves
        children = [place(child, depth + 1) for child in branch.children]
        across = sum(boxes[child][1] for child in (children[0], children[-1])) / 2 if children else float(leaves)
        leaves += not children
        level = max((boxes[child][2] + 1 for child in children), default=0) if upward else depth
        boxes.append((branch, across, level))
        edges.extend((len(boxes) - 1, child) for child in children)
        return len(boxes) - 1

    for root in roots:
        place(root, 0)
    letters = max(len(_short(text)) for branch, *_ in boxes for text in (branch.label, branch.note))
    wide, tall, levels = 18 + _LETTER * letters, 40.0, 1 + max(level for *_, level in boxes)
    across, along = (wide + 10, tall + 24) if upward else (tall + 10, wide + 36)

    def centre(number: int) -> Point:
        _, at, level = boxes[number]
        if upward:
            return 8 + wide / 2 + at * across, 36 + tall / 2 + (levels - 1 - level) * along
        return 8 + wide / 2 + level * along, 36 + tall / 2 + at * across

    lines = [f'<text class="title" x="8" y="20">{escape(title)}</text>']
    for parent, child in edges:
        (x0, y0), (x1, y1) = centre(parent), centre(child)
        (x0, y0, x1, y1) = (
            (x0, y0 + tall / 2, x1, y1 - tall / 2) if upward else (x0 + wide / 2, y0, x1 - wide / 2, y1)
        )
        middle = f"{x0:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {(y0 + y1) / 2:.1f}"
        if not upward:
            middle = f"{(x0 + x1) / 2:.1f} {y0:.1f} {(x0 + x1) / 2:.1f} {y1:.1f}"
        kind = "edge weak" if boxes[child][0].is_weak else "edge"
        lines.append(f'<path class="{kind}" d="M{x0:.1f} {y0:.1f} C{middle} {x1:.1f} {y1:.1f}"/>')
    for number, (branch, *_) in enumerate(boxes):
        x, y = centre(number)
        size = f'width="{wide:.1f}" height="{tall:.1f}" rx="6"'
        lines.append(f'<g class="{"weak" if branch.is_weak else "kept"}" text-anchor="middle">')
        lines.append(f'<rect class="box" x="{x - wide / 2:.1f}" y="{y - tall / 2:.1f}" {size}/>')
        lines.append(
            f'<text x="{x:.1f}" y="{y + (-2 if branch.note else 4.5):.1f}">{escape(_short(branch.label))}</text>'
        )
        if branch.note:
            lines.append(f'<text class="count" x="{x:.1f}" y="{y + 13:.1f}">{escape(branch.note)}</text>')
        lines.append("</g>")
    width, height = (leaves * across, levels * along) if upward else (levels * along, leaves * across)
    return svg(title, max(width + 8, 24 + _LETTER * 1.2 * len(title)), height + 36, lines)
