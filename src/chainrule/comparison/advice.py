"""Which model to take: one sentence from the results of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable

from chainrule.comparison.results import Comparison, Result, loss_of

NEAR = 0.05
"""A model is nearly as good as the best if its loss is higher by this share at most."""

_WISHES: tuple[tuple[str, Callable[[Result], float | None], str], ...] = (
    ("to score text fast", lambda result: -result.test.tokens_per_second, "{gain:.0f}x as fast"),
    ("for little disk", lambda result: result.megabytes, "{gain:.0f}x as small"),
    ("to train in little time", lambda result: result.training_seconds, "{gain:.0f}x as fast"),
)
_WORTH_SAYING = 2.0  # times as cheap as the best


def advice(comparison: Comparison) -> str | None:
    """What to take for which purpose; None if no model has a finite loss."""
    best = comparison.best
    if best is None or (lowest := loss_of(best)) is None or not math.isfinite(lowest):
        return None
    near = [
        one
        for one in comparison.results
        if (loss := loss_of(one)) is not None and loss <= lowest * (1 + NEAR) and one is not best
    ]
    parts = [f"Take {best.name} for quality"]
    said: dict[str, list[str]] = {}
    for wish, cost, gained in _WISHES:
        cheapest = min(near, key=lambda one: _number(cost(one)), default=None)
        if cheapest is None:
            continue
        gain = _ratio(cost(best), cost(cheapest))
        if gain >= _WORTH_SAYING:
            said.setdefault(cheapest.name, []).append(f"{wish} ({gained.format(gain=gain)})")
    parts += [f"{name} {' and '.join(wishes)}, within {NEAR:.0%} of it" for name, wishes in said.items()]
    return "; ".join(parts) + "."


def _number(cost: float | None) -> float:
    return float("inf") if cost is None else cost


def _ratio(dear: float | None, cheap: float | None) -> float:
    """How many times as cheap; speeds are costs below 0."""
    if dear is None or cheap is None or not dear or not cheap:
        return 0.0
    return cheap / dear if dear < 0 else dear / cheap
