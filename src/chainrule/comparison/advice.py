"""Which model to take: one sentence from the results of a comparison."""

from __future__ import annotations

from chainrule.comparison.results import COSTS, Comparison, Cost, Result

NEAR = 0.05
"""A model is nearly as good as the best if its loss is higher by this share at most."""

_PURPOSES = {
    "tokens_per_second": ("to score text fast", "as fast"),
    "megabytes": ("for little disk", "as small"),
    "training_seconds": ("to train in little time", "as fast"),
}
_WORTH_SAYING = 2.0  # times as cheap as the best


def advice(comparison: Comparison) -> str | None:
    """Return which model to take for which purpose; None if no model has a finite loss."""
    best = comparison.best
    if best is None or best.loss is None or not best.has_finite_loss:
        return None
    limit = best.loss * (1 + NEAR)
    near = [one for one in comparison.results if one.loss is not None and one.loss <= limit and one is not best]
    purposes: dict[str, list[str]] = {}
    for key, (purpose, gained) in _PURPOSES.items():
        cost = next(one for one in COSTS if one.key == key)
        gains = [(_gain(cost, one, best), one.name) for one in near]
        gain, name = max(gains, key=lambda one: one[0], default=(0.0, ""))
        if gain >= _WORTH_SAYING:
            purposes.setdefault(name, []).append(f"{purpose} ({gain:.0f}x {gained})")
    others = [f"{name} {' and '.join(wishes)}, within {NEAR:.0%} of it" for name, wishes in purposes.items()]
    return "; ".join([f"Take {best.name} for quality", *others]) + "."


def _gain(cost: Cost, result: Result, best: Result) -> float:
    """Return how many times as cheap as the best model another is; 0 if that is not known."""
    ours, of_best = cost.of(result), cost.of(best)
    if not ours or not of_best:
        return 0.0
    return ours / of_best if cost.more_is_better else of_best / ours
