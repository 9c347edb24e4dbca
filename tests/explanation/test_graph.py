"""The graph of a computation: what was made of what, and what flowed back."""

from __future__ import annotations

import numpy as np
import pytest

from chainrule.autodiff import (
    Add,
    Embedding,
    Linear,
    Module,
    Multiply,
    Node,
    Parameter,
    Slice,
    SoftmaxCrossEntropy,
    Stack,
    Sum,
    Tanh,
    Tape,
    Value,
)
from chainrule.autodiff.checks import module_cases
from chainrule.errors import AutodiffError
from chainrule.explanation.pictures.graph import Edge, Graph, differentiate, subscript


def one_hidden_layer() -> Graph:
    """L = -ln softmax(U tanh(W x + b))[y], with zeros for W and U: every p is 1/3."""
    W, b, U = Parameter("W", np.zeros((2, 2))), Parameter("b", np.zeros(2)), Parameter("U", np.zeros((3, 2)))
    with Tape() as tape:
        h = Tanh().apply_fwd(Linear().apply_fwd(Value([3.0, 4.0], "input"), W, b))
        SoftmaxCrossEntropy().apply_fwd(Linear().apply_fwd(h, U), Value(1, "target"))
        return differentiate(tape, {h: "h"})


def test_the_graph_of_a_small_network() -> None:
    graph = one_hidden_layer()
    assert [(node.kind, node.name, node.symbol, node.equation, node.shape) for node in graph.nodes] == [
        ("value", "input", "x₁", "", (2,)),
        ("parameter", "W", "W", "", (2, 2)),
        ("parameter", "b", "b", "", (2,)),
        ("module", "Linear", "a₁", "a₁ = W x₁ + b", (2,)),
        ("module", "Tanh", "h", "h = tanh(a₁)", (2,)),
        ("parameter", "U", "U", "", (3, 2)),
        ("module", "Linear", "a₂", "a₂ = U h", (3,)),
        ("value", "target", "x₂", "", ()),
        ("module", "SoftmaxCrossEntropy", "L", "L = -ln softmax(a₂)[x₂]", ()),
    ]
    ways = [(0, 3), (1, 3), (2, 3), (3, 4), (4, 6), (5, 6), (6, 8), (7, 8)]
    assert [(edge.giver, edge.taker) for edge in graph.edges] == ways
    assert [edge.giver for edge in graph.inputs[3]] == [0, 1, 2]
    assert [edge.taker for edge in graph.uses[4]] == [6]
    assert graph.nodes[8].value == pytest.approx(np.log(3))
    assert {node.step for node in graph.nodes} == {0}


def test_gradients_are_those_that_flowed() -> None:
    graph = one_hidden_layer()
    gradients = {node.symbol: node.gradient for node in graph.nodes}
    # p - y = (1/3, -2/3, 1/3), whose norm is sqrt(6)/3; U is 0, so nothing reaches what is below it
    assert gradients == {
        "L": 1.0,
        "a₂": pytest.approx(np.sqrt(6) / 3),
        "x₂": None,
        "U": 0.0,  # (p - y) hᵀ, and h = tanh(0)
        "h": 0.0,
        "a₁": 0.0,
        "W": 0.0,
        "b": 0.0,
        "x₁": None,
    }
    assert graph.edges[0].gradient is None  # data has none


def test_what_is_used_twice_has_two_flows_that_add_up() -> None:
    w = Parameter("w", np.array([2.0]))
    with Tape() as tape:
        # L = 3 w + w²: the ways bring 3, w and w
        first = Multiply().apply_fwd(w, np.array([3.0]))
        Sum().apply_fwd(Add().apply_fwd(first, Multiply().apply_fwd(w, w)))
        graph = differentiate(tape)
    (place,) = (i for i, node in enumerate(graph.nodes) if node.kind == "parameter")
    assert [edge.gradient for edge in graph.uses[place]] == [3.0, 2.0, 2.0]
    assert graph.nodes[place].gradient == 7.0
    assert w.out_gradient is not None and w.dense_gradient().tolist() == [7.0]


def test_sparse_and_partial_gradients_have_their_norm() -> None:
    E = Parameter("E", np.ones((4, 1)))
    with Tape() as tape:
        e = Embedding().apply_fwd(E, np.array([2, 2, 0]))
        Sum().apply_fwd(Slice(np.s_[:2]).apply_fwd(e))
        graph = differentiate(tape)
    # only two of the three rows count, and both are row 2 of E, whose gradient is 1 + 1
    assert {node.symbol: node.gradient for node in graph.nodes if node.gradient is not None} == {
        "E": 2.0,
        "a₁": pytest.approx(np.sqrt(2)),
        "a₂": pytest.approx(np.sqrt(2)),
        "L": 1.0,
    }


def recurrent(steps: int, *, at_once: bool) -> Graph:
    """h_t = tanh(W x_t + U h_{t-1}), with all W x_t at once or one by one."""
    rng = np.random.default_rng(0)
    W, U = Parameter("W", rng.normal(size=(2, 3))), Parameter("U", rng.normal(size=(2, 2)))
    x = rng.normal(size=(steps, 3))
    with Tape() as tape:
        h: Node = Value(np.zeros(2), "zeros")
        Wx = Linear().apply_fwd(x, W) if at_once else None
        for t in range(steps):
            here: Module = Slice(t).apply_fwd(Wx) if Wx is not None else Linear().apply_fwd(x[t], W)
            h = Tanh().apply_fwd(Add().apply_fwd(here, Linear().apply_fwd(h, U)))
        Sum().apply_fwd(h)
        return differentiate(tape)


@pytest.mark.parametrize("at_once", [False, True])
def test_time_steps_are_found(at_once: bool) -> None:
    graph = recurrent(3, at_once=at_once)
    steps = [(node.name, node.step) for node in graph.nodes if node.kind == "module"]
    first = ("Slice" if at_once else "Linear"), "Linear", "Add", "Tanh"
    expected = [(name, t) for t in range(3) for name in first]
    assert steps == [*([("Linear", 0)] if at_once else []), *expected, ("Sum", 2)]


def test_parts_of_a_parameter_make_time_steps_too() -> None:
    """A GRU whose reset gate comes before the product takes the rows of its gates apart."""
    U = Parameter("U", np.eye(4, 2))
    with Tape() as tape:
        h: Node = Value(np.ones(2), "start")
        for _ in range(3):
            r = Tanh().apply_fwd(Linear().apply_fwd(h, Slice(slice(0, 2)).apply_fwd(U)))
            h = Linear().apply_fwd(r, Slice(slice(2, 4)).apply_fwd(U))
        Sum().apply_fwd(h)
        steps = [node.step for node in differentiate(tape).nodes if node.kind == "module"]
    assert steps == [0] * 5 + [1] * 5 + [2] * 6


def test_a_table_that_is_read_side_by_side_is_no_recurrence() -> None:
    E = Parameter("E", np.ones((4, 2)))
    with Tape() as tape:
        Sum().apply_fwd(Add().apply_fwd(*(Embedding().apply_fwd(E, np.array([i])) for i in (0, 3))))
        graph = differentiate(tape)
    assert not any(node.step or node.is_unrolled for node in graph.nodes)


def test_what_is_not_on_the_way_to_the_loss_has_no_gradient() -> None:
    w = Parameter("w", np.ones(2))
    with Tape() as tape:
        aside = Tanh().apply_fwd(w)
        Sum().apply_fwd(w)
        graph = differentiate(tape, {aside: "aside"})
    assert {node.symbol: node.gradient for node in graph.nodes} == {"w": np.sqrt(2), "aside": None, "L": 1.0}
    assert graph.edges[0] == Edge(0, 1, None)


def test_an_empty_tape_has_no_graph() -> None:
    with Tape() as tape, pytest.raises(AutodiffError, match="empty tape"):
        differentiate(tape)


def test_every_module_has_an_equation() -> None:
    written = {}
    for case in module_cases():
        with Tape():
            module = case.build(*case.tensors.values())
        written[case.title] = module.equation(*case.tensors)
        assert not written[case.title].startswith(f"{module.name}("), case.title
    assert written["Linear"] == "W x + b"
    assert written["Linear without bias"] == "W x"
    assert written["Concat"] == "[x1; x2; x3]"
    assert written["Slice"] == "x[..., 1:3]"
    assert written["Slice of one step"] == "x[:, 1]"
    assert written["Scale"] == "1 - x"


def test_long_lists_are_cut_and_other_modules_are_functions() -> None:
    class Cube(Module):
        pass

    assert Cube().equation("x") == "Cube(x)"
    assert Stack(0).equation(*(f"h{i}" for i in range(9))) == "stack(h0; h1; …; h8)"
    assert subscript(120) == "₁₂₀"
