"""`diagnose`: gradients through time, gates, and attention weights of a network that reads a text.

The loss of predicting one token, L = -ln p(x_T | x_<T), is differentiated with respect to the embeddings and
hidden states of all steps before. A model declares the function that does so as `diagnosed_by`, a path MODULE:NAME:
it takes the model, the ids that are read, and the id that is predicted, and returns a `Trace`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.autodiff.tape_model import TapeModel, as_tape_model, kinds_on_tape
from chainrule.contract.lm import LanguageModel, start_token
from chainrule.errors import DiagnosisError
from chainrule.explanation.attention import rounded
from chainrule.explanation.reading import ids_and_target
from chainrule.explanation.trace import Trace
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
        """Return the diagnosis as sentences and tables, for a terminal of this width and for a notebook."""
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
        """Yield the results as flat records, for plots; gates and attention are rounded to six decimals."""
        yield {"what": "prediction", "step": len(self.tokens), "token": self.target, "nats": self.nats}
        norms: list[tuple[str, dict[str, Any], np.ndarray]]
        norms = [("gradient_norm", {"state": "embedding"}, self.embedding_gradient_T)]
        for what, named, by in (
            ("gradient_norm", self.state_gradients, {}),
            ("gradient_norm_alone", self.alone, {"by": self.alone_by}),
        ):
            for name, norms_LT in named.items():
                norms += [(what, {"layer": layer, "state": name} | by, one) for layer, one in enumerate(norms_LT)]
        for what, of, norms_T in norms:
            for step, token in enumerate(self.tokens):
                yield {"what": what, **of, "step": step, "token": token, "value": float(norms_T[step])}
        for name, layers in self.gates.items():
            for layer, values_TH in enumerate(layers):
                for step, (token, values_H) in enumerate(zip(self.tokens, values_TH, strict=True)):
                    place = {"layer": layer, "gate": name, "step": step, "token": token}
                    yield {"what": "gate", **place, "mean": float(values_H.mean()), "values": rounded(values_H)}
        if self.attention_LHTT is not None:
            for layer, head, query in np.ndindex(self.attention_LHTT.shape[:3]):
                place = {"layer": layer, "head": head, "query": query, "token": self.tokens[query]}
                # keys after the query have no weight
                weights = rounded(self.attention_LHTT[layer, head, query, : query + 1])
                yield {"what": "attention", **place, "weights": weights}

    @property
    def alone_by(self) -> str:
        """The factor of `alone`: the gates of a network that has some, or the recurrent matrix U."""
        return "gates" if self.gates else "U"

    def curves(self) -> dict[str, np.ndarray]:
        """Return the norms of the gradients by name, each [T]: of embeddings, of states by layer, of `alone`."""
        found = {"embedding": self.embedding_gradient_T}
        for ending, norms in (("", self.state_gradients), (f" by {self.alone_by} alone", self.alone)):
            for name, norms_LT in norms.items():
                found |= {f"{name}, layer {n}{ending}": norms_T for n, norms_T in enumerate(norms_LT)}
        return found

    def svg(self) -> str:
        """Return the norms of the gradients against the distance from the last step, by logarithms: an SVG file."""
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


# -- the picture of several models -----------------------------------------------------------------------------


def gradients_picture(diagnoses: Mapping[str, Diagnosis]) -> str:
    """Return the norms of gradients against the distance from the last step, of one or more models, as an SVG file.

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
