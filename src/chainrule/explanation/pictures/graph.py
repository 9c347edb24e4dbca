"""The graph of a recorded computation as plain data: nodes, edges, and the norm of each gradient that flowed back.

>>> import numpy as np
>>> from chainrule.autodiff import Linear, Parameter, Sum, Tanh, Tape
>>> with Tape() as tape:
...     z = Linear().apply_fwd(np.array([0.5, -0.5]), Parameter("W", np.ones((1, 2))))
...     loss = Sum().apply_fwd(Tanh().apply_fwd(z))
...     graph = differentiate(tape)
>>> for node in graph.nodes:
...     print(node.kind, node.equation or node.symbol, node.shape, node.gradient)
value x₁ (2,) None
parameter W (1, 2) 0.707...
module a₁ = W x₁ (1,) 1.0
module a₂ = tanh(a₁) (1,) 1.0
module L = Σ a₂ () 1.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from chainrule.autodiff import Module, Tape
from chainrule.autodiff.tape.nodes import Gradient, Node, Parameter, Part, SparseRows, Value

Kind: TypeAlias = Literal["module", "parameter", "value"]
_DIGITS = "0123456789"


def subscript(number: int) -> str:
    return str(number).translate(str.maketrans(_DIGITS, "₀₁₂₃₄₅₆₇₈₉"))


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans(_DIGITS, "⁰¹²³⁴⁵⁶⁷⁸⁹"))


@dataclass(frozen=True)
class GraphNode:
    """A node of the graph: a module, a parameter or data."""

    kind: Kind
    name: str
    symbol: str
    """The node's name in equations."""
    equation: str
    """The equation that a module computes, such as a₃ = W a₂ + b; empty for parameters and data."""
    shape: tuple[int, ...]
    dtype: str
    value: float | None
    """The node's value, if it is a single number."""
    gradient: float | None
    """||dL/dz||, the norm of the summed gradient; None if none flowed in."""
    step: int
    """The time step that the node belongs to, from 0; 0 for all nodes if nothing is unrolled."""
    is_unrolled: bool
    """True if the node depends on a parameter that is applied again at each time step."""


@dataclass(frozen=True)
class Edge:
    """A value that flows from one node to another, given by index, and the gradient that flows back."""

    giver: int
    taker: int
    gradient: float | None
    """The norm of the gradient that flows back along this edge alone; None if none does."""


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of the forward pass, each after its inputs, and edges between their indices."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def inputs(self) -> tuple[tuple[Edge, ...], ...]:
        """The edges into each node, in the order of its arguments."""
        return self._by(edge.taker for edge in self.edges)

    @cached_property
    def uses(self) -> tuple[tuple[Edge, ...], ...]:
        """The edges out of each node."""
        return self._by(edge.giver for edge in self.edges)

    def _by(self, ends: Iterable[int]) -> tuple[tuple[Edge, ...], ...]:
        found: list[list[Edge]] = [[] for _ in self.nodes]
        for edge, end in zip(self.edges, ends, strict=True):
            found[end].append(edge)
        return tuple(map(tuple, found))

    def of_kind(self, kind: Kind) -> list[GraphNode]:
        return [node for node in self.nodes if node.kind == kind]


def differentiate(tape: Tape, symbols: Mapping[Node, str] | None = None) -> Graph:
    """Run the backward pass of a tape, and return its graph with all gradients; the tape is empty afterwards.

    Gradients that the parameters held before are discarded. A parameter that is not in `symbols` goes by its name,
    a module or data by a letter and a number.
    """
    modules = tape.modules
    nodes = _in_order(modules)
    for node in nodes:
        if isinstance(node, Parameter):
            node.forget()
    tape.backward()
    places = {node: place for place, node in enumerate(nodes)}
    edges = [
        Edge(places[node], places[module], None if g is None or not node.needs_gradient else _norm(g))
        for module in modules
        for node, g in zip(module.in_modules, module.gave, strict=True)
    ]
    steps = _steps(modules)
    names = _symbols(nodes, symbols or {})
    return Graph(tuple(_described(node, names, *steps[node]) for node in nodes), tuple(edges))


def _in_order(modules: Sequence[Module]) -> list[Node]:
    """Return every node once, each after its inputs."""
    return list(dict.fromkeys(node for module in modules for node in (*module.in_modules, module)))


def _norm(gradient: Gradient) -> float:
    """sqrt(Σ g²), for a dense or a sparse gradient."""
    if isinstance(gradient, SparseRows):
        # rows of one id must be summed before they are squared
        gradient = gradient.merged().rows
    elif isinstance(gradient, Part):
        gradient = gradient.gradient
    return float(np.sqrt(np.sum(np.square(gradient, dtype=np.float64))))


def _symbols(nodes: Sequence[Node], given: Mapping[Node, str]) -> dict[Node, str]:
    """Return the symbol of each node, as given, or by its kind.

    A parameter's symbol is its name; data are x₁, x₂, ..., modules a₁, a₂, ..., and a last node that is a single
    number, the loss, is L.
    """
    numbers: Counter[str] = Counter()
    symbols = dict(given)
    for node in nodes:
        letter = "x" if isinstance(node, Value) else "a"
        if node in given:
            continue
        if isinstance(node, Parameter):
            symbols[node] = node.name
        elif node is nodes[-1] and node.out_tensor.size == 1:
            symbols[node] = "L"
        else:
            numbers[letter] += 1
            symbols[node] = letter + subscript(numbers[letter])
    return symbols


def _parameter(node: Node) -> Any:
    """Return a key for a parameter, or a part of one such as the rows of a gate; None for other nodes."""
    if isinstance(node, Module) and all(isinstance(one, Parameter) for one in node.in_modules):
        return (*node.in_modules, node.equation(*["" for _ in node.in_modules]))
    return node if isinstance(node, Parameter) else None


def _steps(modules: Sequence[Module]) -> dict[Node, tuple[int, bool]]:
    """Return the time step of each node, and whether it is unrolled.

    An unrolled network applies a parameter to the result of an earlier application of it: a module with n earlier
    applications on the path that leads to it is at step n. A node that depends on no repeated parameter, such as an
    embedding, belongs to the first step that uses it.
    """
    # for each module, the most applications of each parameter on any path that ends there, in one role: the type
    # of the module that applies it, and the index of the argument
    chains: dict[Node, Counter[Any]] = {}
    for module in modules:
        chain: Counter[Any] = Counter()
        for node in module.in_modules:
            chain |= chains.get(node, Counter())  # the larger of the two counts
        applied = [(_parameter(node), type(module), i) for i, node in enumerate(module.in_modules)]
        # a part of a parameter is applied by the module that takes the part
        chain.update(role for role in applied if role[0] is not None and _parameter(module) is None)
        chains[module] = chain
    repeated = {place for chain in chains.values() for place, times in chain.items() if times > 1}
    steps = {
        node: (max([1, *chain.values()]) - 1, not repeated.isdisjoint(chain)) for node, chain in chains.items()
    }
    takers: dict[Node, list[Module]] = {}
    for module in modules:
        for node in module.in_modules:
            takers.setdefault(node, []).append(module)
    for node in reversed(_in_order(modules)):
        if node in takers and not steps.get(node, (0, False))[1]:
            steps[node] = min(steps[taker][0] for taker in takers[node]), False
    return steps


def _described(node: Node, symbols: Mapping[Node, str], step: int, is_unrolled: bool) -> GraphNode:
    kind: Kind = "module" if isinstance(node, Module) else "parameter" if isinstance(node, Parameter) else "value"
    names = [symbols[one] for one in node.in_modules]
    return GraphNode(
        kind=kind,
        name=node.name,
        symbol=symbols[node],
        equation=f"{symbols[node]} = {node.equation(*names)}" if isinstance(node, Module) else "",
        shape=node.out_tensor.shape,
        dtype=str(node.out_tensor.dtype),
        value=float(node.out_tensor.reshape(-1)[0]) if node.out_tensor.size == 1 else None,
        gradient=None if node.out_gradient is None else _norm(node.out_gradient),
        step=step,
        is_unrolled=is_unrolled,
    )
