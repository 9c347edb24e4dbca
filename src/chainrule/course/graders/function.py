"""An exercise whose answer is a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.course.graders.difference import difference, show
from chainrule.course.graders.grader import CodeGrader, Verdict, close

_LONGEST_INPUT = 60
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Function(CodeGrader):
    """A function, which is compared with the reference on random inputs.

    `inputs` is an expression for the tuple of arguments, which draws from `rng`. If functions return a dict of
    their steps, in order, the first wrong step is named. A known wrong answer is a function too, and an answer is
    like it if they are the same up to the first wrong step.
    """

    reference: str
    inputs: str
    trials: int = 5
    tolerance: float = 1e-6

    def grade_code(self, answer: Any) -> Verdict:
        """Compare the function with the reference; then with the known wrong ones."""
        cases = [self.value(self.inputs, rng=np.random.default_rng(trial)) for trial in range(self.trials)]
        cases = [case if isinstance(case, tuple) else (case,) for case in cases]
        reference = self.value(self.reference)
        given = deepcopy(cases)
        found = [answer(*case) for case in given]
        expected = [reference(*deepcopy(case)) for case in cases]
        steps = _steps_to_the_first_wrong(found, expected, self.tolerance)

        def is_known(known: Any, steps: Sequence[Any] | None = None) -> bool:
            results = (_some(known(*deepcopy(case)), steps) for case in cases)
            return close((_some(one, steps) for one in found), results, self.tolerance)

        for case, ours, theirs in zip(cases, expected, found, strict=True):
            if said := difference(theirs, ours, self.tolerance):
                call = f"{self.name}({', '.join(map(show, case))})"
                is_short = len(call) <= _LONGEST_INPUT and "\n" not in call
                said = f"{call}: {said}" if is_short else said
                return self.wrong_verdict(is_known, said, lambda known: is_known(known, steps))
        for after, before in (pair for case in zip(given, cases, strict=True) for pair in zip(*case, strict=True)):
            # x += eps and then x -= eps leaves an error of rounding, which is no fault
            if isinstance(before, np.ndarray) and difference(after, before, _ROUNDING):
                return Verdict("wrong", f"{self.name} changes an argument: leave it as it was")
        return Verdict("right", f"the same as the reference on {len(cases)} inputs")


def _steps_to_the_first_wrong(found: list[Any], expected: list[Any], tolerance: float) -> Sequence[Any] | None:
    """Return the steps up to the first that is wrong for an input; None if the results are not steps."""
    if not all(isinstance(one, Mapping) and list(one) == list(expected[0]) for one in expected):
        return None
    names = list(expected[0])
    for place, name in enumerate(names):
        pairs = zip(found, expected, strict=True)
        if any(difference(_some(one, [name]), _some(other, [name]), tolerance) for one, other in pairs):
            return names[: place + 1]
    return None


def _some(result: Any, steps: Sequence[Any] | None) -> Any:
    """Return some steps of a result, all if none are named."""
    if steps is None or not isinstance(result, Mapping):
        return result
    return {name: result[name] for name in steps if name in result}
