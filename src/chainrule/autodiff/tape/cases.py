"""Small test cases for every module: inputs on which gradcheck.py checks its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD
from chainrule.autodiff.tape import attention, losses, modules, moves, norms
from chainrule.autodiff.tape.gradcheck import GradientReport, check
from chainrule.autodiff.tape.gradients import Array
from chainrule.autodiff.tape.tape import Module
from chainrule.errors import AutodiffError


@dataclass(frozen=True)
class Case:
    """A module, made anew by each call of `make`, and its input tensors by name."""

    title: str
    make: Callable[[], Module]
    tensors: dict[str, Array]

    @property
    def kind(self) -> type[Module]:
        return type(self.make())

    @property
    def name(self) -> str:
        return self.kind.name

    def check(self, *, eps: float = 1e-6, tolerance: float = 1e-6) -> GradientReport:
        return check(
            lambda *inputs: self.make().apply_fwd(*inputs),
            self.tensors,
            name=self.title,
            eps=eps,
            tolerance=tolerance,
        )


def all_cases(seed: int = 0) -> list[Case]:
    """All cases, at least one for every module; a module without a case is an error."""
    some = list(cases(seed))
    missing = module_classes() - {case.kind for case in some}
    if missing:
        raise AutodiffError(
            f"modules without a case in cases.py: {', '.join(sorted(kind.name for kind in missing))}"
        )
    return some


def module_classes() -> set[type[Module]]:
    """Every module class defined in modules.py, norms.py, attention.py, moves.py and losses.py."""
    return {
        kind
        for file in (modules, norms, attention, moves, losses)
        for _, kind in inspect.getmembers(file, inspect.isclass)
        if issubclass(kind, Module) and kind.__module__ == file.__name__
    }


def cases(seed: int = 0) -> Iterator[Case]:
    rng = np.random.default_rng(seed % 2**64)

    def some(*shape: int) -> Array:
        return rng.normal(size=shape)

    yield from _of_modules(some)
    yield from _of_norms(some)
    yield from _of_attention(some, rng)
    yield from _of_moves(some)
    yield from _of_losses(some, rng)


def _of_modules(some: Callable[..., Array]) -> Iterator[Case]:
    yield Case("Linear", modules.Linear, {"x": some(2, 3, 4), "W": some(5, 4), "b": some(5)})
    yield Case("Linear without bias", modules.Linear, {"x": some(3, 4), "W": some(2, 4)})
    yield Case("MatMul", modules.MatMul, {"A": some(2, 3, 4), "B": some(2, 4, 5)})
    yield Case("MatMul, one B for all", modules.MatMul, {"A": some(2, 3, 4), "B": some(4, 5)})
    yield Case("Embedding", modules.Embedding, {"E": some(5, 3), "ids": np.array([[0, 4], [4, 2]])})
    yield Case("Sigmoid", modules.Sigmoid, {"x": some(3, 4)})
    yield Case("Tanh", modules.Tanh, {"x": some(3, 4)})
    x = some(3, 4)
    # away from 0, where max(0, x) has no derivative
    yield Case("ReLU", modules.ReLU, {"x": x + np.sign(x) * 0.1})
    yield Case("GELU", modules.GELU, {"x": some(3, 4)})
    yield Case("ErfGELU", modules.ErfGELU, {"x": some(3, 4)})
    yield Case("Add", modules.Add, {"a": some(3, 4), "b": some(3, 4)})
    yield Case("Add, repeated", modules.Add, {"a": some(2, 3, 4), "b": some(3, 1)})
    yield Case("Multiply", modules.Multiply, {"a": some(3, 4), "b": some(3, 4)})
    yield Case("Multiply, repeated", modules.Multiply, {"a": some(4), "b": some(2, 3, 4)})
    yield Case("Scale", lambda: modules.Scale(-1, 1), {"x": some(3, 4)})
    yield Case("Sum", modules.Sum, {"x": some(3, 4)})
    yield Case("Sum of rows", lambda: modules.Sum(axis=0), {"x": some(3, 4)})
    yield Case("Mean", modules.Mean, {"x": some(3, 4)})
    yield Case("RunningMean", modules.RunningMean, {"x": some(2, 3, 4)})
    before = {"x": some(2, 3, 4), "s": some(2, 4), "n": np.array([2, 0])}
    yield Case("RunningMean, continued", modules.RunningMean, before)


def _of_norms(some: Callable[..., Array]) -> Iterator[Case]:
    yield Case("LayerNorm", norms.LayerNorm, {"x": some(2, 3, 5), "gain": some(5), "shift": some(5)})
    yield Case("LayerNorm without shift", norms.LayerNorm, {"x": some(3, 5), "gain": some(5)})
    yield Case("LayerNorm without gain", norms.LayerNorm, {"x": some(3, 5)})
    yield Case("RMSNorm", norms.RMSNorm, {"x": some(2, 3, 5), "gain": some(5)})
    yield Case("RMSNorm without gain", lambda: norms.RMSNorm(eps=0.1), {"x": some(3, 5)})


def _of_attention(some: Callable[..., Array], rng: np.random.Generator) -> Iterator[Case]:
    yield Case("SplitHeads", lambda: attention.SplitHeads(2), {"x": some(2, 3, 8)})
    yield Case("MergeHeads", attention.MergeHeads, {"x": some(2, 4, 3, 2)})
    angles = rng.uniform(-3, 3, size=(3, 2))
    yield Case("Rotate", lambda: attention.Rotate(np.cos(angles), np.sin(angles)), {"x": some(2, 3, 4)})
    attend = attention.ScaledDotProductAttention
    yield Case("ScaledDotProductAttention", attend, {"q": some(2, 3, 4), "k": some(2, 5, 4), "v": some(2, 5, 3)})
    qkv = {name: some(2, 2, 3, 4) for name in "qkv"}
    yield Case("ScaledDotProductAttention, causal", lambda: attend(causal=True), qkv)
    # two heads of queries share each of three heads of keys and values
    shared = {"q": some(3, 2, 4, 5), "k": some(3, 1, 4, 5), "v": some(3, 1, 4, 5)}
    yield Case("ScaledDotProductAttention, shared keys", lambda: attend(causal=True), shared)
    bias, keep = some(2, 3, 3), 2.0 * rng.integers(0, 2, size=(2, 2, 3, 3))
    yield Case(
        "ScaledDotProductAttention, bias and dropout", lambda: attend(causal=True, bias=bias, keep=keep), qkv
    )


def _of_moves(some: Callable[..., Array]) -> Iterator[Case]:
    yield Case("Concat", moves.Concat, {"x1": some(3, 2), "x2": some(3, 1), "x3": some(3, 4)})
    yield Case("Stack", lambda: moves.Stack(axis=1), {"x1": some(3, 2), "x2": some(3, 2)})
    yield Case("Slice", lambda: moves.Slice(np.s_[..., 1:3]), {"x": some(2, 3, 4)})
    yield Case("Slice of one step", lambda: moves.Slice(np.s_[:, 1]), {"x": some(2, 3, 4)})
    yield Case("Reshape", lambda: moves.Reshape(2, -1), {"x": some(2, 3, 4)})
    yield Case("Transpose", moves.Transpose, {"x": some(2, 3, 4)})


def _of_losses(some: Callable[..., Array], rng: np.random.Generator) -> Iterator[Case]:
    yield Case("Softmax", losses.Softmax, {"z": some(3, 5)})
    targets = np.array([[1, 4, PAD], [0, 0, 3]])
    p = rng.uniform(0.1, 1, size=(2, 3, 5))
    yield Case("CrossEntropy", losses.CrossEntropy, {"p": p, "y": targets})
    fused = losses.SoftmaxCrossEntropy
    yield Case("SoftmaxCrossEntropy", fused, {"z": some(2, 3, 5), "y": targets})
    weights = rng.uniform(size=(2, 3))
    yield Case(
        "SoftmaxCrossEntropy, weighted", lambda: fused(weights=weights, count=4), {"z": some(2, 3, 5), "y": targets}
    )
