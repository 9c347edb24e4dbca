"""How to choose the next token: small frozen values that compose.

Each takes ln p of every token, [B, V], and gives them back changed; a token at -inf cannot be chosen. What is
left is sampled from, so that Greedy, which leaves one token, needs no loop of its own.

>>> Temperature(0.7) | TopK(50) | TopP(0.9)
Chain(strategies=(Temperature(value=0.7), TopK(k=50), TopP(p=0.9)))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, impossible, without
from chainrule.decode.top import reaching_top
from chainrule.errors import DecodingError

Read: TypeAlias = Callable[[], Array]
"""What was read and written so far; a function, so that strategies that do not look back do not pay for it."""

COLDEST = 1e-6
"""Temperatures below are greedy: p^(1/T) is 0 or 1 in any precision."""


class Strategy(ABC):
    """A step from what the model says to what is sampled from."""

    @abstractmethod
    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        """The changed ln p, not necessarily summing to one; `read()` gives the ids so far, [B, T]."""

    def __or__(self, other: Strategy) -> Chain:
        """This, and then the other."""
        left = self.strategies if isinstance(self, Chain) else (self,)
        right = other.strategies if isinstance(other, Chain) else (other,)
        return Chain((*left, *right))


@dataclass(frozen=True)
class Sample(Strategy):
    """As the model says: x ~ p."""

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return log_probs_BV


@dataclass(frozen=True)
class Chain(Strategy):
    """One strategy after the other."""

    strategies: tuple[Strategy, ...]

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        for strategy in self.strategies:
            log_probs_BV = strategy.apply(log_probs_BV, read)
        return log_probs_BV


@dataclass(frozen=True)
class Greedy(Strategy):
    """x = argmax p; the lowest id among equals."""

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        best_B1 = xp.argmax(log_probs_BV, axis=-1, keepdims=True)
        every_V = xp.arange(log_probs_BV.shape[-1], device=log_probs_BV.device)
        return xp.where(every_V == best_B1, log_probs_BV, impossible(log_probs_BV))


@dataclass(frozen=True)
class Temperature(Strategy):
    """q ∝ p^(1/T): below 1 sharper, above 1 flatter, at 0 greedy."""

    value: float

    def __post_init__(self) -> None:
        _require(0 <= self.value < math.inf, "temperature", "at least 0", self.value)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        if self.value < COLDEST:
            return Greedy().apply(log_probs_BV, read)
        xp = array_namespace(log_probs_BV)
        # from the best down, so that the best stays at 0 however low the temperature
        return (log_probs_BV - xp.max(log_probs_BV, axis=-1, keepdims=True)) / self.value


@dataclass(frozen=True)
class TopK(Strategy):
    """Only the k most likely tokens; the lowest ids among equals."""

    k: int

    def __post_init__(self) -> None:
        _require(self.k >= 1, "top-k", "at least 1", self.k)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return _keep(log_probs_BV, reaching_top(log_probs_BV, self.k))


@dataclass(frozen=True)
class TopP(Strategy):
    """The nucleus: the fewest most likely tokens whose probabilities sum to at least p."""

    p: float

    def __post_init__(self) -> None:
        _require(0 < self.p <= 1, "top-p", "above 0 and at most 1", self.p)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        if self.p == 1:
            return log_probs_BV
        xp = array_namespace(log_probs_BV)
        order_BV = xp.argsort(log_probs_BV, axis=-1, descending=True, stable=True)
        prob_BV = xp.exp(normalize(xp.astype(log_probs_BV, xp.float64)))
        sorted_BV = xp.take_along_axis(prob_BV, order_BV, axis=-1)
        # a token is in if those before it do not make up p yet (0.5 + 0.3 makes up 0.8, however it is rounded)
        before_BV = xp.cumulative_sum(sorted_BV, axis=-1) - sorted_BV
        inside_BV = before_BV < self.p * (1 - 1e-9)
        return _keep(log_probs_BV, xp.take_along_axis(inside_BV, xp.argsort(order_BV, axis=-1), axis=-1))


@dataclass(frozen=True)
class MinP(Strategy):
    """Only tokens at least p times as likely as the most likely one."""

    p: float

    def __post_init__(self) -> None:
        _require(0 <= self.p <= 1, "min-p", "between 0 and 1", self.p)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        if self.p == 0:
            return log_probs_BV
        xp = array_namespace(log_probs_BV)
        best_B1 = xp.max(log_probs_BV, axis=-1, keepdims=True)
        return _keep(log_probs_BV, log_probs_BV >= best_B1 + math.log(self.p))


@dataclass(frozen=True)
class RepetitionPenalty(Strategy):
    """q ∝ p / r for tokens that occurred before; r above 1 makes them less likely."""

    value: float

    def __post_init__(self) -> None:
        _require(0 < self.value < math.inf, "repetition penalty", "above 0", self.value)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        ids_BT = read()
        rows_BT = xp.broadcast_to(xp.arange(ids_BT.shape[0], device=ids_BT.device)[:, None], ids_BT.shape)
        occurred = ids_BT != PAD
        seen_BV = xp.zeros(log_probs_BV.shape, dtype=xp.bool, device=log_probs_BV.device)
        seen_BV[rows_BT[occurred], ids_BT[occurred]] = True
        return xp.where(seen_BV, log_probs_BV - math.log(self.value), log_probs_BV)


@dataclass(frozen=True)
class Forbid(Strategy):
    """Never these tokens."""

    tokens: tuple[int, ...]

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return without(log_probs_BV, self.tokens)


def looks_back(strategy: Strategy) -> bool:
    """Whether what it does depends on what was read and written before."""
    if isinstance(strategy, Chain):
        return any(looks_back(part) for part in strategy.strategies)
    return not isinstance(strategy, (Sample, Greedy, Temperature, TopK, TopP, MinP, Forbid))


def only_forbids(strategy: Strategy) -> tuple[int, ...] | None:
    """What a strategy forbids if it otherwise leaves everything to the model; None if it does more."""
    if isinstance(strategy, Sample):
        return ()
    if isinstance(strategy, Forbid):
        return strategy.tokens
    if isinstance(strategy, Chain):
        parts = [only_forbids(part) for part in strategy.strategies]
        return None if None in parts else tuple(token for part in parts for token in part or ())
    return None


@dataclass(frozen=True)
class Beam:
    """Not sampling: the most likely text among those that `width` hypotheses reach (see beam.py)."""

    width: int = 4
    length_power: float = 1.0
    """Hypotheses are ranked by ln p / length^power: 0 favours short ones, 1 ranks by the mean."""

    def __post_init__(self) -> None:
        _require(self.width >= 1, "the number of beams", "at least 1", self.width)
        _require(0 <= self.length_power <= 10, "the length power", "between 0 and 10", self.length_power)


def normalize(log_probs_BV: Array) -> Array:
    """ln p that sums to one: x - ln Σ e^x."""
    xp = array_namespace(log_probs_BV)
    best_B1 = xp.max(log_probs_BV, axis=-1, keepdims=True)
    total_B1 = xp.sum(xp.exp(log_probs_BV - best_B1), axis=-1, keepdims=True)
    return log_probs_BV - best_B1 - xp.log(total_B1)


def _keep(log_probs_BV: Array, kept_BV: Array) -> Array:
    xp = array_namespace(log_probs_BV)
    return xp.where(kept_BV, log_probs_BV, impossible(log_probs_BV))


def _require(holds: bool, what: str, expected: str, found: float) -> None:
    if not holds:
        raise DecodingError(f"{what} should be {expected}, not {found}")
