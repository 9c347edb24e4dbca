"""`diagnose`: gradients through time, gates, and attention weights of a network that reads a text.

The loss of predicting one token, L = -ln p(x_T | x_<T), is differentiated with respect to the embeddings and
hidden states of all steps before. A model declares the function that does so as `diagnosed_by`, a path MODULE:NAME:
it takes the model, the ids that are read, and the id that is predicted, and returns a `Trace`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.autodiff import (
    Add,
    Embedding,
    Module,
    Multiply,
    Scale,
    ScaledDotProductAttention,
    Slice,
    SoftmaxCrossEntropy,
    Tape,
    Value,
)
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape_model import TapeModel, as_tape_model, is_on_tape, kinds_on_tape
from chainrule.contract.lm import LanguageModel, start_token
from chainrule.errors import DiagnosisError
from chainrule.explanation.following import Followed, follow
from chainrule.explanation.reading import ids_and_target
from chainrule.folder import to_json
from chainrule.system.disk import replaced_file
from chainrule.system.display import Part, ResultTable, number, to_html
from chainrule.system.pictures import curves_picture, linear_axis, log_axis
from chainrule.system.plugins import import_object
from chainrule.system.progress import Reports, as_progress

LONGEST = 200
"""The most steps that are looked at by default; the records grow with their square."""
WIDTH = 120
"""The columns of a table where there is no terminal."""
_FIGURES = 56  # the width of a table without its line of blocks
_BLOCKS, _NOTHING = "▁▂▃▄▅▆▇█", "·"


@dataclass(frozen=True, eq=False)
class Trace:
    """The loss and the gradients of one prediction, with the values that were kept on the way."""

    nats: float
    """The loss of the target, -ln p."""
    embedding_gradient_T: np.ndarray
    """||∂L/∂e_t||, of the vector that the first layer reads at each step: how much a token matters."""
    state_gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    """||∂L/∂h_t|| as "h", for an LSTM also ||∂L/∂c_t|| as "c", each [L, T]. Empty if nothing is recurrent."""
    gates: Mapping[str, list[np.ndarray]] = field(default_factory=dict)
    """The values of gates by name, then layer: [T, H]. Empty if there are none."""
    alone: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What one factor alone would leave of the last step's gradient, [L, T], by state: the gates that carry it,
    ||∂L/∂c_T ⊙ f_T ⊙ ... ⊙ f_{t+1}|| ("c" of an LSTM or QRNN, "h" of a GRU), or the recurrent matrix U,
    ||∂L/∂h_T U^(T-t)|| ("h" of an Elman network)."""
    attention_LHTT: np.ndarray | None = None
    """Attention weights of each query (the third axis) over the keys (the last axis). None without attention."""
    states: Mapping[str, list[np.ndarray]] = field(default_factory=dict)
    """The values of the states "h" and "c" by name, then layer: [T, H]. Empty if nothing is recurrent."""
    log_probs_V: np.ndarray | None = None
    """ln p of every token at the place of the target; None if it was not kept."""
    followed: Followed | None = None
    """The way of the last token through a Transformer; None for other networks."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Diagnosis(Trace):
    """The results of `diagnose`: a `Trace` and its tokens. It shows its tables in a notebook.

    Step 0 reads the token that begins a text, such as <s>; step t reads the t-th token of the text.
    """

    tokens: tuple[str, ...]
    """The tokens read at the T steps."""
    target: str
    """The token after them, whose loss is differentiated."""

    @property
    def title(self) -> str:
        """What was read and predicted, in one line."""
        tokens = "1 token" if len(self.tokens) == 1 else f"{len(self.tokens):,} tokens"
        likely = number(math.exp(-self.nats))
        return f"{tokens}, then {self.target!r}: {number(self.nats)} nats, p = {likely}"

    def parts(self, width: int = WIDTH) -> list[Part]:
        """The diagnosis as sentences and tables, for a terminal of this width and for a notebook."""
        parts: list[Part] = [self.title, "", *_gradients(self, width - _FIGURES)]
        if self.gates:
            parts += ["", *_gates(self, width - _FIGURES)]
        if self.attention_LHTT is not None:
            parts += ["", *_attention(self, self.attention_LHTT, width * 2 // 5)]
        return parts

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.title}>"

    def _repr_html_(self) -> str:
        return to_html(self.parts())

    def records(self) -> Iterator[dict[str, Any]]:
        """The results as flat records, for plots; gates and attention are rounded to six decimals."""
        yield {"what": "prediction", "step": len(self.tokens), "token": self.target, "nats": self.nats}
        norms: list[tuple[dict[str, Any], np.ndarray]] = [({"state": "embedding"}, self.embedding_gradient_T)]
        for name, norms_LT in self.state_gradients.items():
            norms += [({"layer": layer, "state": name}, norms_T) for layer, norms_T in enumerate(norms_LT)]
        alone = [
            ({"layer": layer, "state": name, "by": self.alone_by}, norms_T)
            for name, norms_LT in self.alone.items()
            for layer, norms_T in enumerate(norms_LT)
        ]
        for what, rows in (("gradient_norm", norms), ("gradient_norm_alone", alone)):
            for of, norms_T in rows:
                for step, token in enumerate(self.tokens):
                    yield {"what": what, **of, "step": step, "token": token, "value": float(norms_T[step])}
        for name, layers in self.gates.items():
            for layer, values_TH in enumerate(layers):
                for step, (token, values_H) in enumerate(zip(self.tokens, values_TH, strict=True)):
                    place = {"layer": layer, "gate": name, "step": step, "token": token}
                    yield {"what": "gate", **place, "mean": float(values_H.mean()), "values": _rounded(values_H)}
        if self.attention_LHTT is not None:
            for layer, head, query in np.ndindex(self.attention_LHTT.shape[:3]):
                place = {"layer": layer, "head": head, "query": query, "token": self.tokens[query]}
                # keys after the query have no weight
                weights = _rounded(self.attention_LHTT[layer, head, query, : query + 1])
                yield {"what": "attention", **place, "weights": weights}

    @property
    def alone_by(self) -> str:
        """The factor of `alone`: the gates of a network that has some, or the recurrent matrix U."""
        return "gates" if self.gates else "U"

    def curves(self) -> dict[str, np.ndarray]:
        """The norms of the gradients by name, each [T]: embeddings, states by layer, and what is in `alone`."""
        found = {"embedding": self.embedding_gradient_T}
        for ending, norms in (("", self.state_gradients), (f" by {self.alone_by} alone", self.alone)):
            for name, norms_LT in norms.items():
                found |= {f"{name}, layer {n}{ending}": norms_T for n, norms_T in enumerate(norms_LT)}
        return found

    def svg(self) -> str:
        """The norms of the gradients against the distance from the last step, by logarithms: an SVG file."""
        return gradients_picture({"": self})

    def save(self, path: str | Path) -> None:
        """Write the records to a file as JSON, one per line."""
        with replaced_file(Path(path)) as file:
            for record in self.records():
                file.write(to_json(record).encode() + b"\n")


def diagnose(
    lm: LanguageModel,
    text: str,
    *,
    after: bool = False,
    token: int | None = None,
    longest: int = LONGEST,
    recurrent_norm: float | None = None,
    progress: Reports = False,
) -> Diagnosis:
    """Diagnose a network while it reads a text and predicts its last token, the `token`-th, or the one `after` it.

    At most the last `longest` tokens are read, and no more than the network's window holds. With `recurrent_norm`,
    the recurrent matrix of each gate and layer is first scaled to that spectral norm; the model is not changed.

    >>> import chainrule as cr
    >>> corpus = cr.Corpus.from_text("i love cats\\ni love dogs\\n")
    >>> lm = cr.train("elman", corpus, engine="tape", steps=1, embedding=4, hidden=4, layers=1, tokenizer="word")
    >>> found = diagnose(lm, "i love cats")
    >>> found.tokens, found.state_gradients["h"].shape
    (('<s>', 'i', 'love'), (1, 3))
    """
    if longest < 1:
        raise DiagnosisError(f"longest should be at least 1, not {longest}")
    if not is_diagnosed(lm):
        known = ", ".join(kinds_on_tape())
        raise DiagnosisError(
            f"a model of the kind {lm.kind} has nothing to differentiate; the kinds that have are {known}"
        )
    if recurrent_norm is not None:
        lm = with_recurrent_norm(lm, recurrent_norm)
    window = getattr(getattr(lm, "network", None), "window", None)
    most = min(longest, window or longest)
    ids, target = ids_and_target(lm, text, as_progress(progress), after=after, token=token, longest=most)
    read = [start_token(lm.tokenizer, lm.context), *ids]
    trace: Trace = import_object(lm.diagnosed_by)(lm, read, target)  # type: ignore[attr-defined]
    tokens = tuple(map(lm.tokenizer.token, read))
    return Diagnosis(**vars(trace), tokens=tokens, target=lm.tokenizer.token(target))


def is_diagnosed(lm: LanguageModel) -> bool:
    """Return True if a model declares the function that diagnoses it."""
    return hasattr(lm, "diagnosed_by")


def with_recurrent_norm(lm: LanguageModel, norm: float) -> TapeModel:
    """Return a copy of a model whose recurrent matrices, one for each gate and layer, have this spectral norm.

    ||U|| bounds what one step back does to the gradient of an Elman network: below 1 it must vanish, above 1 it may
    explode.
    """
    if not norm > 0:
        raise DiagnosisError(f"the norm of a recurrent matrix should be above 0, not {norm:g}")
    model = copy.copy(as_tape_model(lm))
    before = model.network
    tensors = {name: parameter.out_tensor.copy() for name, parameter in before.parameters.items()}
    model.network = type(before)(before.config, before.vocab_size, before.bos, tensors)
    if not (matrices := model.network.recurrent_matrices()):
        raise DiagnosisError(f"a model of the kind {lm.kind} has no recurrent matrix to scale")
    for matrix in matrices:
        matrix *= norm / np.linalg.norm(matrix, ord=2)
    return model


def trace_network(lm: LanguageModel, ids: list[int], target: int) -> Trace:
    """Trace a network that reads the ids, the first of which begins a text, and predicts the target.

    The network is computed on the tape, so that torch is not needed; a torch network that the tape does not compute
    is differentiated by its embeddings only.
    """
    if not isinstance(lm, TapeModel) and not is_on_tape(lm.kind):
        trace: Trace = import_object("chainrule.explanation.torch_trace:trace_embeddings")(lm, ids, target)
        return trace
    network, steps = _in_double(as_tape_model(lm).network), len(ids)
    with Tape() as tape:
        features = network.read(np.array([ids])).features
        logits = network.logits(Slice(np.s_[:, -1]).apply_fwd(features))
        loss = SoftmaxCrossEntropy().apply_fwd(logits, Value(np.array([target]), "y"))
        modules = tape.modules
        tape.backward()
    states = {letter: [one for one in modules if one.symbol == letter] for letter in "hc"}
    states = {letter: found for letter, found in states.items() if found}
    gates: dict[str, list[Module]] = {}
    for one in modules:
        if one.gate:
            gates.setdefault(one.gate, []).append(one)
    attention = [one.weights for one in modules if isinstance(one, ScaledDotProductAttention)]
    matrices = [matrix.astype(np.float64) for matrix in network.recurrent_matrices()]
    alone = {}
    for name, found in states.items():
        layers = [found[first : first + steps] for first in range(0, len(found), steps)]
        if _carrying_gate(found[-1]) is not None:
            alone[name] = np.stack([_left_by_gates(layer) for layer in layers])
        elif len(matrices) == len(layers):  # one matrix for each layer: no gates
            alone[name] = np.stack([_left_by_matrix(*both) for both in zip(layers, matrices, strict=True)])
    # learned first states may come before the embeddings, which are scaled where the table is tied to the head
    place = next(n for n, module in enumerate(modules) if isinstance(module, Embedding))
    embedded, second = modules[place : place + 2]
    if isinstance(second, Scale) and second.in_modules[0] is embedded:
        embedded = second
    # the last T rows are the tokens; a feed-forward network has <s> before them
    gradient = _gradient(embedded)
    logits_V = logits.out_tensor[0]
    return Trace(
        float(loss.out_tensor),
        np.linalg.norm(gradient.reshape(-1, gradient.shape[-1])[-steps:], axis=-1),
        {
            letter: np.reshape([np.linalg.norm(_gradient(one)) for one in found], (-1, steps))
            for letter, found in states.items()
        },
        _over_time(gates, steps),
        alone,
        # heads that share keys stand in two axes of a module, here in one
        np.stack([weights.reshape(-1, steps, steps) for weights in attention]) if attention else None,
        _over_time(states, steps),
        # ln p_i = z_i - ln Σ e^z, and ln Σ e^z = z_y + L
        logits_V - logits_V[target] - float(loss.out_tensor),
        follow(network, modules, embedded) if isinstance(network, TapeTransformer) else None,
    )


def _carrying_gate(state: Module) -> Module | None:
    """The gate g of a state s_t = g ⊙ s_{t-1} + ...; None if the state is made in another way."""
    for product in state.in_modules if isinstance(state, Add) else ():
        if isinstance(product, Multiply):
            gate, before = product.in_modules
            # i ⊙ g adds what is new: both are gates
            if isinstance(gate, Module) and gate.gate and not getattr(before, "gate", ""):
                return gate
    return None


def _left_by_matrix(states: Sequence[Module], U: np.ndarray) -> np.ndarray:
    """||∂L/∂h_T U^(T-t)|| of the states of one layer at each step, [T]."""
    left, norms = _gradient(states[-1]), []
    for _ in states:
        norms.append(float(np.linalg.norm(left)))
        left = left @ U
    return np.array(norms[::-1])


def _left_by_gates(states: Sequence[Module]) -> np.ndarray:
    """||∂L/∂s_T ⊙ g_T ⊙ ... ⊙ g_{t+1}|| of the states of one layer at each step, [T]."""
    left, norms = _gradient(states[-1]), []
    for state in reversed(states):
        norms.append(float(np.linalg.norm(left)))
        gate = _carrying_gate(state)
        assert gate is not None  # all steps of a layer are made alike
        left = left * gate.out_tensor
    return np.array(norms[::-1])


def _over_time(modules: Mapping[str, list[Module]], steps: int) -> dict[str, list[np.ndarray]]:
    """The values of modules by name, then layer, [T, H]: a layer has one module for each step."""
    return {
        name: [
            np.concatenate([one.out_tensor for one in found[first : first + steps]])
            for first in range(0, len(found), steps)
        ]
        for name, found in modules.items()
    }


def _in_double(network: TapeNetwork) -> TapeNetwork:
    """A copy in double precision, without the padding rows of the tables; <s>, never predicted, has the bias -∞.

    A gradient that vanishes soon leaves the range of single precision. Only the embedding table is a parameter: the
    gradients of the others are not needed.
    """
    tensors = {name: parameter.out_tensor.astype(np.float64) for name, parameter in network.parameters.items()}
    for name in {network.table.name, "head.weight", "head.bias"} & tensors.keys():
        tensors[name] = tensors[name][: network.vocab_size]
    tensors.setdefault("head.bias", np.zeros(network.vocab_size))[network.bos] = -np.inf
    found = type(network)(network.config, network.vocab_size, network.bos, tensors)
    table, nodes = found.table, found.parameters.items()
    data: Any = {name: one if one is table else Value(one.out_tensor, name) for name, one in nodes}
    found.parameters = data
    return found


def _gradient(module: Module) -> np.ndarray:
    """The gradient of a module; zeros if none flowed in."""
    return np.zeros_like(module.out_tensor) if module.out_gradient is None else module.out_gradient


def _rounded(values: np.ndarray) -> list[float]:
    rounded: list[float] = np.round(values, 6).tolist()
    return rounded


# -- the picture of several models -----------------------------------------------------------------------------


def gradients_picture(diagnoses: Mapping[str, Diagnosis]) -> str:
    """The norms of gradients against the distance from the last step, of one or more models, as an SVG file.

    For several models only the states are drawn, with what is in `Trace.alone`; for a network without states, the
    embeddings.
    """
    curves = []
    for model, found in diagnoses.items():
        norms = found.curves()
        if len(diagnoses) > 1 and len(norms) > 1:
            del norms["embedding"]
        for name, norms_T in norms.items():
            points = [(float(distance), float(norm)) for distance, norm in enumerate(norms_T[::-1])]
            curves.append((f"{model}: {name}" if model else name, points))
    x = linear_axis("distance in steps from the last token read", [at for _, points in curves for at, _ in points])
    y = log_axis("norm of the gradient", [norm for _, points in curves for _, norm in points])
    return curves_picture("Gradients through time", curves, x, y)


# -- tables: each row has a line of blocks over the steps --------------------------------------------------


def _gradients(found: Diagnosis, width: int) -> list[Part]:
    norms = found.curves()
    seen = [norm for norms_T in norms.values() for norm in norms_T if 0 < norm < math.inf] or [1.0]
    least, most = min(seen), max(seen)
    rows = []
    for name, norms_T in norms.items():
        levels = [_log_level(norm, least, most) for norm in norms_T]
        first, last = float(norms_T[0]), float(norms_T[-1])
        ratio = f"{first / last:.1e}" if last else ""
        rows.append([name, heat_line(levels, width), f"{first:.1e}", f"{last:.1e}", ratio])
    return [
        ResultTable(["gradient by", "step by step", "first", "last", "first / last"], rows),
        f"blocks, by logarithms: ▁ {least:.1e} to █ {most:.1e}; {_NOTHING} no gradient at all",
        f"most depends on {_largest(found, found.embedding_gradient_T)}",
    ]


def _gates(found: Diagnosis, width: int) -> list[Part]:
    rows = []
    for layer in range(len(next(iter(found.gates.values())))):
        for name, layers in found.gates.items():
            means_T = layers[layer].mean(axis=1)
            # gates lie between 0 and 1, a candidate between -1 and 1
            levels = ((means_T + 1) / 2 if name == "candidate" else means_T).tolist()
            figures = (f"{value:.3f}" for value in (means_T.min(), means_T.mean(), means_T.max()))
            rows.append([f"{name}, layer {layer}", heat_line(levels, width), *figures])
    table = ResultTable(["mean of units", "step by step", "least", "mean", "most"], rows)
    return [table, "blocks: ▁ 0 to █ 1; of candidates ▁ -1 to █ 1"]


def _attention(found: Diagnosis, attention_LHTT: np.ndarray, width: int) -> list[Part]:
    rows = []
    for layer, head in np.ndindex(attention_LHTT.shape[:2]):
        weights_T = attention_LHTT[layer, head, -1]
        line = heat_line((weights_T / weights_T.max()).tolist(), width)
        rows.append([f"layer {layer}, head {head}", line, _largest(found, weights_T)])
    table = ResultTable([f"attention of {found.tokens[-1]!r}", "step by step", "most to"], rows, left=[2])
    return [table, "blocks: ▁ 0 to █ the largest weight of the row"]


def heat_line(levels: Sequence[float | None], width: int) -> str:
    """Draw levels from 0 to 1 as blocks, None as a dot; where there are too few columns, neighbours share one.

    >>> heat_line([0.0, 0.5, 1.0, None], 10)
    '▁▅█·'
    """
    columns = max(min(len(levels), width), 1)
    edges = [i * len(levels) // columns for i in range(columns + 1)]
    line = ""
    for first, last in pairwise(edges):
        here = [level for level in levels[first:last] if level is not None]
        mean = sum(here) / len(here) if here else None
        line += _NOTHING if mean is None else _BLOCKS[min(int(mean * len(_BLOCKS)), len(_BLOCKS) - 1)]
    return line


def _log_level(norm: float, least: float, most: float) -> float | None:
    """Return the level of a norm between the least (0) and the most (1), by logarithms; None if it is 0."""
    if not norm > 0:
        return None
    low, high = math.log(least), math.log(most)
    return (math.log(min(norm, most)) - low) / (high - low) if high > low else 1.0


def _largest(found: Diagnosis, values_T: np.ndarray) -> str:
    """Name the three tokens with the largest values, with their steps and values."""
    best = sorted(range(len(values_T)), key=lambda step: -values_T[step])[:3]
    return ", ".join(f"{found.tokens[step]!r} at {step} ({number(float(values_T[step]))})" for step in best)
