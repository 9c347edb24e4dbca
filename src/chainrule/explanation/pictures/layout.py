"""The place of each box and each arrow in a picture: time steps are columns, side by side, and forward is upward.

A parameter is drawn beside each module that applies it, as often as it is applied: arrows from a single box to
every step would cover the rest. The other inputs of a module are drawn below it. An arrow runs straight from its
rank to the next one; to a higher rank, or to another step, it passes beside the column, where each node has a track
of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from chainrule.explanation.pictures.graph import Edge, Graph, GraphNode

LETTER = 7.6
"""The assumed width of a letter; most letters are narrower."""
PILL_HEIGHT = 32.0
MARGIN = 16.0
_BOX_HEIGHT = 60.0
_PILL_GAP = 6.0
_BETWEEN = 26.0  # the gap between neighbouring boxes
_TO_PILL = 24.0  # the gap between a parameter and its module
_STRIP = 44.0  # the height between two ranks
_TRACK = 14.0  # the distance between neighbouring tracks
_PORT = 24.0  # the distance between neighbouring arrows into a box
_SWEEPS = 20
_WEAK = 0.001

Point: TypeAlias = tuple[float, float]


@dataclass
class Box:
    """The box of a module or of data, with the parameters beside it; x and y, downward, are those of its centre."""

    place: int
    """The index of the node in the graph."""
    column: int
    """The index of the node's time step, from left to right."""
    rank: int
    """The row of the box, counted upward from 0."""
    parameters: list[tuple[Edge, float]]
    """The edges from the parameters, and the width of each parameter."""
    width: float
    x: float = 0.0
    y: float = 0.0

    @property
    def left(self) -> float:
        """The distance from the centre to the left end, parameters included."""
        widest = max((width for _, width in self.parameters), default=-_TO_PILL)
        return self.width / 2 + _TO_PILL + widest

    @property
    def height(self) -> float:
        """The height of the box, at least that of the parameters stacked beside it."""
        return max(_BOX_HEIGHT, len(self.parameters) * (PILL_HEIGHT + _PILL_GAP) - _PILL_GAP)

    def pills(self) -> list[tuple[Edge, float, float, float]]:
        """Return the edge, the x and y of the centre, and the width of each parameter."""
        found, y = [], self.y - (len(self.parameters) - 1) / 2 * (PILL_HEIGHT + _PILL_GAP)
        for i, (edge, width) in enumerate(self.parameters):
            x = self.x - (self.width / 2 + _TO_PILL + width / 2)
            found.append((edge, x, y + i * (PILL_HEIGHT + _PILL_GAP), width))
        return found


@dataclass(frozen=True)
class Picture:
    """All coordinates of a picture: boxes by the index of their node, and the points of each arrow."""

    width: float
    height: float
    boxes: dict[int, Box]
    ways: list[tuple[Edge, list[Point]]]
    columns: list[tuple[float, float]]
    """The left and right x of each time step."""


def lay_out(graph: Graph) -> Picture:
    """Return the picture of a graph: a box for each module and each piece of data, an arrow for each edge."""
    shown = [place for place, node in enumerate(graph.nodes) if node.kind != "parameter"]
    steps = sorted({graph.nodes[place].step for place in shown})
    columns = {place: steps.index(graph.nodes[place].step) for place in shown}
    ranks = _ranks(graph, shown, columns)
    boxes = {place: _box(graph, place, columns[place], ranks[place]) for place in shown}
    # an input that a module takes twice is drawn as one arrow
    edges = list(dict.fromkeys(edge for edge in graph.edges if edge.giver in boxes))
    # the column beside which an arrow passes, and True if that is at its left, for an arrow from another column
    lanes = {
        edge: (boxes[edge.taker].column, boxes[edge.taker].column != boxes[edge.giver].column)
        for edge in edges
        if boxes[edge.taker].rank != boxes[edge.giver].rank + 1
    }
    tracks: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for edge, lane in lanes.items():
        if edge.giver not in tracks[lane]:
            tracks[lane].append(edge.giver)
    at, sides = 0.0, []
    for column in range(len(steps)):
        mine = [box for box in boxes.values() if box.column == column]
        _place(graph, boxes, mine)
        left = at + 2 * MARGIN + _TRACK * len(tracks[column, True])
        move = left - min(box.x - box.left for box in mine)
        for box in mine:
            box.x += move
        right = max(box.x + box.width / 2 for box in mine)
        at = right + _TRACK * len(tracks[column, False]) + 8 * bool(tracks[column, False])
        sides.append((left, right, at))
    bottoms, height = _stack(boxes)
    through = {}
    for edge, (column, is_left) in lanes.items():
        left, right, _ = sides[column]
        out = MARGIN + _TRACK * tracks[column, is_left].index(edge.giver)
        through[edge] = left - out if is_left else right + out
    ports = _ports(boxes, edges, through)
    ways = [(edge, _way(boxes, edge, through.get(edge), ports[edge], bottoms)) for edge in edges]
    return Picture(at + 2 * MARGIN, height, boxes, ways, [(left, end) for left, _, end in sides])


def box_lines(node: GraphNode) -> tuple[str, str]:
    """Return the two lines of text in a box: name and equation of a module, symbol and name of data."""
    return (node.name, node.equation) if node.kind == "module" else (node.symbol, node.name)


def shape_text(node: GraphNode) -> str:
    """Return the shape of a node's value, such as 3×4; the value itself if it has no axes."""
    return "×".join(map(str, node.shape)) if node.shape else f"{node.value:.4g}"


def _box(graph: Graph, place: int, column: int, rank: int) -> Box:
    edges = [edge for edge in graph.inputs[place] if graph.nodes[edge.giver].kind == "parameter"]
    givers = [graph.nodes[edge.giver] for edge in edges]
    widths = [LETTER * max(len(one.symbol) + len(shape_text(one)) + 2, 7) + 16 for one in givers]
    first, second = box_lines(graph.nodes[place])
    width = LETTER * max(len(first) * 1.1, len(second), 8) + 20
    return Box(place, column, rank, list(zip(edges, widths, strict=True)), width)


def _ranks(graph: Graph, shown: Sequence[int], columns: dict[int, int]) -> dict[int, int]:
    """Return the rank of each node, counted upward: above its inputs, and as close as possible below its uses.

    Edges from unrolled nodes of another time step, such as the previous state, are ignored, so that every step
    begins at the same height.
    """

    def counts(edge: Edge) -> bool:
        giver = graph.nodes[edge.giver]
        same = columns.get(edge.giver) == columns[edge.taker]
        return giver.kind != "parameter" and (same or not giver.is_unrolled)

    ranks: dict[int, int] = {}
    for place in shown:
        ranks[place] = max((ranks[edge.giver] + 1 for edge in graph.inputs[place] if counts(edge)), default=0)
    for place in reversed(shown):
        above = [ranks[edge.taker] - 1 for edge in graph.uses[place] if counts(edge)]
        ranks[place] = min(above) if above else ranks[place]
    # arrows, also those from the previous step, enter a box from below: keep rank 0 free of boxes with inputs
    lowest = min((ranks[edge.taker] for edge in graph.edges if edge.giver in ranks), default=1)
    return {place: rank + (lowest == 0) for place, rank in ranks.items()}


def _place(graph: Graph, boxes: dict[int, Box], mine: Sequence[Box]) -> None:
    """Place the boxes of a column: near the mean of their neighbours in the graph, without overlaps.

    Each of several sweeps, up or down the ranks, sorts the boxes of each rank by the wanted x and spreads them out.
    """
    rows: dict[int, list[Box]] = defaultdict(list)
    for box in mine:
        box.x = 100.0 * len(rows[box.rank])
        rows[box.rank].append(box)

    def wanted(box: Box) -> float:
        pulls = [
            _pull(graph, boxes, mine, box, edge) for edge in (*graph.inputs[box.place], *graph.uses[box.place])
        ]
        total = sum(weight for _, weight in pulls)
        return sum(x * weight for x, weight in pulls) / total if total else box.x

    for sweep in range(_SWEEPS):
        for rank in sorted(rows, reverse=bool(sweep % 2)):
            row = sorted(rows[rank], key=lambda box: (_is_ids(graph.nodes[box.place]), wanted(box)))
            weights = [_WEAK if _is_ids(graph.nodes[box.place]) else 1.0 for box in row]
            for box, x in zip(row, _apart(row, [wanted(box) for box in row], weights), strict=True):
                box.x = x


def _is_ids(node: GraphNode) -> bool:
    """Return True for token ids, which are drawn at the right; other data is a state, drawn at the left."""
    return node.kind == "value" and not node.dtype.startswith("float")


def _pull(graph: Graph, boxes: dict[int, Box], mine: Sequence[Box], box: Box, edge: Edge) -> tuple[float, float]:
    """Return the x that an edge pulls a box towards, and the weight of that pull; weight 0 for no pull."""
    other = boxes.get(edge.giver if edge.taker == box.place else edge.taker)
    if other is None:
        return 0.0, 0.0
    giver = graph.nodes[edge.giver]
    is_state = giver.kind == "value" and not _is_ids(giver)
    if other.place == edge.giver and (is_state or other.column < box.column):
        # arrows from the previous step come from the left
        return min(one.x for one in mine), 1.0
    if other.column != box.column:
        return 0.0, 0.0
    if giver.kind == "value":
        return other.x, 1.0 if other.place == edge.taker else _WEAK
    # a chain of modules goes straight up; a module with several inputs is centred above them
    made_of = [one for one in graph.inputs[edge.taker] if graph.nodes[one.giver].kind == "module"]
    return other.x, 4.0 if len(made_of) == 1 else 1.0


def _apart(row: Sequence[Box], wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the positions closest to the wanted ones, by weighted least squares, at which no two boxes overlap.

    With the least distances between neighbours subtracted, this is isotonic regression, solved by pooling adjacent
    violators: neighbours in the wrong order become one block at their weighted mean.
    """
    room = [0.0]
    for left, right in pairwise(row):
        room.append(room[-1] + left.width / 2 + _BETWEEN + right.left)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, boxes
    for target, taken, weight in zip(wanted, room, weights, strict=True):
        mean, boxes = target - taken, 1
        while blocks and blocks[-1][0] > mean:
            before, heavy, many = blocks.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight, boxes = heavy + weight, many + boxes
        blocks.append((mean, weight, boxes))
    means = [mean for mean, _, boxes in blocks for _ in range(boxes)]
    return [mean + taken for mean, taken in zip(means, room, strict=True)]


# -- arrows -------------------------------------------------------------------------------------------------


def _stack(boxes: dict[int, Box]) -> tuple[list[float], float]:
    """Place the boxes of all ranks above each other; the y of the bottom of each rank, and the picture's height."""
    tall = [0.0] * (1 + max(box.rank for box in boxes.values()))
    for box in boxes.values():
        tall[box.rank] = max(tall[box.rank], box.height)
    height = sum(tall) + _STRIP * len(tall) + 2 * MARGIN
    bottoms = [height - MARGIN - sum(tall[:rank]) - _STRIP * rank for rank in range(len(tall) + 1)]
    for box in boxes.values():
        box.y = bottoms[box.rank] - tall[box.rank] / 2
    return bottoms, height


def _ports(boxes: dict[int, Box], edges: Sequence[Edge], through: dict[Edge, float]) -> dict[Edge, float]:
    """Return the x at which each edge enters its box: side by side, in the order of the x that they come from."""
    come = {edge: through.get(edge, boxes[edge.giver].x) for edge in edges}
    takers: dict[int, list[Edge]] = defaultdict(list)
    for edge in sorted(edges, key=lambda edge: come[edge]):
        takers[edge.taker].append(edge)
    ports: dict[Edge, float] = {}
    for place, into in takers.items():
        at = {edge: boxes[place].x + (i - (len(into) - 1) / 2) * _PORT for i, edge in enumerate(into)}
        # shift all ports of the box together, so that one edge goes straight up: the latest input that can
        room = boxes[place].width / 2 - _PORT * len(into) / 2
        shifts = [come[edge] - at[edge] for edge in sorted(into, key=lambda edge: -edge.giver)]
        shift = next((shift for shift in shifts if abs(shift) <= room), 0.0)
        ports |= {edge: port + shift for edge, port in at.items()}
    return ports


def _way(
    boxes: dict[int, Box], edge: Edge, through: float | None, port: float, bottoms: Sequence[float]
) -> list[Point]:
    """Return the points of an arrow: it changes its x only between two ranks."""
    giver, taker = boxes[edge.giver], boxes[edge.taker]
    above, below = bottoms[giver.rank + 1], bottoms[taker.rank]
    points = [(giver.x, giver.y - giver.height / 2), (giver.x, above + _STRIP)]
    if through is not None:
        points += [(through, above), (through, below + _STRIP)]
    points += [(port, below), (port, taker.y + taker.height / 2)]
    return [point for i, point in enumerate(points) if point not in points[:i]]
