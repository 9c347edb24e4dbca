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
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, Array, array_namespace, impossible, without
from chainrule.decode.top import reaching_share, reaching_top
from chainrule.errors import DecodingError

Operations: TypeAlias = tuple[tuple[str, Any], ...]
Read: TypeAlias = Callable[[], Array]
"""Returns the ids read and written so far; a function, so that only strategies that look back pay for it."""

Ending: TypeAlias = Literal["any", "best"]

COLDEST = 1e-6
"""Temperatures below this are greedy: p^(1/T) is 0 or 1 in any precision."""


LARGEST_PENALTY = 1e6
"""Penalties above this would leave the range of float32, where ln p becomes infinite or NaN."""


class Strategy(ABC):
    """A step from the distribution of the model to the one that is sampled from.

    A strategy itself says whether it looks back and which named operations it consists of, so that decoding never
    asks for its class.
    """

    looks_back: ClassVar[bool] = True
    """True if `apply` depends on the ids before; a strategy that does not can be captured in a CUDA graph."""
    by_probability: ClassVar[bool] = False
    """True if `apply` depends on probabilities alone, and not on which token has which."""
    on_logits: ClassVar[bool] = False
    """True if `apply` takes the logits of a model that has some: other strategies give the same for both."""
    operation: ClassVar[str | None] = None
    """The name of a strategy of one field as an operation with that value; None if it has no such form."""

    @abstractmethod
    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        """The changed ln p, not necessarily summing to one; `read()` gives the ids so far, [B, T]."""

    def operations(self) -> Operations | None:
        """The strategy as named operations with values (see `capabilities.Choose`); None if it has no such form."""
        return None if self.operation is None else ((self.operation, *vars(self).values()),)

    def among(self, tokens_V: NDArray[np.int64]) -> Strategy | None:
        """This strategy where the columns are these tokens alone, in order, and no other is possible.

        None if it cannot be told: a strategy that looks back knows tokens by their ids.
        """
        return self if self.by_probability else None

    def __or__(self, other: Strategy) -> Chain:
        """A chain of this strategy and then the other."""
        left = self.strategies if isinstance(self, Chain) else (self,)
        right = other.strategies if isinstance(other, Chain) else (other,)
        return Chain((*left, *right))


class ByProbability(Strategy):
    """A strategy that depends on probabilities alone: not on the ids before, nor on which token has which."""

    looks_back: ClassVar[bool] = False
    by_probability: ClassVar[bool] = True


@dataclass(frozen=True)
class Sample(ByProbability):
    """The distribution of the model, unchanged: x ~ p."""

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return log_probs_BV

    def operations(self) -> Operations:
        return ()


@dataclass(frozen=True)
class Chain(Strategy):
    """One strategy after the other."""

    strategies: tuple[Strategy, ...]

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        for strategy in self.strategies:
            log_probs_BV = strategy.apply(log_probs_BV, read)
        return log_probs_BV

    @property
    def looks_back(self) -> bool:  # type: ignore[override]
        return any(strategy.looks_back for strategy in self.strategies)

    @property
    def on_logits(self) -> bool:  # type: ignore[override]
        return any(strategy.on_logits for strategy in self.strategies)

    def operations(self) -> Operations | None:
        parts = [strategy.operations() for strategy in self.strategies]
        return None if None in parts else tuple(operation for part in parts for operation in part or ())

    def among(self, tokens_V: NDArray[np.int64]) -> Strategy | None:
        parts = [part for strategy in self.strategies if (part := strategy.among(tokens_V)) is not None]
        return Chain(tuple(parts)) if len(parts) == len(self.strategies) else None


@dataclass(frozen=True)
class Greedy(ByProbability):
    """x = argmax p; the lowest id among equals."""

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        best_B1 = xp.argmax(log_probs_BV, axis=-1, keepdims=True)
        every_V = xp.arange(log_probs_BV.shape[-1], device=log_probs_BV.device)
        return xp.where(every_V == best_B1, log_probs_BV, impossible(log_probs_BV))

    def operations(self) -> Operations:
        return (("top_k", 1),)


@dataclass(frozen=True)
class Temperature(ByProbability):
    """q ∝ p^(1/T): below 1 sharper, above 1 flatter, at 0 greedy."""

    value: float

    def __post_init__(self) -> None:
        _require(0 <= self.value < math.inf, "temperature", "a finite number, at least 0", self.value)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        if self.value < COLDEST:
            return Greedy().apply(log_probs_BV, read)
        # relative to the best token, which stays at 0 however low the temperature
        return (log_probs_BV - _best(log_probs_BV)) / self.value

    def operations(self) -> Operations:
        return (("temperature", self.value),) if self.value >= COLDEST else (("top_k", 1),)


@dataclass(frozen=True)
class TopK(ByProbability):
    """Only the k most likely tokens; the lowest ids among equals."""

    operation: ClassVar[str] = "top_k"
    k: int

    def __post_init__(self) -> None:
        _require(self.k >= 1, "top-k", "at least 1", self.k)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return _keep(log_probs_BV, reaching_top(log_probs_BV, self.k))


@dataclass(frozen=True)
class TopP(ByProbability):
    """The nucleus: the fewest most likely tokens whose probabilities sum to at least p."""

    operation: ClassVar[str] = "top_p"
    p: float

    def __post_init__(self) -> None:
        _require(0 < self.p <= 1, "top-p", "above 0 and at most 1", self.p)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        if self.p == 1:
            return log_probs_BV
        xp = array_namespace(log_probs_BV)
        prob_BV = xp.exp(normalised(xp.astype(log_probs_BV, xp.float64)))
        return _keep(log_probs_BV, reaching_share(log_probs_BV, prob_BV, self.p))


@dataclass(frozen=True)
class MinP(ByProbability):
    """Only tokens at least p times as likely as the most likely one."""

    operation: ClassVar[str] = "min_p"
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
    """The penalty of Keskar et al. (2019, CTRL) on tokens that occurred: a score s becomes s / r, or s · r below 0.

    The scores are the logits of a network, as in transformers. Other models (n-grams, mixtures) have none, and
    neither has the choice of how a prompt ends (healing.py). There the scores are ln p, which are not above 0: so
    q ∝ p^r. In both cases r above 1 makes tokens less likely.
    """

    on_logits: ClassVar[bool] = True
    operation: ClassVar[str] = "repetition_penalty"
    value: float

    def __post_init__(self) -> None:
        _require(
            0 < self.value <= LARGEST_PENALTY, "repetition penalty", "above 0 and at most a million", self.value
        )

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        penalised_BV = xp.where(log_probs_BV > 0, log_probs_BV / self.value, log_probs_BV * self.value)
        return xp.where(_counts(read(), log_probs_BV) > 0, penalised_BV, log_probs_BV)


@dataclass(frozen=True)
class _AddedPenalty(Strategy):
    """A penalty that is subtracted from ln p of tokens that occurred."""

    operation: ClassVar[str]
    value: float

    def __post_init__(self) -> None:
        _require_penalty(self.operation.replace("_", " "), self.value)


@dataclass(frozen=True)
class PresencePenalty(_AddedPenalty):
    """q ∝ p · e^-a for tokens that occurred in the text so far, the prompt included, as OpenAI's API has it."""

    operation: ClassVar[str] = "presence_penalty"

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        occurred_BV = xp.astype(_counts(read(), log_probs_BV) > 0, log_probs_BV.dtype)
        return log_probs_BV - self.value * occurred_BV


@dataclass(frozen=True)
class FrequencyPenalty(_AddedPenalty):
    """q ∝ p · e^-(a · n) for tokens that occurred n times in the text so far, as OpenAI's API has it."""

    operation: ClassVar[str] = "frequency_penalty"

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        return log_probs_BV - self.value * xp.astype(_counts(read(), log_probs_BV), log_probs_BV.dtype)


@dataclass(frozen=True)
class Forbid(Strategy):
    """All tokens but these."""

    looks_back: ClassVar[bool] = False
    operation: ClassVar[str] = "forbid"
    tokens: tuple[int, ...]

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        return without(log_probs_BV, self.tokens)

    def among(self, tokens_V: NDArray[np.int64]) -> Strategy:
        return Forbid(tuple(np.flatnonzero(np.isin(tokens_V, self.tokens)).tolist()))


@dataclass(frozen=True)
class Bias(Strategy):
    """q ∝ p · e^b for each of some tokens, as OpenAI's `logit_bias` has it: pairs of a token and its b."""

    looks_back: ClassVar[bool] = False
    operation: ClassVar[str] = "bias"
    pairs: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        for token, value in self.pairs:
            _require_penalty(f"the bias of token {token}", value)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        # set number by number on the device: arrays of the host cannot be copied there while a step is captured
        xp = array_namespace(log_probs_BV)
        bias_V = xp.zeros(log_probs_BV.shape[-1], dtype=log_probs_BV.dtype, device=log_probs_BV.device)
        for token, value in self.pairs:
            bias_V[token] += value
        return log_probs_BV + bias_V


@dataclass(frozen=True)
class EachRow(Strategy):
    """A strategy for each row of a batch: the index of each row's own among those given."""

    strategies: tuple[Strategy, ...]
    rows: tuple[int, ...]

    @property
    def on_logits(self) -> bool:  # type: ignore[override]
        return any(strategy.on_logits for strategy in self.strategies)

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        xp = array_namespace(log_probs_BV)
        order, parts = [], []
        for index, strategy in enumerate(self.strategies):
            places = [row for row, own in enumerate(self.rows) if own == index]
            places_R = xp.asarray(places, dtype=xp.int64, device=log_probs_BV.device)

            def read_of(places_R: Array = places_R) -> Array:
                return xp.take(read(), places_R, axis=0)

            own_RV = xp.take(log_probs_BV, places_R, axis=0)
            if self.on_logits and not strategy.on_logits:
                own_RV = normalised(own_RV)  # as if the row were alone
            parts.append(strategy.apply(own_RV, read_of))
            order += places
        back_B = xp.asarray(np.argsort(order), device=log_probs_BV.device)
        return xp.take(xp.concat(parts, axis=0), back_B, axis=0)


@dataclass(frozen=True)
class Beam:
    """Beam search instead of sampling: the most likely text that `width` hypotheses reach (see beam.py)."""

    width: int = 4
    length_power: float = 1.0
    """Hypotheses are ranked by ln p / length^power: 0 favours short ones, 1 ranks by the mean."""
    ending: Ending = "any"
    """When a hypothesis may end: "any", at every step; "best", only if its end is among the `width` best steps.

    Take "best" with a length power below 1: "any" then finds little but empty texts."""

    def __post_init__(self) -> None:
        if self.ending not in ("any", "best"):
            raise DecodingError(f"the ending of a beam search should be any or best, not {self.ending!r}")
        _require(self.width >= 1, "the number of beams", "at least 1", self.width)
        _require(0 <= self.length_power <= 10, "the length power", "between 0 and 10", self.length_power)


SAMPLING: dict[str, Callable[[Any], Strategy]] = {
    "repetition_penalty": RepetitionPenalty,
    "presence_penalty": PresencePenalty,
    "frequency_penalty": FrequencyPenalty,
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "min_p": MinP,
}
"""The usual names of sampling options, and their strategies, in the order in which they apply."""


def sampling(**options: Any) -> Chain:
    """Return the strategy of sampling options by their usual names; None leaves an option out.

    >>> sampling(top_p=0.9, temperature=0.8)
    Chain(strategies=(Temperature(value=0.8), TopP(p=0.9)))
    """
    if unknown := [name for name in options if name not in SAMPLING]:
        raise DecodingError(f"there is no option {unknown[0]!r}; options of sampling: {', '.join(SAMPLING)}")
    return Chain(tuple(make(options[name]) for name, make in SAMPLING.items() if options.get(name) is not None))


def normalised(log_probs_BV: Array) -> Array:
    """ln p that sums to one: x - ln Σ e^x. A row without a possible token stays as it is."""
    xp = array_namespace(log_probs_BV)
    best_B1 = _best(log_probs_BV)
    total_B1 = xp.sum(xp.exp(log_probs_BV - best_B1), axis=-1, keepdims=True)
    return log_probs_BV - best_B1 - xp.log(xp.where(total_B1 == 0, xp.ones_like(total_B1), total_B1))


def _best(log_probs_BV: Array) -> Array:
    """The largest ln p of each row, [B, 1]; 0 where all are -∞, since -∞ minus -∞ would be NaN."""
    xp = array_namespace(log_probs_BV)
    best_B1 = xp.max(log_probs_BV, axis=-1, keepdims=True)
    return xp.where(best_B1 == -math.inf, xp.zeros_like(best_B1), best_B1)


def _counts(ids_BT: Array, like_BV: Array) -> Array:
    """How often each token occurs in each row of ids, [B, V], in the library and on the device of an array."""
    xp = array_namespace(like_BV)
    rows_BT = xp.broadcast_to(xp.arange(ids_BT.shape[0], device=ids_BT.device)[:, None], ids_BT.shape)
    occurred = ids_BT != PAD
    counts_BV = xp.zeros(like_BV.shape, dtype=xp.int64, device=like_BV.device)
    rows, ids = rows_BT[occurred], ids_BT[occurred]
    if isinstance(counts_BV, np.ndarray):
        np.add.at(counts_BV, (rows, ids), 1)
        return counts_BV
    return counts_BV.index_put_((rows, ids), xp.ones_like(ids, dtype=xp.int64), accumulate=True)


def _keep(log_probs_BV: Array, kept_BV: Array) -> Array:
    xp = array_namespace(log_probs_BV)
    return xp.where(kept_BV, log_probs_BV, impossible(log_probs_BV))


def _require_penalty(what: str, value: float) -> None:
    _require(abs(value) <= LARGEST_PENALTY, what, "between minus a million and a million", value)


def _require(holds: bool, what: str, expected: str, found: float) -> None:
    if not holds:
        raise DecodingError(f"{what} should be {expected}, not {found}")
