"""The graph of a computation as a picture: a self-contained SVG.

Plain boxes are modules, rounded ones parameters, dashed ones data. A dark arrow is a value flowing forward,
labelled with its shape; a red arrow is a gradient flowing back, labelled with its norm, and thicker for a larger
norm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from chainrule.explanation.pictures.graph import Edge, Graph, GraphNode
from chainrule.explanation.pictures.layout import LETTER, PILL_HEIGHT, Cell, box_lines, lay_out, shape_text
from chainrule.explanation.pictures.routes import MARGIN, Picture, Point, route

_BESIDE = 5.0  # the distance between the forward and the backward arrow of an edge
_ROUND = 5.0  # the radius of a corner
_TITLE, _LEGEND = 34.0, 44.0
_SMALL = 6.6  # the width of a letter of the legend
_LEAST = 760.0  # the least width of the picture: that of the legend
_STYLE = """
text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733; text-anchor: middle }
.title { font-size: 16px; font-weight: bold; text-anchor: start }
.band { fill: #f5f6f8 }
.step { fill: #7b8794; text-anchor: start }
.module rect { fill: #dce8f7; stroke: #3d6ea8; stroke-width: 1.3 }
.module .name { font-weight: bold }
.parameter rect { fill: #fdf0d0; stroke: #b98a17; stroke-width: 1.3 }
.value rect { fill: #ffffff; stroke: #7b8794; stroke-width: 1.2; stroke-dasharray: 4 3 }
.forward { fill: none; stroke: #48535f; stroke-width: 1.3; marker-end: url(#forward) }
.backward { fill: none; stroke: #c8372d; marker-end: url(#backward) }
.shape { font-size: 11px; fill: #48535f; text-anchor: end }
.gradient { font-size: 11px; fill: #c8372d; text-anchor: start }
.parameter .gradient { text-anchor: middle }
.legend { font-size: 12px; text-anchor: start }
"""
_MARKERS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="{colour}"/></marker>'
    for name, colour in (("forward", "#48535f"), ("backward", "#c8372d"))
)


def to_svg(graph: Graph, title: str = "") -> str:
    """The picture of a graph, as the text of an SVG file."""
    layout = lay_out(graph)
    picture, thickness = route(graph, layout), _Thickness(graph.edges)
    width = max(picture.width, LETTER * 1.3 * len(title) + 2 * MARGIN, _LEAST)
    height = picture.height + _TITLE + _LEGEND
    aside = (width - picture.width) / 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{escape(title or 'a computation graph')}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_MARKERS}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text class="title" x="{MARGIN}" y="24">{escape(title)}</text>',
        f'<g transform="translate({aside:.1f} {_TITLE})">',
        *_steps(picture),
        *_arrows(picture, thickness),
        *(
            line
            for place, cell in layout.cells.items()
            for line in _cell(graph, cell, picture.centres[place], thickness)
        ),
        "</g>",
        *_legend(height - _LEGEND / 2),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _steps(picture: Picture) -> Iterator[str]:
    if len(picture.columns) > 1:
        for number, (left, right) in enumerate(picture.columns, 1):
            x, wide, tall = left - 8, right - left + 16, picture.height
            yield f'<rect class="band" x="{x:.1f}" y="0" width="{wide:.1f}" height="{tall:.1f}" rx="8"/>'
            yield f'<text class="step" x="{left:.1f}" y="18">step {number}</text>'


def _arrows(picture: Picture, thickness: _Thickness) -> Iterator[str]:
    for _, way in picture.ways:
        yield f'<path class="forward" d="{_path(way)}"/>'
    for edge, way in picture.ways:
        if edge.gradient is not None:
            back = _beside(way)[::-1]
            yield f'<path class="backward" d="{_path(back)}" stroke-width="{thickness(edge.gradient):.1f}"/>'


def _cell(graph: Graph, cell: Cell, centre: Point, thickness: _Thickness) -> Iterator[str]:
    """The SVG lines of a box, of the parameters beside it, and of its shape and gradient above it."""
    node = graph.nodes[cell.place]
    x, y = centre
    for pill in cell.pills:
        parameter = graph.nodes[pill.edge.giver]
        px, py = x + pill.dx, y + pill.dy
        yield from _pill(parameter, pill.edge.gradient, px, py, pill.width)
        right, left = px + pill.width / 2, x - cell.width / 2
        yield f'<path class="forward" d="M{right:.1f} {py - 2.5:.1f} L{left:.1f} {py - 2.5:.1f}"/>'
        if pill.edge.gradient is not None:
            wide = thickness(pill.edge.gradient)
            back = f"M{left:.1f} {py + 2.5:.1f} L{right:.1f} {py + 2.5:.1f}"
            yield f'<path class="backward" d="{back}" stroke-width="{wide:.1f}"/>'
    yield f'<g class="{node.kind}">'
    rounded = 3 if node.kind == "module" else 0
    yield _rect(x, y, cell.width, cell.height, rounded)
    first, second = box_lines(node)
    yield f'<text class="name" x="{x:.1f}" y="{y - 4:.1f}">{escape(first)}</text>'
    yield f'<text x="{x:.1f}" y="{y + 15:.1f}">{escape(second)}</text>'
    yield "</g>"
    if node.kind == "module":
        above = y - cell.height / 2 - 7
        yield f'<text class="shape" x="{x - 5:.1f}" y="{above:.1f}">{shape_text(node)}</text>'
        if node.gradient is not None:
            figure = _gradient_text(node.gradient)
            yield f'<text class="gradient" x="{x + _BESIDE + 5:.1f}" y="{above:.1f}">{figure}</text>'


def _pill(parameter: GraphNode, gradient: float | None, x: float, y: float, width: float) -> Iterator[str]:
    yield '<g class="parameter">'
    yield _rect(x, y, width, PILL_HEIGHT, PILL_HEIGHT / 2)
    text = f"{escape(parameter.symbol)} {shape_text(parameter)}"
    yield f'<text x="{x:.1f}" y="{y - 1:.1f}">{text}</text>'
    if gradient is not None:
        yield f'<text class="gradient" x="{x:.1f}" y="{y + 12:.1f}">{_gradient_text(gradient)}</text>'
    yield "</g>"


def _gradient_text(gradient: float) -> str:
    """The norm of a gradient to two significant digits, enough to compare at a glance."""
    return f"{gradient:.2g}"


def _rect(x: float, y: float, width: float, height: float, rounded: float) -> str:
    left, top = x - width / 2, y - height / 2
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{rounded:.1f}"/>'


class _Thickness:
    """The width of a red arrow: by the logarithm of its gradient, between the least and largest in the picture."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        seen = [edge.gradient for edge in edges if edge.gradient and math.isfinite(edge.gradient)] or [1.0]
        self._low, self._high = math.log(min(seen)), math.log(max(seen))

    def __call__(self, gradient: float) -> float:
        if not gradient or not math.isfinite(gradient):
            return 0.5
        level = (math.log(gradient) - self._low) / ((self._high - self._low) or 1.0)
        return 0.8 + 1.8 * level


def _beside(way: Sequence[Point]) -> list[Point]:
    """A path parallel to `way`, _BESIDE to its right in the direction of travel."""
    sides = []
    for (x0, y0), (x1, y1) in pairwise(way):
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        sides.append((-(y1 - y0) / length * _BESIDE, (x1 - x0) / length * _BESIDE))
    moved = []
    for i, (x, y) in enumerate(way):
        near = {*sides[max(i - 1, 0) : i + 1]}
        moved.append((x + sum(dx for dx, _ in near), y + sum(dy for _, dy in near)))
    return moved


def _path(way: Sequence[Point]) -> str:
    """The points of a path as the `d` attribute of an SVG path, with round corners."""
    (x, y), *rest = way
    parts = [f"M{x:.1f} {y:.1f}"]
    for before, here, after in zip(way, rest, way[2:], strict=False):
        room = min(_ROUND, math.dist(before, here) / 2, math.dist(here, after) / 2)
        (ax, ay), (bx, by) = _towards(here, before, room), _towards(here, after, room)
        parts.append(f"L{ax:.1f} {ay:.1f} Q{here[0]:.1f} {here[1]:.1f} {bx:.1f} {by:.1f}")
    parts.append(f"L{way[-1][0]:.1f} {way[-1][1]:.1f}")
    return " ".join(parts)


def _towards(here: Point, there: Point, length: float) -> Point:
    share = length / (math.dist(here, there) or 1.0)
    return here[0] + (there[0] - here[0]) * share, here[1] + (there[1] - here[1]) * share


def _legend(y: float) -> Iterator[str]:
    """The legend, in SVG lines: what the shapes and colours mean."""
    x = MARGIN
    for kind, rounded, text in (("module", 3, "module"), ("parameter", 8, "parameter"), ("value", 0, "data")):
        yield f'<g class="{kind}">{_rect(x + 13, y, 26, 16, rounded)}</g>'
        yield f'<text class="legend" x="{x + 33:.1f}" y="{y + 4:.1f}">{text}</text>'
        x += 33 + _SMALL * len(text) + 16
    for kind, text in (("forward", "forward: a value, its shape"), ("backward", "backward: a gradient, its norm")):
        yield f'<path class="{kind}" d="M{x:.1f} {y:.1f} L{x + 28:.1f} {y:.1f}" stroke-width="1.6"/>'
        yield f'<text class="legend" x="{x + 36:.1f}" y="{y + 4:.1f}">{text}</text>'
        x += 36 + _SMALL * len(text) + 16
