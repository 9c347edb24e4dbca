"""The gradient check: gradients of the backward pass, compared with estimates by finite differences.

A value y of any shape is reduced to a number f by a fixed random projection r, so that one backward pass gives all
gradients:

    f(x) = Σ r ⊙ y(x)        df/dx_i ≈ (f(x + ε e_i) - f(x - ε e_i)) / 2 ε

The error of a gradient a with estimate n is |a - n| / max(1, |a|, |n|): relative to the larger of the two, but
absolute where both are below 1, since a relative error of small gradients would show only rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff.tape.nodes import Array, Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module, Tape, no_grad
from chainrule.errors import AutodiffError


@dataclass(frozen=True)
class InputCheck:
    """The result for one input: the entry whose gradient is furthest from its estimate."""

    name: str
    shape: tuple[int, ...]
    entries: int
    """The number of entries that were checked."""
    error: float
    where: tuple[int, ...]
    analytic: float
    numeric: float
    passed: bool


@dataclass(frozen=True)
class GradientReport:
    """The result of a gradient check, for each input that has a gradient."""

    name: str
    inputs: tuple[InputCheck, ...]
    tolerance: float

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.inputs)

    @property
    def worst(self) -> InputCheck:
        """The input with the largest relative error."""
        return max(self.inputs, key=lambda one: one.error)

    @property
    def error(self) -> float:
        """The largest relative error."""
        return self.worst.error

    def __str__(self) -> str:
        title = f"{self.name}: {'pass' if self.passed else 'FAIL'} (tolerance {self.tolerance:g})"
        lines = (
            f"  {one.name} {list(one.shape)}: relative error {one.error:.1e} at {list(one.where)}, "
            f"backward gives {one.analytic:.9g}, a small step {one.numeric:.9g}"
            for one in self.inputs
        )
        return "\n".join([title, *lines])


def check(
    build: Callable[..., Module], tensors: Mapping[str, Array], *, name: str = "", **options: Any
) -> GradientReport:
    """Check the gradients of `build(*inputs)`, which applies modules to these tensors and returns the last module.

    Tensors that are not floating-point, such as ids, are data. The options are those of `check_parameters`.

    >>> from chainrule.autodiff import Tanh
    >>> print(check(lambda x: Tanh().apply_fwd(x), {"x": np.zeros(1)}).passed)
    True
    """
    nodes: list[Node] = []
    for key, tensor in tensors.items():
        is_data = np.asarray(tensor).dtype.kind != "f"
        nodes.append(Value(tensor, key) if is_data else Parameter(key, np.array(tensor, np.float64)))
    parameters = [node for node in nodes if isinstance(node, Parameter)]
    return check_parameters(lambda: build(*nodes), parameters, name=name, **options)


def check_parameters(
    build: Callable[[], Module],
    parameters: Sequence[Parameter],
    *,
    name: str = "",
    eps: float = 1e-6,
    tolerance: float = 1e-6,
    entries: int = 200,
    seed: int = 0,
) -> GradientReport:
    """Check the gradients of a whole network: `build()` runs its forward pass and returns its last module.

    At most `entries` entries of each parameter are checked, chosen at random. The values of the parameters are
    restored afterwards; their gradients are discarded.
    """
    if not parameters:
        raise AutodiffError("there is nothing to check: no input is of floating-point numbers")
    for what, value in (("eps", eps), ("tolerance", tolerance)):
        if not 0 < value < np.inf:
            raise AutodiffError(f"{what} should be a positive number, not {value}")
    for parameter in parameters:
        if parameter.out_tensor.dtype != np.float64:
            raise AutodiffError(
                f"{parameter.name}: finite differences need float64, not {parameter.out_tensor.dtype}: "
                "a small step would drown in rounding"
            )
    rng = np.random.default_rng(seed % 2**64)
    projection, gradients, title = _analytic(build, parameters, rng)

    def projected() -> float:
        with no_grad():
            return float(np.sum(projection * build().out_tensor))

    inputs = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        size = parameter.out_tensor.size
        chosen = np.sort(rng.choice(size, entries, replace=False)) if size > entries else np.arange(size)
        numeric = _numeric(projected, parameter, chosen, eps)
        inputs.append(_worst(parameter, chosen, gradient.reshape(-1)[chosen], numeric, tolerance))
    return GradientReport(name or title, tuple(inputs), tolerance)


def _analytic(
    build: Callable[[], Module], parameters: Sequence[Parameter], rng: np.random.Generator
) -> tuple[Array, list[Array], str]:
    """Return a random projection, the gradients of the backward pass from it, and the last module's name."""
    for parameter in parameters:
        parameter.forget()
    with Tape() as tape:
        last = build()
        if not tape.modules or tape.modules[-1] is not last:
            raise AutodiffError(f"{last.name}: what is checked should be the last module that was applied")
        projection = np.asarray(rng.normal(size=last.out_tensor.shape))
        tape.backward(projection)
    gradients = [parameter.dense_gradient().copy() for parameter in parameters]
    for parameter in parameters:
        parameter.forget()
    return projection, gradients, last.name


def _numeric(f: Callable[[], float], parameter: Parameter, chosen: Array, eps: float) -> Array:
    """Return (f(x + ε e_i) - f(x - ε e_i)) / 2 ε for each chosen entry i."""
    estimates = np.empty(len(chosen))
    tensor = parameter.out_tensor
    for n, i in enumerate(chosen):
        where = np.unravel_index(i, tensor.shape)
        before = tensor[where]
        try:
            tensor[where] = before + eps
            above = f()
            tensor[where] = before - eps
            below = f()
        finally:
            tensor[where] = before
        estimates[n] = (above - below) / (2 * eps)
    return estimates


def _worst(parameter: Parameter, chosen: Array, analytic: Array, numeric: Array, tolerance: float) -> InputCheck:
    """Return the entry with the largest error; an error that is no number counts as infinite."""
    errors = np.abs(analytic - numeric) / np.maximum(1, np.maximum(np.abs(analytic), np.abs(numeric)))
    errors = np.where(np.isnan(errors), np.inf, errors)
    name, shape = parameter.name, parameter.out_tensor.shape
    if not errors.size:
        return InputCheck(name, shape, 0, 0.0, (), 0.0, 0.0, True)
    worst = int(errors.argmax())
    where = tuple(int(axis) for axis in np.unravel_index(chosen[worst], shape))
    error, backward, step = (float(values[worst]) for values in (errors, analytic, numeric))
    return InputCheck(name, shape, len(chosen), error, where, backward, step, error <= tolerance)
