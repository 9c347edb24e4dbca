"""The paths of arrows in a picture: vertical and horizontal lines that avoid the boxes and the figures above them.

Between two ranks is a strip, in which arrows run sideways; on both sides of a column is a lane, in which they run
up or down past other boxes. Arrows from one node share their path as far as they can; in a strip or a lane, each
node has a track of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, TypeAlias

from chainrule.explanation.pictures.graph import Edge, Graph
from chainrule.explanation.pictures.layout import Layout

TRACK = 14.0  # the distance between neighbouring tracks
FIGURES = 25.0  # the height above a box that is kept free for its shape and its gradient
MARGIN = 16.0
_PORT = 24.0  # the distance between neighbouring arrows into a box
_NEAR = 12.0  # paths closer than this would touch

Point: TypeAlias = tuple[float, float]
_Lane: TypeAlias = tuple[Literal["left", "right"], int]


@dataclass(frozen=True)
class Picture:
    """All coordinates of a picture, with y downward: box centres by node index, and the path of each edge."""

    width: float
    height: float
    centres: dict[int, Point]
    ways: list[tuple[Edge, list[Point]]]
    columns: list[tuple[float, float]]
    """The left and right x of each time step."""


def route(graph: Graph, layout: Layout) -> Picture:
    """The picture of a graph: its layout, and a path for every arrow between boxes."""
    # an input that a module takes twice is drawn as one arrow
    edges = list(dict.fromkeys(edge for edge in graph.edges if edge.giver in layout.cells))
    across = _Across(layout, edges)
    tracks = _strip_tracks(layout, edges, across)
    middles, strips, height = _heights(layout, tracks)
    centres = {place: (across.x[place], middles[cell.rank]) for place, cell in layout.cells.items()}

    def way(edge: Edge) -> list[Point]:
        low, high = layout.cells[edge.giver].rank, layout.cells[edge.taker].rank - 1
        y_low, y_high = (strips[rank] - TRACK * tracks[rank][edge.giver] for rank in (low, high))
        x0, x1 = across.x[edge.giver], across.ports[edge]
        aside = across.through.get(edge, x1)
        top = centres[edge.giver][1] - layout.cells[edge.giver].height / 2
        bottom = centres[edge.taker][1] + layout.cells[edge.taker].height / 2
        return _corners([(x0, top), (x0, y_low), (aside, y_low), (aside, y_high), (x1, y_high), (x1, bottom)])

    return Picture(across.width, height, centres, [(edge, way(edge)) for edge in edges], across.columns)


class _Across:
    """All x coordinates: of columns, boxes, edges in lanes (`through`), and where edges enter boxes (`ports`)."""

    def __init__(self, layout: Layout, edges: Sequence[Edge]) -> None:
        self._cells = layout.cells
        lanes = {edge: lane for edge in edges if (lane := self._lane(edge)) is not None}
        users: dict[_Lane, list[int]] = defaultdict(list)
        for edge, lane in lanes.items():
            if edge.giver not in users[lane]:
                users[lane].append(edge.giver)
        self.columns: list[tuple[float, float]] = []
        inner: dict[_Lane, float] = {}  # the x of the track nearest to the boxes
        at = 0.0
        for column, width in enumerate(layout.widths):
            left = at + 2 * MARGIN + TRACK * len(users["left", column])
            right = left + width
            inner["left", column], inner["right", column] = left - MARGIN, right + MARGIN
            at = right + (TRACK * len(users["right", column]) + 8 if users["right", column] else 0)
            self.columns.append((left, at))
        self.width = at + 2 * MARGIN
        self.x = {place: self.columns[cell.column][0] + layout.x[place] for place, cell in self._cells.items()}
        self.through = {
            edge: inner[lane] + TRACK * users[lane].index(edge.giver) * (1 if lane[0] == "right" else -1)
            for edge, lane in lanes.items()
        }
        self.ports = self._ports(edges)

    def _lane(self, edge: Edge) -> _Lane | None:
        """The lane beside a column that an edge goes through; None if it only leads to the next rank."""
        giver, taker = self._cells[edge.giver], self._cells[edge.taker]
        if taker.rank == giver.rank + 1:
            return None
        # edges within a time step pass on its right, edges from another step arrive on its left
        return ("right" if taker.column == giver.column else "left"), taker.column

    def _ports(self, edges: Sequence[Edge]) -> dict[Edge, float]:
        """The x at which each edge enters its box: side by side, in the order of the x that they come from."""
        come = {edge: self.through.get(edge, self.x[edge.giver]) for edge in edges}
        takers: dict[int, list[Edge]] = defaultdict(list)
        for edge in sorted(edges, key=lambda edge: come[edge]):
            takers[edge.taker].append(edge)
        ports: dict[Edge, float] = {}
        for place, into in takers.items():
            at = {edge: self.x[place] + (i - (len(into) - 1) / 2) * _PORT for i, edge in enumerate(into)}
            # shift all ports of the box together, so that one edge goes straight up: the latest input that can
            room = self._cells[place].width / 2 - _NEAR - (len(into) - 1) / 2 * _PORT
            shifts = [come[edge] - at[edge] for edge in sorted(into, key=lambda edge: -edge.giver)]
            shift = next((shift for shift in shifts if abs(shift) <= room), 0.0)
            ports |= {edge: port + shift for edge, port in at.items()}
        return ports


@dataclass
class _Net:
    """The arrows of one node in one strip: the x at which they enter from below, and at which they leave upward."""

    below: list[float] = field(default_factory=list)
    above: list[float] = field(default_factory=list)

    def touches(self, other: _Net) -> bool:
        """Whether the two nets would overlap on one track."""
        mine, theirs = self.below + self.above, other.below + other.above
        return min(mine) < max(theirs) + _NEAR and min(theirs) < max(mine) + _NEAR

    def must_be_below(self, other: _Net) -> bool:
        """Whether this net enters at an x where the other leaves: on a higher track it would run over the other."""
        return any(abs(low - high) < _NEAR for low in self.below for high in other.above)


def _strip_tracks(layout: Layout, edges: Sequence[Edge], across: _Across) -> list[dict[int, int]]:
    """For each strip, the track of every node that has arrows in it, counted upward from 0."""
    strips: list[dict[int, _Net]] = [defaultdict(_Net) for _ in range(layout.ranks)]
    for edge in edges:
        first = strips[layout.cells[edge.giver].rank][edge.giver]
        last = strips[layout.cells[edge.taker].rank - 1][edge.giver]
        first.below.append(across.x[edge.giver])
        last.above.append(across.ports[edge])
        if edge in across.through:
            first.above.append(across.through[edge])
            last.below.append(across.through[edge])
    return [_tracks(nets) for nets in strips]


def _tracks(nets: dict[int, _Net]) -> dict[int, int]:
    """The track of each net in a strip: the lowest that touches no other and is above all that must be below it."""
    below = {
        giver: {other for other in nets if other != giver and nets[other].must_be_below(nets[giver])}
        for giver in nets
    }
    tracks: dict[int, int] = {}
    waiting = sorted(nets, key=lambda giver: min(nets[giver].below + nets[giver].above))
    while waiting:
        # if all that wait must be above another one, that is a cycle: some must cross, so take the first
        giver = next((giver for giver in waiting if below[giver].isdisjoint(waiting)), waiting[0])
        waiting.remove(giver)
        floor = max((tracks[other] + 1 for other in below[giver] if other in tracks), default=0)
        taken = {track for other, track in tracks.items() if nets[other].touches(nets[giver])}
        tracks[giver] = next(track for track in count(floor) if track not in taken)
    return tracks


def _heights(layout: Layout, tracks: Sequence[dict[int, int]]) -> tuple[list[float], list[float], float]:
    """For each rank the y of its boxes' centres and of the lowest track above them; and the picture's height."""
    up, middles, strips = MARGIN, [], []
    for rank, taken in enumerate(tracks):
        tall = max(cell.height for cell in layout.cells.values() if cell.rank == rank)
        middles.append(up + tall / 2)
        strips.append(up + tall + FIGURES)
        up = strips[-1] + TRACK * (max(taken.values(), default=0) + 1.5)
    return [up - middle for middle in middles], [up - strip for strip in strips], up


def _corners(points: Sequence[Point]) -> list[Point]:
    """The points at which a path begins, turns or ends."""
    kept: list[Point] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        kept.append(point)
    return kept
