"""Where each node of a graph stands in a picture: time steps side by side, and in each of them forward is upward.

A parameter stands beside each module that applies it, as often as it is applied: arrows from one place to every
step would hide the rest. What else a module takes stands below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from chainrule.autodiff.graph import Edge, Graph, GraphNode

LETTER = 7.6
"""The width of a letter, wide enough for most."""
BOX_HEIGHT, PILL_HEIGHT, PILL_GAP = 46.0, 32.0, 6.0
BETWEEN = 26.0  # boxes side by side
TO_PILL = 24.0  # from a parameter to its module
_SWEEPS = 20
_STRONG, _WEAK = 4.0, 0.001


@dataclass(frozen=True)
class Pill:
    """A parameter where it is applied: its place relative to the centre of the module's box."""

    edge: Edge
    dx: float
    dy: float
    width: float


@dataclass(frozen=True)
class Cell:
    """A module or data with what stands beside it."""

    place: int
    column: int
    rank: int
    width: float
    """Of the box."""
    pills: tuple[Pill, ...]

    @property
    def left(self) -> float:
        """How far it reaches to the left of the box's centre."""
        return max([self.width / 2, *(pill.width / 2 - pill.dx for pill in self.pills)])

    @property
    def right(self) -> float:
        return self.width / 2

    @property
    def height(self) -> float:
        """As high as the parameters beside it."""
        return max(BOX_HEIGHT, len(self.pills) * (PILL_HEIGHT + PILL_GAP) - PILL_GAP)


@dataclass(frozen=True)
class Layout:
    """Cells by the place of their node, the x of each box within its column, and the columns' widths."""

    cells: dict[int, Cell]
    x: dict[int, float]
    widths: list[float]

    @property
    def ranks(self) -> int:
        return 1 + max(cell.rank for cell in self.cells.values())


def lay_out(graph: Graph) -> Layout:
    """A place for every module and every piece of data."""
    shown = [place for place, node in enumerate(graph.nodes) if node.kind != "parameter"]
    steps = sorted({graph.nodes[place].step for place in shown})
    columns = {place: steps.index(graph.nodes[place].step) for place in shown}
    ranks = _ranks(graph, shown, columns)
    cells = {place: _cell(graph, place, columns[place], ranks[place]) for place in shown}
    x: dict[int, float] = {}
    widths = []
    for column in range(len(steps)):
        mine = [cell for cell in cells.values() if cell.column == column]
        placed = _place(graph, cells, mine)
        left = min(placed[cell.place] - cell.left for cell in mine)
        x |= {place: at - left for place, at in placed.items()}
        widths.append(max(x[cell.place] + cell.right for cell in mine))
    return Layout(cells, x, widths)


def box_lines(node: GraphNode) -> tuple[str, str]:
    """What a box says: a module's name and equation, of data the symbol and the name."""
    return (node.name, node.equation) if node.kind == "module" else (node.symbol, node.name)


def shape_text(node: GraphNode) -> str:
    """3×4, and a number as itself."""
    if not node.shape:
        return f"{node.value:.4g}"
    return "×".join(map(str, node.shape))


def _cell(graph: Graph, place: int, column: int, rank: int) -> Cell:
    first, second = box_lines(graph.nodes[place])
    width = LETTER * max(len(first) * 1.1, len(second), 8) + 20
    edges = [edge for edge in graph.inputs[place] if graph.nodes[edge.giver].kind == "parameter"]
    pills = []
    for i, edge in enumerate(edges):
        parameter = graph.nodes[edge.giver]
        wide = LETTER * max(len(parameter.symbol) + len(shape_text(parameter)) + 2, 7) + 16
        dy = (i - (len(edges) - 1) / 2) * (PILL_HEIGHT + PILL_GAP)
        pills.append(Pill(edge, -(width / 2 + TO_PILL + wide / 2), dy, wide))
    return Cell(place, column, rank, width, tuple(pills))


def _ranks(graph: Graph, shown: Sequence[int], columns: dict[int, int]) -> dict[int, int]:
    """How far up each node is: above what it is made of, and close below what is made of it.

    A state that comes from the step before does not count, so that every step begins at the same height.
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
    # what comes from the step before arrives from below, so there is room below whatever takes something
    lowest = min((ranks[edge.taker] for edge in graph.edges if edge.giver in ranks), default=1)
    return {place: rank + (lowest == 0) for place, rank in ranks.items()}


def _place(graph: Graph, cells: dict[int, Cell], mine: Sequence[Cell]) -> dict[int, float]:
    """The x of each box of a column: near the middle of its neighbours, and clear of the others."""
    rows: dict[int, list[Cell]] = defaultdict(list)
    for cell in mine:
        rows[cell.rank].append(cell)
    x = {cell.place: 100.0 * i for row in rows.values() for i, cell in enumerate(row)}

    def wanted(cell: Cell) -> float:
        pulls = [
            _pull(graph, cells, x, cell, edge) for edge in (*graph.inputs[cell.place], *graph.uses[cell.place])
        ]
        total = sum(weight for _, weight in pulls)
        return sum(at * weight for at, weight in pulls) / total if total else x[cell.place]

    for sweep in range(_SWEEPS):
        for rank in sorted(rows, reverse=bool(sweep % 2)):
            row = rows[rank] = sorted(rows[rank], key=lambda cell: (_is_ids(graph.nodes[cell.place]), wanted(cell)))
            weights = [_WEAK if _is_ids(graph.nodes[cell.place]) else 1.0 for cell in row]
            placed = _apart(row, [wanted(cell) for cell in row], weights)
            x |= zip((cell.place for cell in row), placed, strict=True)
    return _straightened(graph, rows, x)


def _is_ids(node: GraphNode) -> bool:
    """Whether it is ids, which stand at the right; other data is a state, which comes from the left."""
    return node.kind == "value" and not node.dtype.startswith("float")


def _straightened(graph: Graph, rows: dict[int, list[Cell]], x: dict[int, float]) -> dict[int, float]:
    """With what stands alone in its rank right above what it is made of."""
    for rank in sorted(rows):
        modules = [cell for cell in rows[rank] if graph.nodes[cell.place].kind == "module"]
        if len(modules) == 1:
            below = [edge.giver for edge in graph.inputs[modules[0].place]]
            below = [place for place in below if place in x and graph.nodes[place].kind == "module"]
            if len(below) == 1:
                move = x[below[0]] - x[modules[0].place]
                x |= {cell.place: x[cell.place] + move for cell in rows[rank]}
    return x


def _pull(graph: Graph, cells: dict[int, Cell], x: dict[int, float], cell: Cell, edge: Edge) -> tuple[float, float]:
    """Where an edge would have a cell, and how strongly."""
    other = edge.giver if edge.taker == cell.place else edge.taker
    if other not in cells:
        return 0.0, 0.0
    giver = graph.nodes[edge.giver]
    is_state = giver.kind == "value" and not _is_ids(giver)
    if other == edge.giver and (is_state or cells[other].column < cell.column):
        # what comes from the step before comes from the left
        return min(x.values()), 1.0
    if other not in x:
        return 0.0, 0.0
    if giver.kind == "value":
        return x[other], 1.0 if other == edge.taker else _WEAK
    # a chain goes straight up; what is made of several things stands between them
    made_of = [one for one in graph.inputs[edge.taker] if graph.nodes[one.giver].kind == "module"]
    return x[other], _STRONG if len(made_of) == 1 else 1.0


def _apart(row: Sequence[Cell], wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The places nearest to those wanted, by weighted squares, where no two cells overlap.

    With the room between neighbours taken off, that is a regression on numbers that do not fall: neighbours in the
    wrong order become one block at their mean.
    """
    room = [0.0]
    for left, right in pairwise(row):
        room.append(room[-1] + left.right + BETWEEN + right.left)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, cells
    for target, taken, weight in zip(wanted, room, weights, strict=True):
        mean, cells = target - taken, 1
        while blocks and blocks[-1][0] > mean:
            before, heavy, many = blocks.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight, cells = heavy + weight, many + cells
        blocks.append((mean, weight, cells))
    means = [mean for mean, _, cells in blocks for _ in range(cells)]
    return [mean + taken for mean, taken in zip(means, room, strict=True)]
