"""From gradients to steps, in NumPy: the optimisers of the lectures, each with its equation above it.

They take the same steps as torch's (training/optim.py). η is the learning rate, g the gradient, w the weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from chainrule.autodiff.gradients import Array, SparseRows
from chainrule.autodiff.nodes import Parameter
from chainrule.training.plan import TrainingSettings, shrinks

_BLOCK = 1 << 14  # numbers: so few stay in the cache from one line of an equation to the next
_EPSILON = 1e-8
_SMOOTHING = 0.99  # of RMSprop


class Rule(ABC):
    """How weights change by a gradient. All arrays are changed in place; `g` and `spare` are scratch paper."""

    memories = 0
    """How many arrays it remembers of each parameter, zeros at first."""

    @abstractmethod
    def step(self, w: Array, g: Array, memory: list[Array], spare: Array, rate: float, count: int) -> None:
        """The count-th step of these weights, from 1."""


class Sgd(Rule):
    """Stochastic gradient descent."""

    def step(self, w: Array, g: Array, memory: list[Array], spare: Array, rate: float, count: int) -> None:
        # w ← w - η g
        g *= rate
        w -= g


class Momentum(Rule):
    """What was learned goes on, as a ball that rolls (Nesterov's way)."""

    memories = 1

    def __init__(self, kept: float) -> None:
        self.kept = kept

    def step(self, w: Array, g: Array, memory: list[Array], spare: Array, rate: float, count: int) -> None:
        (v,) = memory
        # v ← μ v + g
        v *= self.kept
        v += g
        # w ← w - η (g + μ v)
        np.multiply(v, self.kept, out=spare)
        spare += g
        spare *= rate
        w -= spare


class RmsProp(Rule):
    """Steps of one size for all weights, whatever the size of their gradients."""

    memories = 1

    def step(self, w: Array, g: Array, memory: list[Array], spare: Array, rate: float, count: int) -> None:
        (v,) = memory
        # v ← α v + (1 - α) g²
        _smooth_square(v, g, spare, _SMOOTHING)
        # w ← w - η g / (√v + ε)
        np.sqrt(v, out=spare)
        spare += _EPSILON
        g /= spare
        g *= rate
        w -= g


class Adam(Rule):
    """Momentum and RMSprop together (Kingma and Ba 2015); with a decay, that of AdamW."""

    memories = 2

    def __init__(self, first: float, second: float, decay: float = 0.0) -> None:
        self.first, self.second, self.decay = first, second, decay

    def step(self, w: Array, g: Array, memory: list[Array], spare: Array, rate: float, count: int) -> None:
        m, v = memory
        first, second = self.first, self.second
        if self.decay:
            # w ← (1 - η λ) w, beside the gradient and not in it (Loshchilov and Hutter 2019)
            w *= 1 - rate * self.decay
        # v ← β₂ v + (1 - β₂) g²
        _smooth_square(v, g, spare, second)
        # m ← β₁ m + (1 - β₁) g
        m *= first
        g *= 1 - first
        m += g
        # w ← w - η m̂ / (√v̂ + ε),  m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ): both begin with zeros
        np.sqrt(v, out=spare)
        spare *= 1 / math.sqrt(1 - second**count)
        spare += _EPSILON
        np.divide(m, spare, out=spare)
        spare *= rate / (1 - first**count)
        w -= spare


def _smooth_square(v: Array, g: Array, spare: Array, smoothing: float) -> None:
    np.square(g, out=spare)
    spare *= 1 - smoothing
    v *= smoothing
    v += spare


@dataclass
class _Slot:
    """A parameter, and what an optimiser knows of it."""

    parameter: Parameter
    rule: Rule
    l2: float
    """λ of a penalty λ/2 w², whose gradient is λ w."""
    count: int = 0
    memory: list[Array] = field(default_factory=list)
    dense: Array | None = None
    """Where rows of a table are put down, zeros elsewhere."""


class Optimiser:
    """Takes steps for parameters by the gradients that have flowed into them."""

    def __init__(self, parameters: Iterable[Parameter], settings: TrainingSettings) -> None:
        self.base, self.clip = settings.rate, settings.clip
        self.rate = 0.0
        named = [(parameter.name, parameter) for parameter in parameters]
        # without a head of its own, the table of the embeddings gives the logits
        also = {} if "head.weight" in dict(named) else {"embedding.weight": "head.weight"}
        self.slots = [_slot(also.get(name, name), parameter, settings) for name, parameter in named]
        types = {slot.parameter.out_tensor.dtype for slot in self.slots}
        self._spare = {dtype: (np.empty(_BLOCK, dtype), np.empty(_BLOCK, dtype)) for dtype in types}

    def step(self, factor: float) -> float:
        """A step at `factor` times the learning rate, which uses up the gradients. Their norm.

        If that is no finite number, nothing changes. A parameter into which nothing has flowed stays as it is.
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

    def _update(self, slot: _Slot, gradient: Array | SparseRows, scale: float) -> None:
        slot.count += 1
        table = slot.parameter.out_tensor
        if not isinstance(gradient, SparseRows):
            self._update_all(slot, gradient, scale)
        elif isinstance(slot.rule, Sgd) and not slot.l2:
            # where the gradient is 0, nothing changes: w ← w - η g for the rows that were read
            table[gradient.ids] -= gradient.rows * table.dtype.type(self.rate * scale)
        else:
            # others change every weight: what is remembered fades, or the weights shrink
            slot.dense = np.zeros_like(table) if slot.dense is None else slot.dense
            slot.dense[gradient.ids] = gradient.rows
            self._update_all(slot, slot.dense, scale)
            slot.dense[gradient.ids] = 0

    def _update_all(self, slot: _Slot, gradient: Array, scale: float) -> None:
        tensor = slot.parameter.out_tensor
        if not slot.memory:
            slot.memory = [np.zeros_like(tensor) for _ in range(slot.rule.memories)]
        g_block, spare_block = self._spare[tensor.dtype]
        for w, grad, *memory in _blocks(tensor, gradient, *slot.memory):
            g, spare = g_block[: len(w)], spare_block[: len(w)]
            np.multiply(grad, scale, out=g)
            if slot.l2:
                # g ← g + λ w
                np.multiply(w, slot.l2, out=spare)
                g += spare
            slot.rule.step(w, g, memory, spare, self.rate, slot.count)


def _slot(name: str, parameter: Parameter, settings: TrainingSettings) -> _Slot:
    betas = settings.beta1, settings.beta2
    decay = settings.decay if shrinks(name, parameter.out_tensor.ndim) else 0.0
    if settings.optimiser == "adamw":
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
    """The arrays, flat, some numbers at a time."""
    flat = [array.reshape(-1) for array in arrays]
    for low in range(0, len(flat[0]), _BLOCK):
        yield [array[low : low + _BLOCK] for array in flat]
