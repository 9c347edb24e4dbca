"""Costs: the frontier is that of the comparison."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from chainrule.comparison.results import loss_of, read_comparison
from chainrule.report.costs import COSTS, frontier

TRAINING, SIZE, SPEED = COSTS[:3]


def test_the_frontier_is_that_of_the_comparison(made: Path) -> None:
    comparison = read_comparison(made)
    assert comparison is not None
    losses = [loss_of(result) for result in comparison.results]
    for cost, name in ((TRAINING, "training"), (SIZE, "size"), (SPEED, "speed")):
        prices = [cost.of({**vars(result), "test": vars(result.test)}) for result in comparison.results]
        on = {r.name for r, holds in zip(comparison.results, frontier(losses, prices, cost), strict=True) if holds}
        assert on == comparison.frontier(name)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8))
def test_what_is_not_on_the_frontier_is_beaten_by_something_that_is(points: list[tuple[int, int]]) -> None:
    on = frontier([float(loss) for loss, _ in points], [float(price) for _, price in points], TRAINING)
    best = [point for point, holds in zip(points, on, strict=True) if holds]
    for point, holds in zip(points, on, strict=True):
        beaten = any(b[0] <= point[0] and b[1] <= point[1] and b != point for b in best)
        assert beaten != holds


def test_costs_may_be_missing() -> None:
    cost = COSTS[3]
    assert cost.of({"writing_tokens_per_second": None, "test": {}}) is None
    assert cost.of({"test": {"writing_tokens_per_second": 5}}) == 5.0
    assert frontier([1.0, 2.0], [None, 3.0], cost) == [False, True]
