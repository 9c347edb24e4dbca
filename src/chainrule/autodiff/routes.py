"""The ways of arrows in a picture: straight up and sideways, never through a box or a figure.

Between two ranks lies a strip for what goes sideways, at both sides of a column a lane for what goes up or down
past other boxes. All arrows from one node share their way as far as they can; each node has a track of its own in a
strip or a lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, TypeAlias

from chainrule.autodiff.graph import Edge, Graph
from chainrule.autodiff.layout import Layout

TRACK = 14.0  # from one way to the next beside it
FIGURES = 25.0  # above a box, for its shape and its gradient
MARGIN = 16.0
_PORT = 24.0  # from one arrow into a box to the next
_NEAR = 12.0  # ways closer than this would touch

Point: TypeAlias = tuple[float, float]
_Lane: TypeAlias = tuple[Literal["left", "right"], int]


@dataclass(frozen=True)
class Picture:
    """Everything in its place, y downward: the centres of boxes by node, and the way of each edge."""

    width: float
    height: float
    centres: dict[int, Point]
    ways: list[tuple[Edge, list[Point]]]
    columns: list[tuple[float, float]]
    """From where to where each time step goes."""


def route(graph: Graph, layout: Layout) -> Picture:
    """A way for every arrow between boxes."""
    # what one module takes twice is one arrow
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
    """Where everything is from left to right."""

    def __init__(self, layout: Layout, edges: Sequence[Edge]) -> None:
        self._cells = layout.cells
        lanes = {edge: lane for edge in edges if (lane := self._lane(edge)) is not None}
        users: dict[_Lane, list[int]] = defaultdict(list)
        for edge, lane in lanes.items():
            if edge.giver not in users[lane]:
                users[lane].append(edge.giver)
        self.columns: list[tuple[float, float]] = []
        inner: dict[_Lane, float] = {}  # where the track nearest to the boxes is
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
        """The lane beside a column that an edge goes through, if it does not just lead to the next rank."""
        giver, taker = self._cells[edge.giver], self._cells[edge.taker]
        if taker.rank == giver.rank + 1:
            return None
        # what stays in a time step goes round at its right, what comes from another comes from the left
        return ("right" if taker.column == giver.column else "left"), taker.column

    def _ports(self, edges: Sequence[Edge]) -> dict[Edge, float]:
        """Where edges enter a box: side by side, in the order of where they come from."""
        come = {edge: self.through.get(edge, self.x[edge.giver]) for edge in edges}
        takers: dict[int, list[Edge]] = defaultdict(list)
        for edge in sorted(edges, key=lambda edge: come[edge]):
            takers[edge.taker].append(edge)
        ports: dict[Edge, float] = {}
        for place, into in takers.items():
            at = {edge: self.x[place] + (i - (len(into) - 1) / 2) * _PORT for i, edge in enumerate(into)}
            # moved together so that the first that can goes straight
            room = self._cells[place].width / 2 - _NEAR - (len(into) - 1) / 2 * _PORT
            shifts = [come[edge] - at[edge] for edge in sorted(into, key=lambda edge: -edge.giver)]
            shift = next((shift for shift in shifts if abs(shift) <= room), 0.0)
            ports |= {edge: port + shift for edge, port in at.items()}
        return ports


@dataclass
class _Net:
    """What one node has in one strip: where it comes in from below, and where it leaves upward."""

    below: list[float] = field(default_factory=list)
    above: list[float] = field(default_factory=list)

    def touches(self, other: _Net) -> bool:
        """Whether both would be drawn over each other on one track."""
        mine, theirs = self.below + self.above, other.below + other.above
        return min(mine) < max(theirs) + _NEAR and min(theirs) < max(mine) + _NEAR

    def must_be_below(self, other: _Net) -> bool:
        """Whether this comes up where the other leaves."""
        return any(abs(low - high) < _NEAR for low in self.below for high in other.above)


def _strip_tracks(layout: Layout, edges: Sequence[Edge], across: _Across) -> list[dict[int, int]]:
    """For each strip the track, counted upward, of each node that has something in it."""
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
    """The lowest track for each where it touches no other, and is above those that it must be above."""
    below = {
        giver: {other for other in nets if other != giver and nets[other].must_be_below(nets[giver])}
        for giver in nets
    }
    tracks: dict[int, int] = {}
    waiting = sorted(nets, key=lambda giver: min(nets[giver].below + nets[giver].above))
    while waiting:
        # where two should both be below the other, they cross somewhere, whatever is done
        giver = next((giver for giver in waiting if below[giver].isdisjoint(waiting)), waiting[0])
        waiting.remove(giver)
        floor = max((tracks[other] + 1 for other in below[giver] if other in tracks), default=0)
        taken = {track for other, track in tracks.items() if nets[other].touches(nets[giver])}
        tracks[giver] = next(track for track in count(floor) if track not in taken)
    return tracks


def _heights(layout: Layout, tracks: Sequence[dict[int, int]]) -> tuple[list[float], list[float], float]:
    """The y of the boxes' middles in each rank, that of the lowest track above it, and of all."""
    up, middles, strips = MARGIN, [], []
    for rank, taken in enumerate(tracks):
        tall = max(cell.height for cell in layout.cells.values() if cell.rank == rank)
        middles.append(up + tall / 2)
        strips.append(up + tall + FIGURES)
        up = strips[-1] + TRACK * (max(taken.values(), default=0) + 1.5)
    return [up - middle for middle in middles], [up - strip for strip in strips], up


def _corners(points: Sequence[Point]) -> list[Point]:
    """The points where a way begins, turns and ends."""
    kept: list[Point] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        kept.append(point)
    return kept
