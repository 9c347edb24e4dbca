"""One prediction of a mixture, explained: the weight of each of its parts, and what each part says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from chainrule.contract.lm import LanguageModel, start_token
from chainrule.explanation.explanation import Explanation, most_likely
from chainrule.explanation.reading import word


@dataclass(frozen=True)
class Part:
    """A model or a cache of a mixture, and what it says of one token."""

    name: str
    weight: float
    """w of a linear mixture, the exponent λ of a log-linear one."""
    log_prob: float
    """ln p of the token by this part alone."""

    @property
    def probability(self) -> float:
        """p of the token by this part alone."""
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class Weighed:
    """What a mixture makes of one token."""

    form: Literal["linear", "log-linear"]
    by: str
    """What the weights depend on; "none": they are always the same."""
    value: float | None
    """The number that the weights depend on here; None if there is none."""
    parts: tuple[Part, ...]
    log_prob: float
    """ln p of the token by the mixture."""


@runtime_checkable
class WeighsParts(Protocol):
    """A language model that mixes others."""

    def weigh(self, ids: list[int], target: int) -> Weighed:
        """The weights after the ids, and what each part says of the target."""


@dataclass(frozen=True)
class MixtureExplanation(Explanation):
    """The probability of one token as a mixture."""

    weighed: Weighed

    @property
    def title(self) -> str:
        """The value that is explained, in one line."""
        before = "… " if len(self.tokens) > 1 else ""
        return f"p({self.target} | {before}{self.tokens[-1]}) = {math.exp(-self.nats):.4g}"

    @property
    def shares(self) -> list[float]:
        """What each part of a linear mixture adds to p; of a log-linear one, the factor that it multiplies by."""
        if self.weighed.form == "linear":
            return [part.weight * part.probability for part in self.weighed.parts]
        return [
            0.0 if part.log_prob == -math.inf else math.exp(part.weight * part.log_prob)
            for part in self.weighed.parts
        ]

    @property
    def equation(self) -> str:
        """The sum Σ w p, or the product Π p^λ / Z, with its numbers."""
        p = f"{math.exp(-self.nats):.4g}"
        if self.weighed.form == "linear":
            terms = [f"{part.weight:.4g} · {part.probability:.4g}" for part in self.weighed.parts]
            return f"p = {' + '.join(terms)} = {p}"
        terms = [f"{part.probability:.4g}^{part.weight:.4g}" for part in self.weighed.parts]
        product = math.prod(self.shares)
        total = f", Z = {product / math.exp(-self.nats):.4g}" if product else ""
        return f"p = {' · '.join(terms)} / Z = {p}{total}"

    def steps(self) -> dict[str, Any]:
        parts = [
            {"name": part.name, "weight": part.weight, "probability": part.probability, "share": share}
            for part, share in zip(self.weighed.parts, self.shares, strict=True)
        ]
        return {
            "form": self.weighed.form,
            "by": self.weighed.by,
            "value": self.weighed.value,
            "parts": parts,
            "equation": self.equation,
        }


def explain_mixture(lm: LanguageModel, ids: list[int], target: int) -> MixtureExplanation:
    """Explain how a mixture predicts the target after the ids; the start token comes before them."""
    assert isinstance(lm, WeighsParts)
    weighed = lm.weigh(ids, target)
    state = lm.extend(lm.start(1), np.asarray([ids], dtype=np.int64).reshape(1, -1))
    return MixtureExplanation(
        kind=lm.kind,
        tokens=tuple(word(lm, token) for token in [start_token(lm.tokenizer, lm.context), *ids]),
        target=word(lm, target),
        nats=-weighed.log_prob,
        likely=most_likely(lm, lm.next_log_probs(state)[0]),
        weighed=weighed,
    )
