"""What models cost, which of them no other beats, and which to pick for what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WITHIN = 0.1
"""How much worse than the best a model may be and still be recommended for what it costs."""


@dataclass(frozen=True)
class Cost:
    """Something that a model costs, or the speed at which it works."""

    key: str
    """Its name in compare.json."""
    name: str
    unit: str
    superlative: str
    """What is said of the cheapest model: it "trains fastest"."""
    more_is_better: bool = False
    is_large: bool = False
    """Whether thousands and millions are usual, which an axis writes as 1k and 1M."""

    def of(self, result: Mapping[str, Any]) -> float | None:
        """The cost of a result in compare.json; None where it was not measured."""
        value = result.get(self.key, result["test"].get(self.key))
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if usable else None


COSTS = (
    Cost("training_seconds", "training", "s", "trains fastest"),
    Cost("megabytes", "size", "MB", "is the smallest"),
    Cost("tokens_per_second", "scoring speed", "tokens/s", "scores fastest", True, True),
    Cost("writing_tokens_per_second", "writing speed", "tokens/s", "writes fastest", True, True),
    Cost("peak_megabytes", "peak memory", "MB", "takes the least memory", is_large=True),
    Cost("parameters", "parameters", "", "has the fewest parameters", is_large=True),
    Cost("flops_per_token", "arithmetic", "FLOPs/token", "computes least", is_large=True),
)
"""In the order of the table; what no model of a comparison has is left out."""


def frontier(losses: Sequence[float | None], costs: Sequence[float | None], cost: Cost) -> list[bool]:
    """Which models no other beats: none is both as good and as cheap, and better in one of the two."""
    sign = -1 if cost.more_is_better else 1
    points = [
        (loss, sign * price) if loss is not None and math.isfinite(loss) and price is not None else None
        for loss, price in zip(losses, costs, strict=True)
    ]
    there = [point for point in points if point is not None]
    return [
        one is not None and not any(o[0] <= one[0] and o[1] <= one[1] and o != one for o in there) for one in points
    ]


def advice(
    names: Sequence[str], losses: Sequence[float | None], costs: Mapping[Cost, Sequence[float | None]]
) -> str:
    """One sentence: the best model, and of those nearly as good the cheapest in each respect."""
    finite = [(loss, i) for i, loss in enumerate(losses) if loss is not None and math.isfinite(loss)]
    if not finite:
        return "No model gives every token a probability, so none can be recommended."
    least, best = min(finite)
    near = [i for loss, i in finite if loss <= least * (1 + WITHIN)]
    praise: dict[int, list[str]] = {}
    for cost, prices in costs.items():
        sign = -1 if cost.more_is_better else 1
        priced = [(sign * price, i) for i in near if (price := prices[i]) is not None]
        if priced and len(near) > 1:
            price, cheapest = min(priced)
            amount = f"{shown(sign * price)} {cost.unit}".rstrip()
            praise.setdefault(cheapest, []).append(f"{cost.superlative} ({amount})")
    of_best = praise.pop(best, [])
    first = f"For quality pick {names[best]}" + (f", which also {_listed(of_best)}" if of_best else "")
    others = "; ".join(f"{names[i]} {_listed(what)}" for i, what in praise.items())
    return f"{first}; of the models within {WITHIN:.0%} of it, {others}." if others else f"{first}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def shown(value: float | None, digits: int = 3) -> str:
    """A number for people: 1,234 or 0.00123 or ∞, and nothing for one that is not there.

    >>> shown(1234567), shown(2.0917), shown(0.00123), shown(math.inf), shown(None)
    ('1,234,567', '2.09', '0.00123', '∞', '')
    """
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or value == 0 or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:,.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"
