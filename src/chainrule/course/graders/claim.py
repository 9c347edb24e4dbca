"""An exercise whose answer is a claim: which of two models is better."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.comparison.results import Comparison
from chainrule.course.graders.difference import show
from chainrule.course.graders.grader import CodeGrader, Verdict


@dataclass(frozen=True, kw_only=True)
class Claim(CodeGrader):
    """A function that compares models in a folder, and returns the comparison and the name of the better one.

    The answer is right if the interval of the difference of the two `models` does not cover 0, and if the name is
    that of the better one. The comparison may have other models too, such as the mixture that `compare` adds. A
    known wrong answer is the name that is claimed.
    """

    models: Sequence[str]

    def grade_code(self, answer: Any) -> Verdict:
        """Run the student's comparison and read the interval of the difference."""
        with tempfile.TemporaryDirectory() as folder:
            found = answer(Path(folder) / "comparison")
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Comparison)):
            return Verdict("wrong", "return two things: what cr.compare returns, and the name of the better model")
        comparison, claimed = found
        rows = {result.name: result for result in comparison.results}
        both = " and ".join(self.models)
        if not rows.keys() >= set(self.models):
            return Verdict("wrong", f"compare {both}; yours has {', '.join(rows) or 'no model'}")
        if claimed not in self.models:
            return Verdict(
                "wrong", f"the second thing is the name of the better one of {both}, not {show(claimed)}"
            )
        best, worst = sorted(self.models, key=lambda name: rows[name].rank)
        difference = comparison.difference(worst, best)
        if difference is None:
            return Verdict("wrong", _why_none(comparison, self.models))
        ahead, low, high = difference
        measured = f"{best} is better by {ahead:.3f} bits per byte ({low:.3f} to {high:.3f})"
        if low <= 0:
            return Verdict(
                "wrong", f"{measured}: the interval covers 0, so the text cannot tell; give it more text"
            )
        if claimed != best:
            return self.wrong_verdict(lambda known: known == claimed, f"{measured}, not {claimed}")
        return Verdict("right", measured)


def _why_none(comparison: Comparison, models: Sequence[str]) -> str:
    """Say why there is no interval of the difference, and what to do."""
    endless = [one.name for one in comparison.results if one.name in models and not one.has_finite_loss]
    if endless:
        return f"{endless[0]} gives a token of the test text probability 0: take a model that does not"
    return "the test text has too few documents for an interval: give it more of them"
