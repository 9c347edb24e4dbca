"""Which model to take."""

from __future__ import annotations

import math

from chainrule.comparison.advice import advice
from chainrule.comparison.results import FORMAT, Comparison, Result
from chainrule.contract.kinds import Figures


def result(name: str, loss: float, speed: float, megabytes: float, seconds: float) -> Result:
    return Result(name, "kind", {}, name, Figures({}, loss, speed), seconds, megabytes, "")


def chosen(*results: Result) -> str | None:
    return advice(Comparison(FORMAT, "word", 10, "line", {}, list(results), {}, task="tagging"))


def test_a_model_that_is_nearly_as_good_and_much_cheaper_is_named() -> None:
    best, near = result("best", 1.0, 100, 50, 60), result("near", 1.04, 5000, 40, 6)
    far, dear = result("far", 1.2, 1e6, 1, 1), result("dear", 1.01, 90, 60, 80)
    assert chosen(far, near, best, dear) == (
        "Take best for quality; near to score text fast (50x as fast) and to train in little time (10x as fast), "
        "within 5% of it."
    )


def test_nothing_is_said_where_nothing_is_gained() -> None:
    assert chosen(result("only", 1.0, 100, 50, 60)) == "Take only for quality."
    assert chosen(result("a", 1.0, 100, 50, 60), result("b", 1.01, 150, 30, 50)) == "Take a for quality."
    assert chosen() is None
    assert chosen(result("a", math.inf, 100, 50, 60)) is None
