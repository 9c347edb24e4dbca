"""An exercise whose answer is a number, a word, or a list or table of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from chainrule.course.graders.difference import difference, is_number, show
from chainrule.course.graders.grader import NOT_YET, Grader, Verdict, fault

_SLIPS: dict[str, Callable[[float], float]] = {
    "write the probability, not per cent": lambda right: 100 * right,
    "the sign is wrong": lambda right: -right,
    "this is in bits: take the natural logarithm": lambda right: right / math.log(2),
    "this is in nats: take the logarithm to base 2": lambda right: right * math.log(2),
    "this is the logarithm of the answer": lambda right: math.log(right) if right > 0 else math.nan,
    "this is 1 divided by the answer": lambda right: 1 / right if right else math.nan,
}
"""What often happens to a number that is right otherwise."""


_CLOSE = 0.05
"""For a wrong number this near to the answer, the hint says how exact it has to be."""


@dataclass(frozen=True, kw_only=True)
class Value(Grader):
    """A number, a word, or a list or table of these; `answer` is the expression that computes it."""

    is_typed: ClassVar[bool] = True

    answer: str
    tolerance: float = 0.005
    """Relative to the number, in a list to its largest one. Whole numbers, such as counts, have to be equal."""

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
        try:
            return self._graded(answer, right)
        except OverflowError:
            return Verdict("wrong", "the number is too large")
        except Exception as error:  # an object of a student's class may do anything
            return Verdict("wrong", fault(error))

    def _graded(self, answer: Any, right: Any) -> Verdict:
        said = self._difference(answer, right)
        if not said:
            return Verdict("right")
        return self.wrong_verdict(
            lambda known: not self._difference(answer, known),
            self._without_answer(answer, right, said),
            None if _is_rounded(answer, right) else lambda known: _is_rounding(answer, known),
        )

    def _difference(self, answer: Any, value: Any) -> str:
        tolerance = 0 if _is_whole(value) else self.tolerance
        return difference(answer, value, tolerance, "the answer")

    def _without_answer(self, answer: Any, right: Any, said: str) -> str:
        """Say what is wrong, and not what would be right."""
        if is_number(right) and is_number(answer):
            for slip, of in _SLIPS.items():
                if right and math.isclose(float(answer), of(float(right)), rel_tol=self.tolerance):
                    return slip
            if math.isnan(answer):
                return "nan is no number"
        if not _is_whole(right) and _is_rounded(answer, right):
            return f"this is rounded too much: {self._rule(right)}"
        if is_number(right) and is_number(answer):
            close = f", but close: {self._rule(right)}" if abs(answer - right) < _CLOSE * abs(right) else ""
            return f"{show(answer)} is too {'large' if answer > right else 'small'}{close}"
        if is_number(right):
            quoted = ": write it without quotes" if isinstance(answer, str) else ""
            return f"expected a number, found {type(answer).__name__}{quoted}"
        if isinstance(right, str):
            return f"it is not {show(answer)}" if isinstance(answer, str) else "expected a word in quotes"
        place, wrong, _ = said.partition(": yours is")
        if not wrong or "difference" in place:
            return place
        return f"{place} is wrong" if place.startswith("the answer") else f"the entry {place!r} is wrong"

    def _rule(self, right: Any) -> str:
        """Say how exact an answer has to be."""
        if _is_whole(right):
            return "a count has to be exact"
        of = "" if is_number(right) or isinstance(right, Mapping) else " of the largest"
        return f"a number may be off by {100 * self.tolerance:g} %{of}, so give three digits"


def _is_whole(value: Any) -> bool:
    """Return True for a whole number, or a list of them."""
    return isinstance(value, int) or (isinstance(value, list) and all(isinstance(one, int) for one in value))


def _is_rounding(answer: Any, known: Any) -> bool:
    """Return True for a known wrong answer with few digits, but enough of them to be no other one."""
    return _is_rounded(answer, known) and not difference(answer, known, _CLOSE)


def _is_rounded(answer: Any, right: Any) -> bool:
    """Return True if numbers would be right if they had not been rounded to so few digits."""
    if isinstance(right, Mapping) and isinstance(answer, Mapping) and right.keys() == answer.keys():
        return all(_is_rounded(answer[key], right[key]) for key in right)
    try:
        given, exact = np.asarray(answer, np.float64), np.asarray(right, np.float64)
    except (TypeError, ValueError):
        return False
    is_text = np.asarray(answer).dtype.kind in "US"  # which NumPy reads as numbers
    if is_text or given.shape != exact.shape or not np.isfinite(given).all():
        return False
    digits = (len(f"{one:.12f}".rstrip("0").partition(".")[2]) for one in given.flat)
    pairs = zip(given.flat, exact.flat, digits, strict=True)
    return all(
        one == other or (places and abs(one - other) <= 0.5 * 10.0**-places + 1e-12) for one, other, places in pairs
    )
