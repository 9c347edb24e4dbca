"""The optimisers of the lectures, in NumPy, each update under the equation that it computes.

They take the same steps as the torch optimisers of training/optimisers.py. η is the learning rate, g the
gradient, w the weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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


class Rule(ABC):
    """An update rule: how a gradient changes the weights."""

    moments = 0
    """The number of arrays that the rule keeps for each parameter from step to step, initially zeros."""
    by_block = True
    """Each weight has its own step, so that a few are updated at a time; else all of a parameter together."""

    @abstractmethod
    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        """Take step number `count`, from 1, of the weights `w`: `w` and `moments` are updated in place.

        `g`, the gradient, and `spare` are scratch space, which may be overwritten.
        """


class Sgd(Rule):
    """Stochastic gradient descent."""

    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        # w ← w - η g
        g *= rate
        w -= g


class Momentum(Rule):
    """Gradient descent with Nesterov momentum: steps along a decaying sum of past gradients, as a ball rolls on."""

    moments = 1

    def __init__(self, kept: float) -> None:
        self.kept = kept

    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        (v,) = moments
        # v ← μ v + g
        v *= self.kept
        v += g
        # w ← w - η (g + μ v)
        np.multiply(v, self.kept, out=spare)
        spare += g
        spare *= rate
        w -= spare


class RmsProp(Rule):
    """Gradients divided by their running root mean square, so that all weights take steps of a similar size."""

    moments = 1

    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        (v,) = moments
        # v ← α v + (1 - α) g²
        _smooth_square(v, g, spare, _SMOOTHING)
        # w ← w - η g / (√v + ε)
        np.sqrt(v, out=spare)
        spare += _EPSILON
        g /= spare
        g *= rate
        w -= g


class Adam(Rule):
    """Momentum and RMSprop together (Kingma and Ba 2015); with a decay, AdamW."""

    moments = 2

    def __init__(self, first: float, second: float, decay: float = 0.0) -> None:
        self.first, self.second, self.decay = first, second, decay

    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        m, v = moments
        first, second = self.first, self.second
        if self.decay:
            # w ← (1 - η λ) w, decoupled from the gradient (Loshchilov and Hutter 2019)
            w *= 1 - rate * self.decay
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


class Muon(Rule):
    """Momentum, made orthogonal: a step moves all directions of a matrix alike (Jordan et al. 2024)."""

    moments, by_block = 1, False

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def step(self, w: Array, g: Array, moments: list[Array], spare: Array, rate: float, count: int) -> None:
        (m,) = moments
        kept = MUON_MOMENTUM
        # m ← μ m + (1 - μ) g
        m *= kept
        g *= 1 - kept
        m += g
        # w ← (1 - η λ) w - 0.2 η √max(rows, columns) U Vᵀ,  U S Vᵀ = μ m + (1 - μ) g
        np.multiply(m, kept, out=spare)
        spare += g
        w *= 1 - rate * self.decay
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
        found = [(slot, _merged(slot.parameter)) for slot in self.slots if slot.parameter.out_gradient is not None]
        # ||g|| = √Σ g², over all parameters
        norm = math.sqrt(sum(_squared(gradient) for _, gradient in found))
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
        elif isinstance(slot.rule, Sgd) and not slot.l2:
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
    betas = settings.beta1, settings.beta2
    decay = settings.decay if shrinks(name, parameter.out_tensor.ndim) else 0.0
    if settings.optimiser == "muon" and is_between_features(name, parameter.out_tensor.ndim):
        return _Slot(parameter, Muon(settings.decay), 0.0)
    if settings.optimiser in ("adamw", "muon"):
        return _Slot(parameter, Adam(*betas, decay), 0.0)
    rules = {"sgd": Sgd(), "momentum": Momentum(settings.beta1), "rmsprop": RmsProp(), "adam": Adam(*betas)}
    return _Slot(parameter, rules[settings.optimiser], decay)


def _merged(parameter: Parameter) -> Array | SparseRows:
    gradient = parameter.out_gradient
    assert gradient is not None
    return gradient.merged() if isinstance(gradient, SparseRows) else gradient


def _squared(gradient: Array | SparseRows) -> float:
    flat = (gradient.rows if isinstance(gradient, SparseRows) else gradient).reshape(-1)
    return float(np.dot(flat, flat))


def _blocks(*arrays: Array) -> Iterator[list[Array]]:
    """Flat views of arrays of one size, in blocks of at most _BLOCK numbers of each."""
    flat = [array.reshape(-1) for array in arrays]
    for low in range(0, len(flat[0]), _BLOCK):
        yield [array[low : low + _BLOCK] for array in flat]
