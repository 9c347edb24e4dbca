"""The equation that a module computes, as text, in the symbols of its inputs: a₃ = W a₂ + b."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chainrule.autodiff.tape import attention, losses, modules, moves, norms
from chainrule.autodiff.tape.tape import Module

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST = 4  # the longest list of names that is written in full


def subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)


def superscript(number: int) -> str:
    return str(number).translate(_SUPERSCRIPTS)


def right_side(module: Module, names: Sequence[str]) -> str:
    """The right-hand side of a module's equation, in the names of its inputs.

    A module of an unknown type is written as a function of its inputs.
    """
    write = _RIGHT_SIDES.get(type(module))
    return write(module, *names) if write else f"{module.name}({', '.join(names)})"


def _linear(module: Any, x: str, W: str, b: str = "") -> str:
    return f"{W} {x}" + (f" + {b}" if b else "")


def _slice(module: Any, x: str) -> str:
    where = module.where if isinstance(module.where, tuple) else (module.where,)
    return f"{x}[{', '.join(map(_part, where))}]"


def _part(where: Any) -> str:
    if where is Ellipsis:
        return "..."
    if not isinstance(where, slice):
        return str(where)
    ends = (where.start, where.stop) if where.step is None else (where.start, where.stop, where.step)
    return ":".join("" if end is None else str(end) for end in ends)


def _scale(module: Any, x: str) -> str:
    scaled = {1: x, -1: f"-{x}"}.get(module.factor, f"{module.factor:.4g} {x}")
    if not module.shift:
        return scaled
    # 1 - x rather than 1 + -x, as in the equations of the lectures
    rest = f"- {x}" if module.factor == -1 else f"+ {scaled}"
    return f"{module.shift:.4g} {rest}"


def _learned(normed: str, gain: str = "", shift: str = "") -> str:
    """A norm, with its gain and its shift if it has them."""
    return (f"{gain} ⊙ " if gain else "") + normed + (f" + {shift}" if shift else "")


def _attention(module: Any, q: str, k: str, v: str) -> str:
    bias = "" if module.bias is None else " + B"
    return f"softmax({q} {k}ᵀ / √d{bias}) {v}"


def _listed(*names: str) -> str:
    return "; ".join(names if len(names) <= _MOST else (*names[:2], "…", names[-1]))


_RIGHT_SIDES: dict[type[Module], Callable[..., str]] = {
    modules.Linear: _linear,
    modules.MatMul: lambda module, A, B: f"{A} {B}",
    modules.Embedding: lambda module, E, ids: f"{E}[{ids}]",
    modules.Sigmoid: lambda module, x: f"σ({x})",
    modules.Tanh: lambda module, x: f"tanh({x})",
    modules.ReLU: lambda module, x: f"max(0, {x})",
    modules.GELU: lambda module, x: f"gelu({x})",
    modules.ErfGELU: lambda module, x: f"{x} Φ({x})",
    modules.Add: lambda module, a, b: f"{a} + {b}",
    modules.Multiply: lambda module, a, b: f"{a} ⊙ {b}",
    modules.Scale: _scale,
    modules.Sum: lambda module, x: f"Σ {x}",
    modules.Mean: lambda module, x: f"Σ {x} / n",
    modules.RunningMean: lambda module, x, *before: f"mean({x})",
    norms.LayerNorm: lambda module, x, *learned: _learned(f"({x} - μ) / σ", *learned),
    norms.RMSNorm: lambda module, x, *learned: _learned(f"{x} / rms({x})", *learned),
    attention.SplitHeads: lambda module, x: f"heads({x})",
    attention.MergeHeads: lambda module, x: f"[{x}]",
    attention.Rotate: lambda module, x: f"rotate({x})",
    attention.ScaledDotProductAttention: _attention,
    moves.Concat: lambda module, *parts: f"[{_listed(*parts)}]",
    moves.Stack: lambda module, *steps: f"stack({_listed(*steps)})",
    moves.Slice: _slice,
    moves.Reshape: lambda module, x: f"reshape({x})",
    moves.Transpose: lambda module, x: f"{x}ᵀ",
    losses.Softmax: lambda module, z: f"softmax({z})",
    losses.CrossEntropy: lambda module, p, y: f"-ln {p}[{y}]",
    losses.SoftmaxCrossEntropy: lambda module, z, y: f"-ln softmax({z})[{y}]",
}
