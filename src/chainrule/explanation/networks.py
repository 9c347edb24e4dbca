"""One prediction of a network, explained: the graph that made it, and the gradients that flow back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff.model import TapeModel, as_tape_model
from chainrule.autodiff.networks.feedforward import TapeFeedforward
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.transformer.decoder import TapeTransformer
from chainrule.autodiff.tape.tape import Tape, no_grad
from chainrule.contract.lm import LanguageModel, start_token
from chainrule.explanation.explanation import Explanation, most_likely
from chainrule.explanation.pictures.drawing import to_svg
from chainrule.explanation.pictures.graph import Graph, differentiate
from chainrule.explanation.pictures.prediction import Prediction
from chainrule.explanation.reading import word
from chainrule.system.progress import Progress

MOST_IN_TITLE = 12
"""The most tokens that the title of an explanation names."""


@dataclass(frozen=True)
class NetworkExplanation(Explanation):
    """The loss of predicting one token, L = -ln p(target | tokens), and its graph."""

    shown: int
    """The number of last tokens in the graph; a recurrent network starts from the state before them."""
    graph: Graph

    @property
    def title(self) -> str:
        """The loss and its equation, in one line; of a long text only the last tokens are in it."""
        named = min(self.shown, MOST_IN_TITLE)
        before = "… " if named < len(self.tokens) else ""
        return f"L = -ln p({self.target} | {before}{' '.join(self.tokens[-named:])}) = {self.nats:.4g} nats"

    def svg(self) -> str:
        """The graph as a picture: the text of an SVG file."""
        return to_svg(self.graph, self.title)

    def steps(self) -> dict[str, Any]:
        return {
            "shown": self.shown,
            "nodes": [{**vars(node), "shape": list(node.shape)} for node in self.graph.nodes],
            "edges": [vars(edge) for edge in self.graph.edges],
        }


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
    reach = _reach(model.network, last)
    shown, memory = read[-reach:], _memory(model, read[:-reach])
    with Tape() as tape:
        found = Prediction(model.network, shown, target, lambda token: word(model, token), memory)
        nats, logits_V = float(found.loss.out_tensor), found.logits.out_tensor
        graph = differentiate(tape, found.symbols)
    return NetworkExplanation(
        kind=model.kind,
        tokens=tuple(word(model, token) for token in read),
        target=word(model, target),
        nats=nats,
        # ln p_i = z_i - ln Σ e^z, and ln Σ e^z = z_y + L
        likely=most_likely(model, logits_V - logits_V[target] - nats),
        shown=len(shown),
        graph=graph,
    )


def _reach(network: TapeNetwork, last: int) -> int:
    """The number of tokens in the graph: all that the network reads at once, or the last of them."""
    if isinstance(network, TapeFeedforward):
        return network.config.order - 1
    return network.config.window if isinstance(network, TapeTransformer) else last


def _memory(model: TapeModel, before: list[int]) -> Any:
    """The memory of a network after the tokens `before`; None without tokens or for a feed-forward network."""
    if not before or isinstance(model.network, TapeFeedforward):
        return None
    with no_grad():
        return model.network.read(np.array([before])).memory
