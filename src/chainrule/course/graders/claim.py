"""An exercise whose answer is a claim: which of two models is better."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.comparison.results import Comparison
from chainrule.course.graders.grader import CodeGrader, Verdict


@dataclass(frozen=True, kw_only=True)
class Claim(CodeGrader):
    """A function that compares models in a folder, and returns the comparison and the name of the better one.

    The answer is right if the comparison has exactly the two `models`, if the interval of their difference does not
    cover 0, and if the name is that of the better one.
    """

    models: Sequence[str]

    def grade_code(self, answer: Any) -> Verdict:
        """Run the student's comparison and read the interval of the difference."""
        with tempfile.TemporaryDirectory() as folder:
            found = answer(Path(folder) / "comparison")
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Comparison)):
            return Verdict("wrong", "return two things: what cr.compare returns, and the name of the better model")
        comparison, claimed = found
        names = [result.name for result in comparison.results]
        if sorted(names) != sorted(self.models):
            return Verdict(
                "wrong", f"compare {' and '.join(self.models)}; yours has {', '.join(names) or 'no model'}"
            )
        best, worst = sorted(comparison.results, key=lambda result: result.rank)
        if worst.behind is None:
            return Verdict("wrong", "the test text has too few documents for an interval: give it more of them")
        ahead, low, high = worst.behind
        measured = f"{best.name} is better by {ahead:.3f} bits per byte ({low:.3f} to {high:.3f})"
        if low <= 0:
            return Verdict(
                "wrong", f"{measured}: the interval covers 0, so the text cannot tell; give it more text"
            )
        if claimed != best.name:
            return self.wrong_verdict(lambda known: False, f"{measured}, not {claimed}")
        return Verdict("right", measured)
