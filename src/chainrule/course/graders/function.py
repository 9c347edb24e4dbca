"""An exercise whose answer is a function."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.course.graders.difference import difference, show
from chainrule.course.graders.grader import CodeGrader, Verdict, close

_LONGEST_INPUT = 60


@dataclass(frozen=True, kw_only=True)
class Function(CodeGrader):
    """A function, which is compared with the reference on random inputs.

    `inputs` is an expression for the tuple of arguments, which draws from `rng`. If functions return a dict of
    their steps, in order, the first wrong step is named. A known wrong answer is a function too.
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
        for case, ours, theirs in zip(cases, expected, found, strict=True):
            if said := difference(theirs, ours, self.tolerance):
                return self.wrong_verdict(
                    lambda known: close(found, (known(*deepcopy(case)) for case in cases), self.tolerance),
                    f"{_call(self.name, case)}{said}",
                )
        if any(_is_changed(*pair) for case in zip(given, cases, strict=True) for pair in zip(*case, strict=True)):
            return Verdict("wrong", f"{self.name} changes an argument: leave it as it was")
        return Verdict("right", f"the same as the reference on {len(cases)} inputs")


def _call(name: str, case: tuple[Any, ...]) -> str:
    """Write the call that gave a wrong result, if it is short."""
    call = f"{name}({', '.join(map(show, case))})"
    return f"{call}: " if len(call) <= _LONGEST_INPUT and "\n" not in call else ""


def _is_changed(after: Any, before: Any) -> bool:
    return isinstance(before, np.ndarray) and not np.array_equal(after, before)
