"""The optimisers of the lectures, in NumPy, each update under the equation that it computes.

They take the same steps as the torch optimisers of training/optimisers.py. η is the learning rate, g the
gradient, w the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from chainrule.autodiff import Array, Parameter, SparseRows
from chainrule.networks.training_settings import (
    MUON_ITERATIONS,
    MUON_MOMENTUM,
    MUON_POLYNOMIAL,
    MUON_TINY,
    TrainingSettings,
    is_between_features,
    muon_size,
    shrinks,
)

_BLOCK = 1 << 14  # weights updated at a time: few enough to stay in the CPU cache throughout an update
_EPSILON = 1e-8
_SMOOTHING = 0.99  # α of RMSprop


class Rule(NamedTuple):
    """An update rule: how a gradient changes the weights."""

    step: Callable[[Array, Array, list[Array], Array, float, int], None]
    """Take a step of the weights w, from a gradient g, the moments, a spare array, the rate and the step's number.

    Steps are counted from 1. w and the moments are updated in place; g and the spare array may be overwritten.
    """
    moments: int = 0
    """The number of arrays that the rule keeps for each parameter from step to step, initially zeros."""
    by_block: bool = True
    """Each weight has its own step, so that a few are updated at a time; else all of a parameter together."""


def sgd(w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
    """Stochastic gradient descent."""
    # w ← w - η g
    g *= rate
    w -= g


def momentum(
    w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int, *, kept: float
) -> None:
    """Gradient descent with Nesterov momentum: steps along a decaying sum of past gradients, as a ball rolls on."""
    (v,) = moments
    # v ← μ v + g
    v *= kept
    v += g
    # w ← w - η (g + μ v)
    np.multiply(v, kept, out=spare)
    spare += g
    spare *= rate
    w -= spare


def rmsprop(w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
    """Gradients divided by their running root mean square, so that all weights take steps of a similar size."""
    (v,) = moments
    # v ← α v + (1 - α) g²
    _smooth_square(v, g, spare, _SMOOTHING)
    # w ← w - η g / (√v + ε)
    np.sqrt(v, out=spare)
    spare += _EPSILON
    g /= spare
    g *= rate
    w -= g


def adam(
    w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int,
    *, first: float, second: float, decay: float = 0.0,
) -> None:  # fmt: skip
    """Momentum and RMSprop together (Kingma and Ba 2015); with a decay, AdamW."""
    m, v = moments
    if decay:
        # w ← (1 - η λ) w, decoupled from the gradient (Loshchilov and Hutter 2019)
        w *= 1 - rate * decay
    # v ← β₂ v + (1 - β₂) g²
    _smooth_square(v, g, spare, second)
    # m ← β₁ m + (1 - β₁) g
    m *= first
    g *= 1 - first
    m += g
    # w ← w - η m̂ / (√v̂ + ε),  m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ), since m and v start at 0
    np.sqrt(v, out=spare)
    spare *= 1 / math.sqrt(1 - second**count)
    spare += _EPSILON
    np.divide(m, spare, out=spare)
    spare *= rate / (1 - first**count)
    w -= spare


def muon(w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int, *, decay: float) -> None:
    """Momentum, made orthogonal: a step moves all directions of a matrix alike (Jordan et al. 2024)."""
    (m,) = moments
    # m ← μ m + (1 - μ) g
    m *= MUON_MOMENTUM
    g *= 1 - MUON_MOMENTUM
    m += g
    # w ← (1 - η λ) w - 0.2 η √max(rows, columns) U Vᵀ,  U S Vᵀ = μ m + (1 - μ) g
    np.multiply(m, MUON_MOMENTUM, out=spare)
    spare += g
    w *= 1 - rate * decay
    w -= muon_size(w.shape) * rate * orthogonal(spare)


def orthogonal(matrix: Array) -> Array:
    """Return about U Vᵀ, where the matrix is U S Vᵀ: all singular values become about 1.

    >>> np.linalg.svd(orthogonal(np.diag([1.0, 2.0, 3.0])))[1].round(1)
    array([1.1, 0.7, 0.7])
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    X = matrix.T if is_tall else matrix
    X = X / max(float(np.linalg.norm(X)), MUON_TINY)
    a, b, c = MUON_POLYNOMIAL
    for _ in range(MUON_ITERATIONS):
        # X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X moves singular values towards 1
        gram = X @ X.T
        X = a * X + (b * gram + c * (gram @ gram)) @ X
    return X.T if is_tall else X


def _smooth_square(v: Array, g: Array, spare: Array, smoothing: float) -> None:
    np.square(g, out=spare)
    spare *= 1 - smoothing
    v *= smoothing
    v += spare


@dataclass
class _Slot:
    """A parameter with its update rule and the state of its optimisation."""

    parameter: Parameter
    rule: Rule
    l2: float
    """λ of a penalty λ/2 w², whose gradient is λ w."""
    count: int = 0
    moments: list[Array] = field(default_factory=list)
    dense: Array | None = None
    """A buffer in which a sparse gradient is made dense; all zeros between steps."""


class Optimiser:
    """Updates parameters by the gradients that they have accumulated."""

    def __init__(
        self, parameters: Iterable[Parameter], settings: TrainingSettings, table: str = "embedding.weight"
    ) -> None:
        """`table` is the name of the embedding table."""
        self.base, self.clip = settings.rate, settings.clip
        self.rate = 0.0
        named = [(parameter.name, parameter) for parameter in parameters]
        # with tied weights the embedding table also computes the logits, so it decays as the head does
        also = {} if "head.weight" in dict(named) else {table: "head.weight"}
        self.slots = [_slot(also.get(name, name), parameter, settings) for name, parameter in named]
        types = {slot.parameter.out_tensor.dtype for slot in self.slots}
        self._spare = {dtype: (np.empty(_BLOCK, dtype), np.empty(_BLOCK, dtype)) for dtype in types}

    def step(self, factor: float) -> float:
        """Take a step at `factor` times the learning rate, discard the gradients, and return their norm.

        If the norm is not finite, no parameter changes. A parameter without a gradient stays as it is.
        """
        self.rate = self.base * factor
        gradients = ((slot, slot.parameter.out_gradient) for slot in self.slots)
        found = [(slot, g.merged() if isinstance(g, SparseRows) else g) for slot, g in gradients if g is not None]
        # ||g|| = √Σ g², over all parameters
        flat = [(g.rows if isinstance(g, SparseRows) else g).reshape(-1) for _, g in found]
        norm = math.sqrt(sum(float(np.dot(numbers, numbers)) for numbers in flat))
        if math.isfinite(norm):
            # g ← g · min(1, clip / ||g||)
            scale = min(1.0, self.clip / (norm + 1e-6)) if self.clip else 1.0
            for slot, gradient in found:
                self._update(slot, gradient, scale)
        for slot in self.slots:
            slot.parameter.forget()
        return norm

    def arrays(self) -> dict[str, Array]:
        """Return the moments of each parameter, by PARAMETER.NUMBER, for a checkpoint."""
        return {
            f"{slot.parameter.name}.{number}": moment
            for slot in self.slots
            for number, moment in enumerate(slot.moments)
        }

    def counts(self) -> dict[str, int]:
        """Return how many steps each parameter has taken, for a checkpoint."""
        return {slot.parameter.name: slot.count for slot in self.slots}

    def load(self, arrays: Mapping[str, Array], counts: Mapping[str, int]) -> None:
        """Continue with the moments and counts of a checkpoint."""
        for slot in self.slots:
            slot.count = counts[slot.parameter.name]
            names = [f"{slot.parameter.name}.{number}" for number in range(slot.rule.moments)]
            slot.moments = [np.array(arrays[name]) for name in names if name in arrays]

    def _update(self, slot: _Slot, gradient: Array | SparseRows, scale: float) -> None:
        slot.count += 1
        table = slot.parameter.out_tensor
        if not isinstance(gradient, SparseRows):
            self._update_all(slot, gradient, scale)
        elif slot.rule.step is sgd and not slot.l2:
            # w ← w - η g, for the rows that were read only: elsewhere g is 0 and nothing changes
            table[gradient.ids] -= gradient.rows * table.dtype.type(self.rate * scale)
        else:
            # other rules change every weight even where g is 0: their running averages or the weights decay
            slot.dense = np.zeros_like(table) if slot.dense is None else slot.dense
            slot.dense[gradient.ids] = gradient.rows
            self._update_all(slot, slot.dense, scale)
            slot.dense[gradient.ids] = 0

    def _update_all(self, slot: _Slot, gradient: Array, scale: float) -> None:
        tensor = slot.parameter.out_tensor
        if not slot.moments:
            slot.moments = [np.zeros_like(tensor) for _ in range(slot.rule.moments)]
        if not slot.rule.by_block:
            slot.rule.step(tensor, gradient * scale, slot.moments, np.empty_like(tensor), self.rate, slot.count)
            return
        g_block, spare_block = self._spare[tensor.dtype]
        for w, grad, *moments in _blocks(tensor, gradient, *slot.moments):
            g, spare = g_block[: len(w)], spare_block[: len(w)]
            np.multiply(grad, scale, out=g)
            if slot.l2:
                # g ← g + λ w
                np.multiply(w, slot.l2, out=spare)
                g += spare
            slot.rule.step(w, g, moments, spare, self.rate, slot.count)


def _slot(name: str, parameter: Parameter, settings: TrainingSettings) -> _Slot:
    axes, chosen = parameter.out_tensor.ndim, settings.optimiser
    decay = settings.decay if shrinks(name, axes) else 0.0
    if chosen == "muon" and is_between_features(name, axes):
        return _Slot(parameter, Rule(partial(muon, decay=settings.decay), 1, by_block=False), 0.0)
    with_betas = partial(adam, first=settings.beta1, second=settings.beta2)
    if chosen in ("adamw", "muon"):
        return _Slot(parameter, Rule(partial(with_betas, decay=decay), 2), 0.0)
    rules = {
        "sgd": Rule(sgd),
        "momentum": Rule(partial(momentum, kept=settings.beta1), 1),
        "rmsprop": Rule(rmsprop, 1),
        "adam": Rule(with_betas, 2),
    }
    return _Slot(parameter, rules[chosen], decay)


def _blocks(*arrays: Array) -> Iterator[list[Array]]:
    """Flat views of arrays of one size, in blocks of at most _BLOCK numbers of each."""
    flat = [array.reshape(-1) for array in arrays]
    for low in range(0, len(flat[0]), _BLOCK):
        yield [array[low : low + _BLOCK] for array in flat]
