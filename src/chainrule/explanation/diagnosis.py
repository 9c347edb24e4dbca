"""Diagnosis of a network while it reads a text: gradients through time, gates, and attention maps.

One token is looked at: the loss of predicting it, L = -ln p(x_T | x_<T), is differentiated with respect to the
embeddings and hidden states of all steps before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.autodiff.model import TapeModel
from chainrule.contract.lm import LanguageModel, start_token
from chainrule.errors import DiagnosisError
from chainrule.explanation.reading import note_unknown, text_ids, up_to
from chainrule.explanation.tape_trace import trace as trace_tape
from chainrule.folder import to_json
from chainrule.system.devices import has_torch
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Progress, Reports, as_progress

LONGEST = 200
"""The most steps that are looked at, unless told otherwise; the records grow with their square."""
KINDS = ("feedforward", "bagofwords", "elman", "lstm", "gru", "transformer")
"""The kinds of model that can be diagnosed."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The results of `diagnose`. Step 0 reads the token that begins a text, such as <s>; step t its t-th token."""

    tokens: tuple[str, ...]
    """The tokens read at the T steps."""
    target: str
    """The token after them, whose loss is differentiated."""
    nats: float
    """The loss of the target, -ln p."""
    embedding_gradient_T: np.ndarray
    """||∂L/∂e_t||, of the vector that the first layer reads at each step: how much a token matters."""
    state_gradients: Mapping[str, np.ndarray]
    """||∂L/∂h_t|| as "h", for an LSTM also ||∂L/∂c_t|| as "c", each [L, T]. Empty if nothing is recurrent."""
    gates: Mapping[str, list[np.ndarray]]
    """The values of gates by name, then layer: [T, H]. Empty if there are none."""
    attention_LHTT: np.ndarray | None
    """Attention weights of each query (the third axis) over the keys (the last axis). None without attention."""

    def records(self) -> Iterator[dict[str, Any]]:
        """The results as flat records, for plots; gates and attention are rounded to six decimals."""
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
        """Write the records to a file as JSON, one per line."""
        with replaced_file(Path(path)) as file:
            for record in self.records():
                file.write(to_json(record).encode() + b"\n")

    def _gradients(self, of: dict[str, Any], norms_T: np.ndarray) -> Iterator[dict[str, Any]]:
        for step, token in enumerate(self.tokens):
            yield {"what": "gradient_norm", **of, "step": step, "token": token, "value": float(norms_T[step])}

    def _gate(self, of: dict[str, Any], values_TH: np.ndarray) -> Iterator[dict[str, Any]]:
        for step, (token, values_H) in enumerate(zip(self.tokens, values_TH, strict=True)):
            figures = {"mean": float(values_H.mean()), "values": _rounded(values_H)}
            yield {"what": "gate", **of, "step": step, "token": token, **figures}

    def _attention(self, of: dict[str, Any], weights_TT: np.ndarray) -> Iterator[dict[str, Any]]:
        for query, token in enumerate(self.tokens):
            # keys after the query have no weight
            weights = _rounded(weights_TT[query, : query + 1])
            yield {"what": "attention", **of, "query": query, "token": token, "weights": weights}


def diagnose(
    lm: LanguageModel,
    text: str,
    *,
    token: int | None = None,
    longest: int = LONGEST,
    progress: Reports = False,
) -> Diagnosis:
    """Diagnose a network while it reads a text and predicts its last token, or the `token`-th.

    At most the last `longest` tokens before that are read, and no more than the network's window holds.
    """
    reports = as_progress(progress)
    if isinstance(lm, TapeModel):
        return _by_tape(lm, *_read_and_target(lm, text, token, longest, lm.network.window, reports))
    if lm.dtype != "float64":
        lm = lm.on("cpu", "float64")
    network = network_of(lm)
    return _by_torch(lm, network, *_read_and_target(lm, text, token, longest, network.window, reports))


def _by_tape(lm: TapeModel, read: list[int], target: int) -> Diagnosis:
    """The diagnosis of a network on the tape, which needs no torch."""
    traced = trace_tape(lm.network, lm.settings, read, target)
    return _diagnosis(lm, read, target, traced.nats, traced, traced.attention)


def _by_torch(lm: LanguageModel, network: Any, read: list[int], target: int) -> Diagnosis:
    from chainrule.explanation.torch_trace import trace  # only now: a model without a network needs no torch

    traced = trace(network, read, target, lm.tokenizer.bos)
    attention = [weights_HTT.numpy() for weights_HTT in traced.attention]
    return _diagnosis(lm, read, target, traced.loss.item(), traced, attention)


def _diagnosis(
    lm: LanguageModel, read: list[int], target: int, nats: float, traced: Any, attention: list[np.ndarray]
) -> Diagnosis:
    embedding_gradient_T, state_gradients = traced.gradient_norms()
    return Diagnosis(
        tokens=tuple(map(lm.tokenizer.token, read)),
        target=lm.tokenizer.token(target),
        nats=nats,
        embedding_gradient_T=embedding_gradient_T,
        state_gradients=state_gradients,
        gates=traced.gate_values(),
        attention_LHTT=np.stack(attention) if attention else None,
    )


def network_of(lm: LanguageModel) -> Any:
    """The torch network of a model; a model that has none is refused."""
    if has_torch():
        from chainrule.inference.model import NeuralModel

        if isinstance(lm, NeuralModel):
            return lm.network
    raise DiagnosisError(
        f"a model of the kind {lm.kind} has nothing to differentiate; the kinds that have are {', '.join(KINDS)}"
    )


def _read_and_target(
    lm: LanguageModel, text: str, token: int | None, longest: int, window: int | None, progress: Progress
) -> tuple[list[int], int]:
    """The ids that the network reads, from the start token on, and the id that it is to predict."""
    *ids, target = _ids(lm, text, token, min(longest, window or longest), progress)
    return [start_token(lm.tokenizer, lm.context), *ids], target


def _ids(lm: LanguageModel, text: str, token: int | None, longest: int, progress: Progress) -> list[int]:
    """The ids of the last `longest` tokens of a text, up to the `token`-th; the last one is to be predicted."""
    if longest < 1:
        raise DiagnosisError(f"longest should be at least 1, not {longest}")
    ids = text_ids(lm, text, progress)
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words")
    ids = up_to(ids, token)
    if len(ids) > longest:
        progress.note(f"of {len(ids):,} tokens the last {longest:,} are read, as if the text began there")
        ids = ids[-longest:]
    note_unknown(lm, ids, progress)
    return ids


def _rounded(values: np.ndarray) -> list[float]:
    rounded: list[float] = np.round(values, 6).tolist()
    return rounded
