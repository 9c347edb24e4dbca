"""One prediction of a mixture, explained: the weight of each of its parts, and the probability by each part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from chainrule.contract.lm import start_token
from chainrule.explanation.explanation import Explanation, common_fields
from chainrule.system.display import Part, ResultTable, number
from chainrule.system.progress import Progress


@dataclass(frozen=True)
class MixturePart:
    """A model or a cache of a mixture, and the probability that it gives to one token."""

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
    """The weights of a mixture for one token, and the probability by each part."""

    form: Literal["linear", "log-linear"]
    by: str
    """The property of the context by which weights are chosen; "none" if they are always the same."""
    value: float | None
    """The value of that property here; None if there is none."""
    parts: tuple[MixturePart, ...]
    log_prob: float
    """ln p of the token by the mixture."""


@dataclass(frozen=True, repr=False)
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
        """The terms w p of a linear mixture, whose sum is p; the factors p^λ of a log-linear one."""
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

    def details(self) -> list[Part]:
        """Return the weight and probability of each model, and their sum or product."""
        is_linear = self.weighed.form == "linear"
        headings = "model", "weight" if is_linear else "exponent", "p", "adds to p" if is_linear else "factor"
        rows = [
            [part.name, f"{part.weight:.4g}", f"{part.probability:.4g}", f"{share:.4g}"]
            for part, share in zip(self.weighed.parts, self.shares, strict=True)
        ]
        parts = [*super().details(), "", ResultTable(headings, rows), "", self.equation]
        if self.weighed.value is not None:
            parts.append(
                f"the weights depend on the {self.weighed.by} of the context: {number(self.weighed.value)}"
            )
        return parts

    def steps(self) -> dict[str, Any]:
        parts = [
            {"name": part.name, "weight": part.weight, "probability": part.probability, "share": share}
            for part, share in zip(self.weighed.parts, self.shares, strict=True)
        ]
        shared = {name: getattr(self.weighed, name) for name in ("form", "by", "value")}
        return {**shared, "parts": parts, "equation": self.equation}


def explain_mixture(lm: Any, ids: list[int], target: int, last: int, progress: Progress) -> MixtureExplanation:
    """Explain how a mixture, a model with the method `weigh`, predicts the target after the ids."""
    weighed: Weighed = lm.weigh(ids, target)
    start = start_token(lm.tokenizer, lm.context)
    return MixtureExplanation(**common_fields(lm, start, ids, target, -weighed.log_prob), weighed=weighed)
