"""What models cost, and which of them no other beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
