"""What goes on inside a network that reads a text: gradients through time, gates, and maps of attention.

One token is looked at: the loss of predicting it, L = -ln p(x_T | x_<T), is differentiated with respect to what the
network had at each step before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.errors import DiagnosisError
from chainrule.folder import to_json
from chainrule.lm import LanguageModel, beginning
from chainrule.progress import SILENT, Progress

LONGEST = 200
"""Steps that are looked at; the records grow with their square."""
KINDS = ("feedforward", "averaging", "elman", "lstm", "gru", "transformer")
"""The kinds that can be looked into."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found. Steps count from 0, which is <s> or so; the token at step t is the t-th of the text."""

    tokens: tuple[str, ...]
    """What was read at each of the T steps."""
    target: str
    """The token behind them, whose loss this is about."""
    nats: float
    """That loss."""
    embedding_gradient_T: np.ndarray
    """||∂L/∂e_t||, of the vector that the first layer reads at each step: how much a token matters."""
    state_gradients: Mapping[str, np.ndarray]
    """||∂L/∂h_t|| as "h", of an LSTM ||∂L/∂c_t|| as "c" too, each [L, T]. Empty if nothing is recurrent."""
    gates: Mapping[str, list[np.ndarray]]
    """By name, then layer: [T, H]. Empty if there are none."""
    attention_LHTT: np.ndarray | None
    """How much a query (the third axis) takes of each key (the last one). None if there is no attention."""

    def records(self) -> Iterator[dict[str, Any]]:
        """All of it as flat objects, for plots; gates and attention are rounded to six decimals."""
        yield {"what": "prediction", "step": len(self.tokens), "token": self.target, "nats": self.nats}
        yield from self._gradients({"state": "embedding"}, self.embedding_gradient_T)
        for name, norms_LT in self.state_gradients.items():
            for layer, norms_T in enumerate(norms_LT):
                yield from self._gradients({"layer": layer, "state": name}, norms_T)
        for name, layers in self.gates.items():
            for layer, values_TH in enumerate(layers):
                yield from self._gate({"layer": layer, "gate": name}, values_TH)
        if self.attention_LHTT is not None:
            for layer, head in np.ndindex(self.attention_LHTT.shape[:2]):
                yield from self._attention({"layer": layer, "head": head}, self.attention_LHTT[layer, head])

    def save(self, path: str | Path) -> None:
        """The records as JSON, one on each line."""
        with Path(path).open("w", encoding="utf-8") as file:
            for record in self.records():
                file.write(to_json(record) + "\n")

    def _gradients(self, of: dict[str, Any], norms_T: np.ndarray) -> Iterator[dict[str, Any]]:
        for step, token in enumerate(self.tokens):
            yield {"what": "gradient_norm", **of, "step": step, "token": token, "value": float(norms_T[step])}

    def _gate(self, of: dict[str, Any], values_TH: np.ndarray) -> Iterator[dict[str, Any]]:
        for step, (token, values_H) in enumerate(zip(self.tokens, values_TH, strict=True)):
            figures = {"mean": float(values_H.mean()), "values": _rounded(values_H)}
            yield {"what": "gate", **of, "step": step, "token": token, **figures}

    def _attention(self, of: dict[str, Any], weights_TT: np.ndarray) -> Iterator[dict[str, Any]]:
        for query, token in enumerate(self.tokens):
            # what comes later has no weight
            weights = _rounded(weights_TT[query, : query + 1])
            yield {"what": "attention", **of, "query": query, "token": token, "weights": weights}


def diagnose(
    lm: LanguageModel,
    text: str,
    *,
    token: int | None = None,
    longest: int = LONGEST,
    progress: Progress = SILENT,
) -> Diagnosis:
    """Look into a network while it reads a text and predicts its last token, or the `token`-th.

    At most the last `longest` tokens before that are read, and no more than the network's window holds.
    """
    if hasattr(lm, "in_torch"):  # a model of another engine, whose network this does not know
        lm = lm.in_torch("looking into a network")
    network = getattr(lm, "network", None)
    if network is None:
        raise DiagnosisError(
            f"{type(lm).__name__} has nothing to differentiate; the kinds that have are {', '.join(KINDS)}"
        )
    from chainrule.neural.traces import trace  # only now: an n-gram model needs no torch to be refused

    ids = _ids(lm, text, token, min(longest, network.window or longest), progress)
    read, target = [beginning(lm.tokenizer, lm.context), *ids[:-1]], ids[-1]
    traced = trace(network, read, target, lm.tokenizer.bos)
    embedding_gradient_T, state_gradients = traced.gradient_norms()
    return Diagnosis(
        tokens=tuple(map(lm.tokenizer.token, read)),
        target=lm.tokenizer.token(target),
        nats=traced.loss.item(),
        embedding_gradient_T=embedding_gradient_T,
        state_gradients=state_gradients,
        gates=traced.gate_values(),
        attention_LHTT=np.stack([weights.numpy() for weights in traced.attention]) if traced.attention else None,
    )


def _ids(lm: LanguageModel, text: str, token: int | None, longest: int, progress: Progress) -> list[int]:
    """The tokens that are looked at; the last one is predicted."""
    if longest < 1:
        raise DiagnosisError(f"longest should be at least 1, not {longest}")
    ids = text_ids(lm, text, progress)
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words")
    if token is not None and not 1 <= token <= len(ids):
        raise DiagnosisError(f"the text has tokens 1 to {len(ids)}; there is none with the number {token}")
    ids = ids[:token]
    if len(ids) > longest:
        progress.note(f"of {len(ids):,} tokens the last {longest:,} are read, as if the text began there")
        ids = ids[-longest:]
    note_unknown(lm, ids, progress)
    return ids


def text_ids(lm: LanguageModel, text: str, progress: Progress) -> list[int]:
    """The tokens of a text, of its last line where the model knows single lines only."""
    text = text.replace("\r\n", "\n")
    if lm.context == "line" and "\n" in text[:-1]:
        text = text[text.rindex("\n", 0, -1) + 1 :]
        progress.note("the model knows single lines: only the last one is read")
    ids: list[int] = lm.tokenizer.encode(text).tolist()
    return ids


def note_unknown(lm: LanguageModel, ids: list[int], progress: Progress) -> None:
    """Say how many of the tokens are unknown, if some are."""
    unknown = ids.count(lm.tokenizer.unk) if lm.tokenizer.unk is not None else 0
    if unknown:
        progress.note(f"{unknown:,} of {len(ids):,} tokens are unknown to the model")


def _rounded(values: np.ndarray) -> list[float]:
    rounded: list[float] = np.round(values, 6).tolist()
    return rounded
