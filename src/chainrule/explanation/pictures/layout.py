"""The position of each node of a graph in a picture: time steps are columns, side by side, and forward is upward.

A parameter is drawn beside each module that applies it, as often as it is applied: arrows from a single box to
every step would cover the rest. The other inputs of a module are drawn below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from chainrule.explanation.pictures.graph import Edge, Graph, GraphNode

LETTER = 7.6
"""The assumed width of a letter; most letters are narrower."""
BOX_HEIGHT, PILL_HEIGHT, PILL_GAP = 46.0, 32.0, 6.0
BETWEEN = 26.0  # the gap between neighbouring boxes
TO_PILL = 24.0  # the gap between a parameter and its module
_SWEEPS = 20
_STRONG, _WEAK = 4.0, 0.001


@dataclass(frozen=True)
class Pill:
    """A parameter beside a module that applies it: its centre relative to the centre of the module's box."""

    edge: Edge
    dx: float
    dy: float
    width: float


@dataclass(frozen=True)
class Cell:
    """The box of a module or of data, together with the parameters beside it."""

    place: int
    """The index of the node in the graph."""
    column: int
    """The index of the node's time step, from left to right."""
    rank: int
    """The row of the box, counted upward from 0."""
    width: float
    """The width of the box alone."""
    pills: tuple[Pill, ...]

    @property
    def left(self) -> float:
        """The distance from the box's centre to the left end of the cell, parameters included."""
        return max([self.width / 2, *(pill.width / 2 - pill.dx for pill in self.pills)])

    @property
    def right(self) -> float:
        return self.width / 2

    @property
    def height(self) -> float:
        """The height of the box, at least that of the parameters stacked beside it."""
        return max(BOX_HEIGHT, len(self.pills) * (PILL_HEIGHT + PILL_GAP) - PILL_GAP)


@dataclass(frozen=True)
class Layout:
    """Cells by the index of their node, the x of each box's centre within its column, and the columns' widths."""

    cells: dict[int, Cell]
    x: dict[int, float]
    widths: list[float]

    @property
    def ranks(self) -> int:
        return 1 + max(cell.rank for cell in self.cells.values())


def lay_out(graph: Graph) -> Layout:
    """The layout of a graph: a cell and a position for every module and every piece of data."""
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
    """The two lines of text in a box: name and equation of a module, symbol and name of data."""
    return (node.name, node.equation) if node.kind == "module" else (node.symbol, node.name)


def shape_text(node: GraphNode) -> str:
    """The shape of a node's value, such as 3×4; the value itself if it has no axes."""
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
    """The rank of each node, counted upward: above its inputs, and as close as possible below its uses.

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


def _place(graph: Graph, cells: dict[int, Cell], mine: Sequence[Cell]) -> dict[int, float]:
    """The x of each box of a column: near the mean of its neighbours in the graph, without overlaps.

    Sweeps up and down the ranks, each of which sorts a rank by the wanted x and spreads it out.
    """
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
    """Whether a node is token ids, which are drawn at the right; other data is a state, drawn at the left."""
    return node.kind == "value" and not node.dtype.startswith("float")


def _straightened(graph: Graph, rows: dict[int, list[Cell]], x: dict[int, float]) -> dict[int, float]:
    """The positions x with each rank moved sideways so that its module is right above its input.

    Applies to ranks with a single module that has a single module as input. `x` is changed in place.
    """
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
    """The x that an edge pulls a cell towards, and the weight of that pull; weight 0 for no pull."""
    other = edge.giver if edge.taker == cell.place else edge.taker
    if other not in cells:
        return 0.0, 0.0
    giver = graph.nodes[edge.giver]
    is_state = giver.kind == "value" and not _is_ids(giver)
    if other == edge.giver and (is_state or cells[other].column < cell.column):
        # arrows from the previous step come from the left
        return min(x.values()), 1.0
    if other not in x:
        return 0.0, 0.0
    if giver.kind == "value":
        return x[other], 1.0 if other == edge.taker else _WEAK
    # a chain of modules goes straight up; a module with several inputs is centred above them
    made_of = [one for one in graph.inputs[edge.taker] if graph.nodes[one.giver].kind == "module"]
    return x[other], _STRONG if len(made_of) == 1 else 1.0


def _apart(row: Sequence[Cell], wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The positions closest to the wanted ones, by weighted least squares, at which no two cells overlap.

    With the least distances between neighbours subtracted, this is isotonic regression, solved by pooling adjacent
    violators: neighbours in the wrong order become one block at their weighted mean.
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
