"""The graph of a computation as a picture: a self-contained SVG.

Plain boxes are modules, rounded ones parameters, dashed ones data. A dark arrow is a value flowing forward,
labelled with its shape; a red arrow is a gradient flowing back, labelled with its norm, and thicker for a larger
norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from xml.sax.saxutils import escape

from chainrule.explanation.pictures.graph import Edge, Graph
from chainrule.explanation.pictures.layout import (
    LETTER,
    MARGIN,
    PILL_HEIGHT,
    Box,
    Picture,
    Point,
    box_lines,
    lay_out,
    shape_text,
)
from chainrule.system.pictures import Picture as Svg

_BESIDE = 5.0  # the distance between the forward and the backward arrow of an edge
_ROUND = 10.0  # the radius of a corner
_TITLE, _LEGEND = 34.0, 44.0
_SMALL = 6.6  # the width of a letter of the legend
_LEAST = 760.0  # the least width of the picture: that of the legend
_STYLE = """
.chainrule-graph text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733; text-anchor: middle }
.chainrule-graph .title { font-size: 16px; font-weight: bold; text-anchor: start }
.chainrule-graph .band { fill: #f5f6f8 }
.chainrule-graph .step { fill: #7b8794; text-anchor: start }
.chainrule-graph .module rect { fill: #dce8f7; stroke: #3d6ea8; stroke-width: 1.3 }
.chainrule-graph .module .name { font-weight: bold }
.chainrule-graph .parameter rect { fill: #fdf0d0; stroke: #b98a17; stroke-width: 1.3 }
.chainrule-graph .value rect { fill: #ffffff; stroke: #7b8794; stroke-width: 1.2; stroke-dasharray: 4 3 }
.chainrule-graph .forward { fill: none; stroke: #48535f; stroke-width: 1.3; marker-end: url(#chainrule-forward) }
.chainrule-graph .backward { fill: none; stroke: #c8372d; marker-end: url(#chainrule-backward) }
.chainrule-graph .shape { font-size: 11px; fill: #48535f; text-anchor: end }
.chainrule-graph .gradient { font-size: 11px; fill: #c8372d; text-anchor: start }
.chainrule-graph .parameter .gradient { text-anchor: middle }
.chainrule-graph .legend { font-size: 12px; text-anchor: start }
.chainrule-graph .paper { fill: #ffffff }
.chainrule-graph .popped { opacity: 0.4 }
@media (prefers-color-scheme: dark) {
  .chainrule-graph .paper { fill: #14181d }
  .chainrule-graph text { fill: #e4e8ec }
  .chainrule-graph .band { fill: #1c2229 }
  .chainrule-graph .step { fill: #9aa5b1 }
  .chainrule-graph .module rect { fill: #24364b; stroke: #7fb2ff }
  .chainrule-graph .parameter rect { fill: #3a3016; stroke: #d5a93a }
  .chainrule-graph .value rect { fill: #14181d; stroke: #9aa5b1 }
  .chainrule-graph .forward { stroke: #9aa5b1 }
  .chainrule-graph .shape { fill: #b4bdc7 }
  .chainrule-graph .backward { stroke: #ff7a70 }
  .chainrule-graph .gradient { fill: #ff8a80 }
}
"""
_MARKERS = "".join(
    f'<marker id="chainrule-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="{colour}"/></marker>'
    for name, colour in (("forward", "#48535f"), ("backward", "#c8372d"))
)


def tape_picture(graph: Graph, step: int) -> Svg:
    """Return the picture of a tape after so many steps: the forward pass fills it, the backward pass empties it.

    >>> import numpy as np
    >>> from chainrule.autodiff import Parameter, Sum, Tanh, Tape
    >>> from chainrule.explanation.pictures.graph import differentiate
    >>> with Tape() as tape:
    ...     loss = Sum().apply_fwd(Tanh().apply_fwd(Parameter("w", np.ones(2))))
    ...     graph = differentiate(tape)
    >>> import re
    >>> [re.search("tape: ([^<]*)", tape_picture(graph, step))[1] for step in (1, 2, 3, 4)]
    ['Tanh', 'Tanh, Sum', 'Tanh', 'empty']
    """
    modules = [place for place, node in enumerate(graph.nodes) if node.kind == "module"]
    applied = modules[:step]
    popped = modules[2 * len(modules) - step :] if step > len(modules) else []
    edges = tuple(edge if edge.taker in popped else replace(edge, gradient=None) for edge in graph.edges)
    # a gradient is complete when all modules that use the value are popped
    is_done = [bool(popped) and all(edge.taker in popped for edge in uses) for uses in graph.uses]
    nodes = tuple(
        node if done else replace(node, gradient=None) for node, done in zip(graph.nodes, is_done, strict=True)
    )
    on_tape = ", ".join(graph.nodes[place].name for place in applied if place not in popped) or "empty"
    used = {edge.giver for edge in edges if edge.taker in applied}
    hidden = {place for place in range(len(nodes)) if place not in used and place not in applied}
    return to_svg(Graph(nodes, edges), f"tape: {on_tape}", hidden=hidden, pale=popped)


def to_svg(graph: Graph, title: str = "", *, hidden: Collection[int] = (), pale: Collection[int] = ()) -> Svg:
    """Return the picture of a graph, as the text of an SVG file; some nodes may be hidden or pale."""
    picture, thickness = lay_out(graph), _thickness(graph.edges)
    width = max(picture.width, LETTER * 1.3 * len(title) + 2 * MARGIN, _LEAST)
    height = picture.height + _TITLE + _LEGEND
    aside = (width - picture.width) / 2
    lines = [
        f'<svg class="chainrule-graph" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{escape(title or 'a computation graph')}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_MARKERS}</defs>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="title" x="{MARGIN}" y="24">{escape(title)}</text>',
        f'<g transform="translate({aside:.1f} {_TITLE})">',
        *_steps(picture),
        *(_arrow(way, "forward") for edge, way in picture.ways if edge.taker not in hidden),
        *(
            _arrow(_beside(way)[::-1], "backward", thickness(edge.gradient))
            for edge, way in picture.ways
            if edge.gradient is not None
        ),
        *(
            line
            for place, box in picture.boxes.items()
            if place not in hidden
            for line in ('<g class="popped">' if place in pale else "<g>", *_box(graph, box, thickness), "</g>")
        ),
        "</g>",
        *_legend(height - _LEGEND / 2),
        "</svg>",
    ]
    return Svg("\n".join(lines) + "\n")


def _steps(picture: Picture) -> Iterator[str]:
    if len(picture.columns) > 1:
        for number, (left, right) in enumerate(picture.columns, 1):
            x, wide, tall = left - 8, right - left + 16, picture.height
            yield f'<rect class="band" x="{x:.1f}" y="0" width="{wide:.1f}" height="{tall:.1f}" rx="8"/>'
            yield f'<text class="step" x="{left:.1f}" y="18">step {number}</text>'


def _box(graph: Graph, box: Box, thickness: Callable[[float], float]) -> Iterator[str]:
    """Yield the SVG lines of a box and of the parameters beside it."""
    node, x, y = graph.nodes[box.place], box.x, box.y
    for edge, px, py, width in box.pills():
        parameter, right, left = graph.nodes[edge.giver], px + width / 2, x - box.width / 2
        yield '<g class="parameter">'
        yield _rect(px, py, width, PILL_HEIGHT, PILL_HEIGHT / 2)
        yield _text(px, py - 1, f"{parameter.symbol} {shape_text(parameter)}")
        if edge.gradient is not None:
            yield _text(px, py + 12, f"{edge.gradient:.2g}", "gradient")
        yield "</g>"
        yield _arrow([(right, py - 2.5), (left, py - 2.5)], "forward")
        if edge.gradient is not None:
            yield _arrow([(left, py + 2.5), (right, py + 2.5)], "backward", thickness(edge.gradient))
    yield f'<g class="{node.kind}">'
    yield _rect(x, y, box.width, box.height, 3 if node.kind == "module" else 0)
    first, second = box_lines(node)
    down = 4 if node.kind == "module" else -4
    yield _text(x, y + down, first, "name")
    yield _text(x, y + down + 18, second)
    if node.kind == "module":
        yield _text(x - 4, y - 14, shape_text(node), "shape")
        if node.gradient is not None:
            yield _text(x + 6, y - 14, f"{node.gradient:.2g}", "gradient")
    yield "</g>"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _arrow(way: Sequence[Point], kind: str, width: float | None = None) -> str:
    thick = "" if width is None else f' stroke-width="{width:.1f}"'
    return f'<path class="{kind}" d="{_path(way)}"{thick}/>'


def _rect(x: float, y: float, width: float, height: float, rounded: float) -> str:
    left, top = x - width / 2, y - height / 2
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{rounded:.1f}"/>'


def _thickness(edges: Sequence[Edge]) -> Callable[[float], float]:
    """Return the width of a red arrow by its gradient: the logarithm between the least and the largest of all."""
    seen = [edge.gradient for edge in edges if edge.gradient and math.isfinite(edge.gradient)] or [1.0]
    low, high = math.log(min(seen)), math.log(max(seen))

    def width(gradient: float) -> float:
        is_drawn = gradient and math.isfinite(gradient)
        return 0.8 + 1.8 * (math.log(gradient) - low) / ((high - low) or 1.0) if is_drawn else 0.5

    return width


def _beside(way: Sequence[Point]) -> list[Point]:
    """Return a path parallel to `way`, _BESIDE to its right as it runs, with ends at the same heights."""
    sides = []
    for (x0, y0), (x1, y1) in pairwise(way):
        length = math.hypot(x1 - x0, y1 - y0)
        sides.append(((y0 - y1) / length, (x1 - x0) / length))

    def end(point: Point, side: Point) -> Point:
        return point[0] + _BESIDE / max(side[0], 0.4), point[1]

    corners = []
    for (x, y), (ax, ay), (bx, by) in zip(way[1:-1], sides, sides[1:], strict=False):
        # the corner of two parallels at one distance
        far = _BESIDE / max(1 + ax * bx + ay * by, 0.2)
        corners.append((x + (ax + bx) * far, y + (ay + by) * far))
    return [end(way[0], sides[0]), *corners, end(way[-1], sides[-1])]


def _path(way: Sequence[Point]) -> str:
    """Return the points of a path as the `d` attribute of an SVG path, with round corners."""
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
    """Yield the SVG lines of the legend, which explains shapes and colours."""
    x = MARGIN
    for kind, rounded, text in (("module", 3, "module"), ("parameter", 8, "parameter"), ("value", 0, "data")):
        yield f'<g class="{kind}">{_rect(x + 13, y, 26, 16, rounded)}</g>'
        yield f'<text class="legend" x="{x + 33:.1f}" y="{y + 4:.1f}">{text}</text>'
        x += 33 + _SMALL * len(text) + 16
    for kind, text in (("forward", "forward: a value, its shape"), ("backward", "backward: a gradient, its norm")):
        yield f'<path class="{kind}" d="M{x:.1f} {y:.1f} L{x + 28:.1f} {y:.1f}" stroke-width="1.6"/>'
        yield f'<text class="legend" x="{x + 36:.1f}" y="{y + 4:.1f}">{text}</text>'
        x += 36 + _SMALL * len(text) + 16
