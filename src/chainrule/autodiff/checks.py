"""The checks that `chainrule gradcheck` runs: the gradients of every module, and of small networks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from chainrule.arrays import PAD
from chainrule.autodiff.networks.feedforward import TapeBagOfWords, TapeFeedforward
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import TapeQrnn, TapeRecurrent
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape import attention, convolution, losses, modules, moves, recurrence
from chainrule.autodiff.tape.gradcheck import GradientReport, check
from chainrule.autodiff.tape.nodes import Array, Node
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig, QrnnConfig, RecurrentConfig
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.system.progress import Reports, as_progress

_VOCABULARY = 7


@dataclass(frozen=True)
class Case:
    """A module or a network with small tensors by name: `build` applies it to them and returns the last module."""

    title: str
    """The name, then the variant, such as Linear without bias."""
    build: Callable[..., Module]
    tensors: dict[str, Array]

    @property
    def name(self) -> str:
        return self.title.split(" ")[0].rstrip(",")

    def check(self, *, eps: float = 1e-6, tolerance: float = 1e-6) -> GradientReport:
        return check(self.build, self.tensors, name=self.title, eps=eps, tolerance=tolerance)


def every_check(
    names: Sequence[str] = (),
    *,
    eps: float = 1e-6,
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: Reports = False,
) -> list[GradientReport]:
    """Run the checks of all modules and networks, or of those in `names`, and report on each.

    >>> [report] = every_check(["Sigmoid"])
    >>> report.passed
    True
    """
    known = check_names()
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise AutodiffError(f"there is no module {name!r}{hint} (there are: {', '.join(known)})")
    cases = [case for case in [*module_cases(seed), *network_cases(seed)] if not names or case.name in names]
    reports = []
    with as_progress(progress).task("checking", len(cases), "modules") as task:
        for case in cases:
            task.show(case.name)
            reports.append(case.check(eps=eps, tolerance=tolerance))
            task.advance(1)
    return reports


def check_names() -> list[str]:
    """Return the names of all modules and networks that `every_check` knows."""
    return list(dict.fromkeys(case.name for case in [*module_cases(), *network_cases()]))


def module_cases(seed: int = 0) -> Iterator[Case]:
    """Cases for each module."""
    rng = np.random.default_rng(seed % 2**64)
    parts = (_arithmetic, _convolutions, _attentions, _layers, _moves, _losses)
    for title, make, tensors in chain.from_iterable(part(_Draws(rng)) for part in parts):
        # one application is one module, so that each is made anew
        yield Case(title, lambda *inputs, make=make: make().apply_fwd(*inputs), tensors)


_Made = Iterator[tuple[str, Callable[[], Module], dict[str, Array]]]
"""The title of a case, what makes its module, and the tensors that the module takes."""


class _Draws:
    """Random tensors of a shape."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, *shape: int) -> Array:
        return self.rng.normal(size=shape)

    def positive(self, *shape: int) -> Array:
        return self.rng.uniform(0.5, 2, size=shape)


def _arithmetic(some: _Draws) -> _Made:
    yield "Linear", modules.Linear, {"x": some(2, 3, 4), "W": some(5, 4), "b": some(5)}
    yield "Linear without bias", modules.Linear, {"x": some(3, 4), "W": some(2, 4)}
    yield "MatMul", modules.MatMul, {"A": some(2, 3, 4), "B": some(2, 4, 5)}
    yield "MatMul, one B for all", modules.MatMul, {"A": some(2, 3, 4), "B": some(4, 5)}
    yield "Embedding", modules.Embedding, {"E": some(5, 3), "ids": np.array([[0, 4], [4, 2]])}
    yield "Sigmoid", modules.Sigmoid, {"x": some(3, 4)}
    yield "Tanh", modules.Tanh, {"x": some(3, 4)}
    x = some(3, 4)
    # away from 0, where max(0, x) has no derivative
    yield "ReLU", modules.ReLU, {"x": x + np.sign(x) * 0.1}
    yield "LeakyReLU", modules.LeakyReLU, {"x": x + np.sign(x) * 0.1}
    yield "GELU", modules.GELU, {"x": some(3, 4)}
    yield "ErfGELU", modules.ErfGELU, {"x": some(3, 4)}
    yield "Add", modules.Add, {"a": some(3, 4), "b": some(3, 4)}
    yield "Add, repeated", modules.Add, {"a": some(2, 3, 4), "b": some(3, 1)}
    yield "Multiply", modules.Multiply, {"a": some(3, 4), "b": some(3, 4)}
    yield "Multiply, repeated", modules.Multiply, {"a": some(4), "b": some(2, 3, 4)}
    yield "Scale", lambda: modules.Scale(-1, 1), {"x": some(3, 4)}
    yield "Sum", modules.Sum, {"x": some(3, 4)}
    yield "Sum of rows", lambda: modules.Sum(axis=0), {"x": some(3, 4)}
    yield "Mean", modules.Mean, {"x": some(3, 4)}
    yield "RunningMean", modules.RunningMean, {"x": some(2, 3, 4)}
    before = {"x": some(2, 3, 4), "s": some(2, 4), "n": np.array([2, 0])}
    yield "RunningMean, continued", modules.RunningMean, before
    yield "LayerNorm", modules.LayerNorm, {"x": some(2, 3, 5), "gain": some(5), "shift": some(5)}
    yield "LayerNorm without shift", modules.LayerNorm, {"x": some(3, 5), "gain": some(5)}
    yield "LayerNorm without gain", modules.LayerNorm, {"x": some(3, 5)}
    yield "RMSNorm", modules.RMSNorm, {"x": some(2, 3, 5), "gain": some(5)}
    yield "RMSNorm without gain", lambda: modules.RMSNorm(eps=0.1), {"x": some(3, 5)}
    yield "Exp", modules.Exp, {"x": some(3, 4)}
    yield "Log", modules.Log, {"x": some.positive(3, 4)}
    yield "Subtract", modules.Subtract, {"a": some(3, 4), "b": some(3, 4)}
    yield "Subtract, repeated", modules.Subtract, {"a": some(4), "b": some(2, 3, 1)}
    yield "Divide", modules.Divide, {"a": some(3, 4), "b": some.positive(3, 4)}
    yield "Divide, repeated", modules.Divide, {"a": some(), "b": -some.positive(2, 3, 1)}
    yield "Power", modules.Power, {"a": some.positive(3, 4), "b": some(3, 4)}
    yield "Power, repeated", modules.Power, {"a": some.positive(2, 1, 4), "b": some(3, 1)}
    # whole exponents are data, and then a may be negative
    yield (
        "Power, whole exponents",
        modules.Power,
        {"a": -some.positive(3, 4), "b": np.array([3, 2, 0, -1], np.int8)},
    )
    yield "Maximum", modules.Maximum, {"a": some(3, 4), "b": some(3, 4)}
    yield "Maximum, repeated", modules.Maximum, {"a": some(), "b": some(2, 3)}


def _convolutions(some: _Draws) -> _Made:
    convolve = convolution.Convolution
    images = {"x": some(2, 3, 5, 4), "alpha": some(2, 3, 3, 2), "beta": some(2)}
    yield "Convolution", convolve, images
    yield "Convolution, stride 2, padding 1", lambda: convolve(stride=2, padding=1), images
    yield "Convolution, dilation 2", lambda: convolve(dilation=2), images
    line = {"x": some(2, 7), "alpha": some(3, 2, 3)}
    yield "Convolution along one axis", lambda: convolve(stride=3, padding=2), line
    yield "Convolution of one entry", convolve, {"x": some(1, 1), "alpha": some(1, 1, 1)}
    image = {"x": some(2, 3, 5, 4)}
    pools: list[type[convolution.MaxPool | convolution.MeanPool]] = [convolution.MaxPool, convolution.MeanPool]
    for pool in pools:
        yield pool.name, partial(pool, 2, 2), image
        yield f"{pool.name}, overlapping", partial(pool, 3, 2, stride=1), image
        yield f"{pool.name} along one axis", partial(pool, 2), image


def _attentions(some: _Draws) -> _Made:
    yield "SplitHeads", lambda: attention.SplitHeads(2), {"x": some(2, 3, 8)}
    yield "MergeHeads", attention.MergeHeads, {"x": some(2, 4, 3, 2)}
    angles = some.rng.uniform(-3, 3, size=(3, 2))
    yield "Rotate", lambda: attention.Rotate(np.cos(angles), np.sin(angles)), {"x": some(2, 3, 4)}
    attend = attention.ScaledDotProductAttention
    yield "ScaledDotProductAttention", attend, {"q": some(2, 3, 4), "k": some(2, 5, 4), "v": some(2, 5, 3)}
    qkv = {name: some(2, 2, 3, 4) for name in "qkv"}
    yield "ScaledDotProductAttention, causal", lambda: attend(causal=True), qkv
    # two heads of queries share each of three heads of keys and values
    shared = {"q": some(3, 2, 4, 5), "k": some(3, 1, 4, 5), "v": some(3, 1, 4, 5)}
    yield "ScaledDotProductAttention, shared keys", lambda: attend(causal=True), shared
    options: Any = {"bias": some(2, 3, 3), "keep": 2.0 * some.rng.integers(0, 2, size=(2, 2, 3, 3))}
    yield "ScaledDotProductAttention, bias and dropout", lambda: attend(causal=True, **options), qkv


def _layers(some: _Draws) -> _Made:
    for title, layer, gates, parts in (
        ("ElmanLayer", recurrence.ElmanLayer, 1, "h"),
        ("LstmLayer", recurrence.LstmLayer, 4, "hc"),
        ("GruLayer", recurrence.GruLayer, 3, "h"),
        ("GruLayer, reset before", partial(recurrence.GruLayer, "before"), 3, "h"),
    ):
        states = {name: some(2, 3) for name in parts}
        weights = {"Wx": some(4, 2, 3 * gates), "U": some(3 * gates, 3), "d": some(3 * gates)}
        yield title, layer, {**weights, **states}
    weights = {"Wx": some(4, 2, 3), "U": some(3, 3), "d": some(3), "h": some(2, 3)}
    for activation in ("sigmoid", "leaky-relu"):
        yield f"ElmanLayer, {activation}", partial(recurrence.ElmanLayer, activation), weights
    yield "QrnnLayer", recurrence.QrnnLayer, {"sums": some(4, 2, 9), "c": some(2, 3)}


def _moves(some: _Draws) -> _Made:
    yield "Concat", moves.Concat, {"x1": some(3, 2), "x2": some(3, 1), "x3": some(3, 4)}
    yield "Stack", lambda: moves.Stack(axis=1), {"x1": some(3, 2), "x2": some(3, 2)}
    yield "Windows", moves.Windows, {"x": some(4, 2, 3), "before": some(2, 2, 3)}
    yield "Slice", lambda: moves.Slice(np.s_[..., 1:3]), {"x": some(2, 3, 4)}
    yield "Slice of one step", lambda: moves.Slice(np.s_[:, 1]), {"x": some(2, 3, 4)}
    yield "Reshape", lambda: moves.Reshape(2, -1), {"x": some(2, 3, 4)}
    yield "Transpose", moves.Transpose, {"x": some(2, 3, 4)}


def _losses(some: _Draws) -> _Made:
    yield "Softmax", losses.Softmax, {"z": some(3, 5)}
    targets, p = np.array([[1, 4, PAD], [0, 0, 3]]), some.rng.uniform(0.1, 1, size=(2, 3, 5))
    one_hot = np.eye(5, dtype=np.int64)[[[1, 4, 2], [0, 0, 3]]]
    yield "CrossEntropy", losses.CrossEntropy, {"p": p, "y": targets}
    yield "CrossEntropy, one-hot", losses.CrossEntropy, {"p": p, "y": one_hot}
    yield "CrossEntropy, one-hot first", losses.CrossEntropy, {"y": one_hot, "p": p}
    fused = losses.SoftmaxCrossEntropy
    yield "SoftmaxCrossEntropy", fused, {"z": some(2, 3, 5), "y": targets}
    yield "SoftmaxCrossEntropy, one-hot", fused, {"z": some(2, 3, 5), "y": one_hot}
    weighted = some.rng.uniform(size=(2, 3))
    yield (
        "SoftmaxCrossEntropy, weighted",
        lambda: fused(weights=weighted, count=4),
        {"z": some(2, 3, 5), "y": targets},
    )


def network_cases(seed: int = 0) -> Iterator[Case]:
    """Cases for each kind of network, small enough to check every weight."""
    rng = np.random.default_rng(seed % 2**64)
    small = RecurrentConfig(embedding=3, hidden=4, layers=1)
    qrnn = QrnnConfig(embedding=3, hidden=4, layers=2, kernel=3, learned_start=True)
    block = TransformerConfig(preset="gpt2", layers=1, width=4, heads=2, hidden=3, window=3)
    llama = replace(block, positions="rotary", norm="rmsnorm", activation="swiglu", kv_heads=1)
    feedforward = FeedforwardConfig(order=4, embedding=3, hidden=4, activation="tanh")
    bag_of_words = BagOfWordsConfig(embedding=3, hidden=4, layers=2, activation="tanh")
    designs: list[tuple[str, type[TapeNetwork], Any]] = [
        ("feedforward", TapeFeedforward, feedforward),
        ("bagofwords, two layers", TapeBagOfWords, bag_of_words),
        ("elman, not tied", TapeRecurrent, replace(small, cell="elman", tied=False)),
        ("lstm, two layers", TapeRecurrent, replace(small, cell="lstm", layers=2)),
        ("qrnn, two layers, learned start", TapeQrnn, qrnn),
        ("gru, reset before, one bias", TapeRecurrent, replace(small, cell="gru", reset="before", biases=1)),
        ("gru, learned start", TapeRecurrent, replace(small, cell="gru", learned_start=True)),
        ("transformer, gpt2", TapeTransformer, block),
        ("transformer, rotary, rmsnorm, swiglu, shared keys", TapeTransformer, llama),
    ]
    for title, kind, config in designs:
        # larger weights than training starts with: gradients near zero would pass any check
        tensors = {key: rng.normal(0, 0.5, shape) for key, shape in kind.shapes(config, _VOCABULARY).items()}
        yield Case(title, _loss_of(kind(config, _VOCABULARY, 1, tensors)), tensors)


def _loss_of(network: TapeNetwork) -> Callable[..., Module]:
    """Return a function of the network's parameters: its loss on a text whose second row ends in padding."""
    text_BT = np.array([[1, 4, 2, 6], [1, 5, 3, PAD]])

    def loss(*parameters: Node) -> Module:
        network.parameters = dict(zip(network.parameters, parameters, strict=True))  # type: ignore[arg-type]
        return network.loss(text_BT[:, :-1], text_BT[:, 1:]).module

    return loss
