"""One prediction of a trained network, explained: the graph that made it, and the gradients that flow back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff.model import TapeModel, as_tape_model
from chainrule.autodiff.networks.feedforward import TapeFeedforward
from chainrule.autodiff.networks.recurrent import TapeRecurrent
from chainrule.autodiff.picture.drawing import to_svg
from chainrule.autodiff.picture.graph import Graph, differentiate
from chainrule.autodiff.picture.prediction import Prediction
from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.tape import Tape, no_grad
from chainrule.designs.memory import RecurrentMemory
from chainrule.errors import DiagnosisError
from chainrule.lm import LanguageModel, start_token
from chainrule.neural.diagnostics.diagnosis import note_unknown, text_ids
from chainrule.progress import Progress, Reports, as_progress

LAST = 3
"""The default number of tokens, the last ones, that the graph of a recurrent network covers."""
TOP = 5
"""The number of most likely tokens that an explanation lists."""


@dataclass(frozen=True)
class Explanation:
    """The loss of predicting one token, L = -ln p(target | tokens), and its graph."""

    kind: str
    tokens: tuple[str, ...]
    """The tokens read before the target, beginning with <s> (in a stream, </s>)."""
    shown: int
    """The number of last tokens in the graph; a recurrent network starts from the state before them."""
    target: str
    nats: float
    likely: tuple[tuple[str, float], ...]
    """The most likely tokens and their probabilities."""
    graph: Graph

    @property
    def title(self) -> str:
        """The loss and its equation, in one line."""
        read = " ".join(self.tokens[-self.shown :])
        before = "… " if self.shown < len(self.tokens) else ""
        return f"L = -ln p({self.target} | {before}{read}) = {self.nats:.4g} nats"

    def svg(self) -> str:
        """The graph as a picture: the text of an SVG file."""
        return to_svg(self.graph, self.title)

    def record(self) -> dict[str, Any]:
        """The whole explanation as a dictionary that can be written as JSON."""
        return {
            "kind": self.kind,
            "tokens": list(self.tokens),
            "shown": self.shown,
            "target": self.target,
            "nats": self.nats,
            "bits": self.nats / math.log(2),
            "probability": math.exp(-self.nats),
            "likely": [{"token": token, "probability": p} for token, p in self.likely],
            "nodes": [{**vars(node), "shape": list(node.shape)} for node in self.graph.nodes],
            "edges": [vars(edge) for edge in self.graph.edges],
        }


def explain(
    lm: LanguageModel,
    text: str,
    *,
    next_word: str | None = None,
    last: int = LAST,
    progress: Reports = False,
) -> Explanation:
    """Explain how a model predicts the last token of a text, or `next_word` after the text.

    The graph of a recurrent network covers the `last` tokens before the target: the state before them is data, as
    in truncated back-propagation through time. The graph of a feed-forward network covers the tokens that it reads,
    as many as its order minus 1.
    """
    if last < 1:
        raise DiagnosisError(f"the last tokens of the graph should be at least 1, not {last}")
    model = as_tape_model(lm)
    ids, target = _ids(model, text, next_word, as_progress(progress))
    read = [start_token(model.tokenizer, model.context), *ids]
    reach = model.settings.order - 1 if isinstance(model.network, TapeFeedforward) else last
    shown, memory = read[-reach:], _memory(model, read[:-reach])
    with Tape() as tape:
        found = Prediction(model.network, shown, target, lambda token: _word(model, token), memory)
        nats, logits_V = float(found.loss.out_tensor), found.logits.out_tensor
        graph = differentiate(tape, found.symbols)
    return Explanation(
        kind=model.kind,
        tokens=tuple(_word(model, token) for token in read),
        shown=len(shown),
        target=_word(model, target),
        nats=nats,
        likely=_likely(model, logits_V),
        graph=graph,
    )


def _ids(model: TapeModel, text: str, next_word: str | None, progress: Progress) -> tuple[list[int], int]:
    """The ids that the model reads, and the id that it is to predict."""
    ids = text_ids(model, text, progress)
    if next_word is not None:
        ids.append(_next(model, next_word))
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words, or the next word")
    note_unknown(model, ids, progress)
    return ids[:-1], ids[-1]


def _next(model: TapeModel, word: str) -> int:
    """The id of a word that is a single token; </s>, as it is called in pictures, is the end of a line."""
    if word == model.tokenizer.token(model.tokenizer.eos):
        return model.tokenizer.eos
    found: list[int] = model.tokenizer.encode(word).tolist()
    if len(found) != 1:
        pieces = ", ".join(_word(model, one) for one in found) or "nothing"
        raise DiagnosisError(
            f"the next word should be one token; {word!r} is {len(found)}: {pieces}. "
            "Give one of those; in subwords the space before a word is part of it"
        )
    return found[0]


def _memory(model: TapeModel, before: list[int]) -> RecurrentMemory | None:
    """The states of a recurrent network after the tokens `before`; None without tokens or for other networks."""
    if not before or not isinstance(model.network, TapeRecurrent):
        return None
    with no_grad():
        memory: RecurrentMemory = model.network.read(np.array([before])).memory
    return memory


def _likely(model: TapeModel, logits_V: Array) -> tuple[tuple[str, float], ...]:
    # p_i = e^z_i / Σ_j e^z_j
    p_V = np.exp(logits_V - logits_V.max())
    p_V /= p_V.sum()
    best = np.argsort(-p_V, kind="stable")[:TOP]
    return tuple((_word(model, int(i)), float(p_V[i])) for i in best)


def _word(model: TapeModel, token: int) -> str:
    """The text of a token in a picture: in quotes if it is empty, unprintable or has spaces at its ends."""
    text = model.tokenizer.token(token)
    return text if text.isprintable() and text.strip() == text != "" else repr(text)
