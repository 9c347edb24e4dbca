"""The picture of a graph: everything is in it once, and nothing lies over anything else."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from chainrule.autodiff import Linear, Multiply, Parameter, Sum, Tape, Value
from chainrule.autodiff.networks.cells import Cell, CellState, elman, gru, lstm
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.explanation.pictures.drawing import to_svg
from chainrule.explanation.pictures.graph import Graph, differentiate
from chainrule.explanation.pictures.layout import Picture, lay_out
from chainrule.explanation.pictures.prediction import Prediction
from chainrule.networks.transformer.config import TransformerConfig

SVG = "{http://www.w3.org/2000/svg}"


def unrolled(cell: Cell, gates: int, parts: int, steps: int = 3) -> Graph:
    rng = np.random.default_rng(0)
    W, U = (Parameter(name, rng.normal(size=(gates * 2, 2))) for name in "WU")
    b, d = (Parameter(name, rng.normal(size=gates * 2)) for name in "bd")
    with Tape() as tape:
        state: CellState = tuple(Value(np.zeros(2), "zeros") for _ in range(parts))
        for t in range(steps):
            Wx = Linear().apply_fwd(Value(rng.normal(size=2), f"x{t}"), W, b)
            state = cell(Wx, [U, d], state)
        Sum().apply_fwd(state[0])
        return differentiate(tape)


def transformer(**settings: Any) -> Graph:
    config = TransformerConfig(**{"width": 4, "heads": 2, "hidden": 6, "layers": 2, "window": 3, **settings})
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape) for name, shape in TapeTransformer.shapes(config, 8).items()}
    with Tape() as tape:
        found = Prediction(TapeTransformer(config, 8, 1, tensors), [1, 4, 6], 3, str)
        return differentiate(tape, found.symbols)


GRAPHS = {
    "lecture's transformer": lambda: transformer(preset="lecture"),
    "llama": lambda: transformer(preset="llama", kv_heads=1),
    "elman": lambda: unrolled(elman, 1, 1),
    "lstm": lambda: unrolled(lstm, 4, 2),
    "gru": lambda: unrolled(gru, 3, 1),
    "one step": lambda: unrolled(lstm, 4, 2, steps=1),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]()


def test_each_node_is_drawn_once_and_a_parameter_where_it_is_used(graph: Graph) -> None:
    root = ET.fromstring(to_svg(graph, "a <title> & more"))
    assert root.find(f"{SVG}title") is not None and root.findtext(f"{SVG}title") == "a <title> & more"
    drawn = {
        kind: [
            group
            for group in root.iter(f"{SVG}g")
            if group.get("class") == kind and group.find(f"{SVG}text") is not None
        ]
        for kind in ("module", "parameter", "value")
    }
    equations = [group.findall(f"{SVG}text")[1].text for group in drawn["module"]]
    assert sorted(equations) == sorted(node.equation for node in graph.of_kind("module"))
    assert len(drawn["value"]) == len(graph.of_kind("value"))
    uses = sum(len(edges) for node, edges in zip(graph.nodes, graph.uses, strict=True) if node.kind == "parameter")
    assert len(drawn["parameter"]) == uses


def test_arrows_go_both_ways(graph: Graph) -> None:
    root = ET.fromstring(to_svg(graph))
    classes = [path.get("class") for path in root.iter(f"{SVG}path")]
    # one of each is in the legend
    assert classes.count("forward") == 1 + len(graph.edges)
    assert classes.count("backward") == 1 + sum(edge.gradient is not None for edge in graph.edges)


def boxes(picture: Picture) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of every box and of every parameter beside one."""
    found = []
    for box in picture.boxes.values():
        places = [(box.x, box.y, box.width, box.height), *((x, y, width, 32) for _, x, y, width in box.pills())]
        found += [(x - width / 2, y - tall / 2, x + width / 2, y + tall / 2) for x, y, width, tall in places]
    return found


def test_nothing_overlaps(graph: Graph) -> None:
    picture = lay_out(graph)
    every = boxes(picture)
    for (l1, t1, r1, b1), (l2, t2, r2, b2) in itertools.combinations(every, 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1
    assert all(left >= 0 and right <= picture.width for left, _, right, _ in every)
    assert all(top >= 0 and bottom <= picture.height for _, top, _, bottom in every)


def points(way: list[tuple[float, float]]) -> np.ndarray:
    """Points all along a path, [N, 2]."""
    share = np.linspace(0, 1, 200)[:, None]
    return np.concatenate([(1 - share) * start + share * end for start, end in itertools.pairwise(np.array(way))])


def test_no_arrow_goes_through_a_box(graph: Graph) -> None:
    picture = lay_out(graph)
    for edge, way in picture.ways:
        x, y = points(way).T
        for left, top, right, bottom in boxes(picture):
            assert not ((x > left) & (x < right) & (y > top + 1) & (y < bottom - 1)).any(), edge


def test_arrows_of_different_values_do_not_lie_on_each_other(graph: Graph) -> None:
    """Two arrows may cross, but do not run together for long."""
    ways = [(edge.giver, points(way)) for edge, way in lay_out(graph).ways]
    for (giver, way), (other, another) in itertools.combinations(ways, 2):
        if giver != other:
            near = np.abs(way[:, None] - another).sum(axis=-1).min(axis=1) < 2
            assert np.abs(np.diff(way[near], axis=0)).sum(axis=1).clip(0, 10).sum() < 60, (giver, other)


def test_steps_stand_side_by_side_at_one_height() -> None:
    graph = unrolled(elman, 1, 1)
    picture = lay_out(graph)
    tanh = [picture.boxes[i] for i, node in enumerate(graph.nodes) if node.name == "Tanh"]
    assert [box.x for box in tanh] == sorted(box.x for box in tanh)
    assert len({box.y for box in tanh}) == 1
    assert len(picture.columns) == 3


def test_one_module_alone_is_a_picture() -> None:
    w = Parameter("w", np.ones(2))
    with Tape() as tape:
        Sum().apply_fwd(w)
        ET.fromstring(to_svg(differentiate(tape)))
    with Tape() as tape:
        Multiply().apply_fwd(w, w)
        ET.fromstring(to_svg(differentiate(tape)))
