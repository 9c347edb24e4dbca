"""The record of a comparison: its costs, its frontier, and which model to take."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from chainrule.comparison.results import COSTS, FORMAT, Comparison, Result, advise
from chainrule.contract.kinds import Figures


def result(name: str, loss: float, speed: float, megabytes: float, seconds: float) -> Result:
    return Result(name, "kind", {}, name, Figures({}, loss, speed), seconds, megabytes, "")


def compared(*results: Result) -> Comparison:
    return Comparison(FORMAT, "word", 10, "line", {}, list(results), {}, task="tagging")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8))
def test_a_model_is_on_the_frontier_if_none_on_it_beats_it(points: list[tuple[int, int]]) -> None:
    models = [result(str(number), loss, price, price, price) for number, (loss, price) in enumerate(points)]
    found = compared(*models)
    for key, sign in (("training_seconds", 1), ("megabytes", 1), ("tokens_per_second", -1)):
        on = found.frontier(key)
        best = {(loss, sign * price) for number, (loss, price) in enumerate(points) if str(number) in on}
        for number, (loss, price) in enumerate(points):
            point = loss, sign * price
            beaten = any(b[0] <= point[0] and b[1] <= point[1] and b != point for b in best)
            assert beaten != (str(number) in on)


def test_costs_may_be_missing() -> None:
    one = result("one", 1.0, 5.0, 2.0, 3.0)
    assert {key: cost.of(one) for key, cost in COSTS.items()} == {
        "training_seconds": 3.0,
        "megabytes": 2.0,
        "tokens_per_second": 5.0,
        **dict.fromkeys(("writing_tokens_per_second", "peak_megabytes", "parameters", "flops_per_token")),
    }
    assert [cost.key for cost in compared(one).costs] == ["training_seconds", "megabytes", "tokens_per_second"]
    assert compared(one).frontier("parameters") == set()


def test_a_model_that_is_nearly_as_good_and_much_cheaper_is_named() -> None:
    best, near = result("best", 1.0, 100, 50, 60), result("near", 1.04, 5000, 40, 6)
    far, dear = result("far", 1.2, 1e6, 1, 1), result("dear", 1.01, 90, 60, 80)
    assert advise(compared(far, near, best, dear)) == (
        "Take best for quality; near to score text fast (50x as fast) and to train in little time (10x as fast), "
        "within 5% of it."
    )


def test_other_models_are_named_only_if_they_are_much_cheaper() -> None:
    assert advise(compared(result("only", 1.0, 100, 50, 60))) == "Take only for quality."
    near = result("b", 1.01, 150, 30, 50)
    assert advise(compared(result("a", 1.0, 100, 50, 60), near)) == "Take a for quality."
    assert advise(compared()) is None
    assert advise(compared(result("a", math.inf, 100, 50, 60))) is None
