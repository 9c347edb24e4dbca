"""One prediction of a network, explained: the graph that made it, and the gradients that flow back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff import ScaledDotProductAttention, Tape, no_grad
from chainrule.autodiff.tape_model import as_tape_model
from chainrule.contract.lm import LanguageModel, start_token
from chainrule.explanation.attention import HeadOfToken, head_of_token
from chainrule.explanation.explanation import Explanation, most_likely
from chainrule.explanation.following import Attended, attended_by_last
from chainrule.explanation.pictures.drawing import to_svg
from chainrule.explanation.pictures.graph import Graph, GraphNode, differentiate
from chainrule.explanation.pictures.prediction import Prediction
from chainrule.explanation.reading import word, words
from chainrule.system.display import Part, ResultTable, number, scrolled, to_html
from chainrule.system.progress import Progress

MOST_IN_TITLE = 12
"""The most tokens that the title of an explanation names."""


@dataclass(frozen=True, repr=False)
class NetworkExplanation(Explanation):
    """The loss of predicting one token, L = -ln p(target | tokens), and its graph."""

    shown: int
    """The number of last tokens in the graph; a recurrent network starts from the state before them."""
    graph: Graph
    attended: tuple[Attended, ...] = ()
    """The attention of the last token in each layer; empty if the network has no attention."""

    def head(self, layer: int = 0, head: int = 0) -> HeadOfToken:
        """Return query, keys, scores, weights and values of the last token in one head; both count from 0."""
        return head_of_token(self.attended, self.tokens[-self.shown :], layer, head)

    @property
    def title(self) -> str:
        """The loss and its equation, in one line; of a long text only the last tokens are in it."""
        named = min(self.shown, MOST_IN_TITLE)
        before = "… " if named < len(self.tokens) else ""
        return f"L = -ln p({self.target} | {before}{' '.join(self.tokens[-named:])}) = {self.nats:.4g} nats"

    def svg(self) -> str:
        """Return the graph as a picture: the text of an SVG file."""
        return to_svg(self.graph, self.title)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        """Return the picture, which has the equations, shapes and gradients of the tables too."""
        return to_html([scrolled(self.svg()), f"{self._bits}, p = {self._p}", self.parts()[-1]])

    def details(self) -> list[Part]:
        """Return the loss, the modules in the order of the forward pass, and the parameters."""
        parts: list[Part] = [f"{self.title} = {self._bits}, p = {self._p}", "", *self._tables()]
        before = len(self.tokens) - self.shown
        if before and self.kind != "feedforward":
            some = "the first token is" if before == 1 else f"the first {before:,} tokens are"
            state = f"state after {'it' if before == 1 else 'them'}"
            what = "sum of their vectors" if self.kind == "bagofwords" else state
            parts.insert(0, f"{some} read without the tape: the {what} is data")
        return parts

    @property
    def _p(self) -> str:
        return number(math.exp(-self.nats))

    def _tables(self) -> list[Part]:
        step, rows, strong = None, list[list[str]](), list[int]()
        modules = self.graph.of_kind("module")
        for node in modules:
            if node.step != step and modules[-1].step:
                step = node.step
                strong.append(len(rows))
                rows.append([f"step {step + 1}: {self.tokens[step - self.shown]}"])
            gradient = "" if node.gradient is None else f"{node.gradient:.2e}"
            rows.append([node.name, node.equation, _shape(node), gradient])
        headings = ["module", "equation", "shape", "||dL/dz||"]
        parameters = []
        for node, uses in zip(self.graph.nodes, self.graph.uses, strict=True):
            if node.kind == "parameter":
                used = "once" if len(uses) == 1 else f"{len(uses)} times"
                parameters.append([node.symbol, _shape(node), used, f"{node.gradient or 0:.2e}"])
        of_parameters = ResultTable(["parameter", "shape", "used", "||dL/dW||"], parameters)
        return [ResultTable(headings, rows, left=[1], strong=strong), "", of_parameters, ""]

    def steps(self) -> dict[str, Any]:
        return {
            "shown": self.shown,
            "nodes": [{**vars(node), "shape": list(node.shape)} for node in self.graph.nodes],
            "edges": [vars(edge) for edge in self.graph.edges],
            "attention": [
                self.head(layer, head).record()
                for layer, attended in enumerate(self.attended)
                for head in range(len(attended.query_HK))
            ],
        }


def _shape(node: GraphNode) -> str:
    return "×".join(map(str, node.shape)) or "number"


def explain_network(
    lm: LanguageModel, ids: list[int], target: int, last: int, progress: Progress
) -> NetworkExplanation:
    """Explain how a network predicts the target after the ids; the start token comes before them.

    The graph of a recurrent network covers the `last` tokens before the target: the state before them is data, as
    in truncated back-propagation through time. So does that of a bag of words: the sum before is data. The graph of
    a feed-forward network or a Transformer covers the tokens that it reads: as many as its order minus 1, or all in
    its window.
    """
    model = as_tape_model(lm)
    read = model.in_window([start_token(model.tokenizer, model.context), *ids])
    if len(read) <= len(ids):
        progress.note(f"of {len(ids) + 1:,} tokens the last {len(read):,} are in the window of the network")
    network, memory = model.network, None
    reach = network.tokens_at_once or last
    shown, before = read[-reach:], read[:-reach]
    if before and network.tokens_at_once is None:
        with no_grad():
            memory = network.read(np.array([before])).memory
    with Tape() as tape:
        found = Prediction(network, shown, target, lambda token: word(model.tokenizer, token), memory)
        attention = (one for one in tape.modules if isinstance(one, ScaledDotProductAttention))
        attended = tuple(map(attended_by_last, attention))
        nats, logits_V = float(found.loss.out_tensor), found.logits.out_tensor
        graph = differentiate(tape, found.symbols)
    return NetworkExplanation(
        kind=model.kind,
        tokens=words(model.tokenizer, read),
        target=word(model.tokenizer, target),
        nats=nats,
        # ln p_i = z_i - ln Σ e^z, and ln Σ e^z = z_y + L
        likely=most_likely(model, logits_V - logits_V[target] - nats),
        shown=len(shown),
        graph=graph,
        attended=attended,
    )
