"""An exercise whose answer is a number, a word, or a list or table of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from chainrule.course.graders.difference import difference, is_number, show
from chainrule.course.graders.grader import NOT_YET, Grader, Verdict

_SLIPS: dict[str, Callable[[float], float]] = {
    "write the probability, not per cent": lambda right: 100 * right,
    "the sign is wrong": lambda right: -right,
    "this is in bits: take the natural logarithm": lambda right: right / math.log(2),
    "this is in nats: take the logarithm to base 2": lambda right: right * math.log(2),
    "this is the logarithm of the answer": lambda right: math.log(right) if right > 0 else math.nan,
    "this is 1 divided by the answer": lambda right: 1 / right if right else math.nan,
}
"""What often happens to a number that is right otherwise."""


@dataclass(frozen=True, kw_only=True)
class Value(Grader):
    """A number, a word, or a list or table of these; `answer` is the expression that computes it."""

    is_typed: ClassVar[bool] = True

    answer: str
    tolerance: float = 0.005
    """Relative to the answer: three digits are enough. Counts, which are whole numbers, have to be equal."""

    @property
    def name(self) -> str:
        return f"answer_{self.id}"

    @property
    def blank(self) -> str:
        return f"{self.name} = ..."

    def grade(self, answer: Any) -> Verdict:
        """Grade a value; the hint depends on the value that was given."""
        if answer is ...:
            return NOT_YET
        right = self.value(self.answer)
        said = self._difference(answer, right)
        if not said:
            return Verdict("right")
        return self.wrong_verdict(
            lambda known: not self._difference(answer, known), _without_answer(answer, right, said)
        )

    def _difference(self, answer: Any, value: Any) -> str:
        is_count = isinstance(value, int) and isinstance(answer, int)
        return difference(answer, value, 0 if is_count else self.tolerance, "the answer")


def _without_answer(answer: Any, right: Any, said: str) -> str:
    """Say what is wrong, and not what would be right."""
    if is_number(right) and is_number(answer):
        for slip, of in _SLIPS.items():
            if right and math.isclose(float(answer), of(float(right)), rel_tol=1e-3):
                return slip
        if math.isnan(answer):
            return "nan is no number"
        digits = len(repr(answer).partition(".")[2])
        if isinstance(answer, float) and answer == round(float(right), digits):
            return "this is rounded too much: give three digits"
        return f"{show(answer)} is too {'large' if answer > right else 'small'}"
    if is_number(right):
        return f"expected a number, found {type(answer).__name__}"
    if isinstance(right, str):
        return f"it is not {show(answer)}" if isinstance(answer, str) else "expected a word in quotes"
    place, wrong, _ = said.partition(": yours is")
    return f"{place} is wrong" if wrong and "difference" not in place else place
