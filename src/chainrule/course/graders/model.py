"""An exercise whose answer is a language model of the student's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chainrule.contract.lm import LanguageModel
from chainrule.course.graders.grader import CodeGrader, Verdict
from chainrule.evaluation.measure import evaluate
from chainrule.testing.laws import LAWS, laws_for

_OF_KINDS = ("save_and_load_is_bit_equal",)
"""Laws of models whose kind has a name, under which a folder is loaded."""

_SAME = 1e-5
"""Relative: our models have their probabilities in single precision."""

_HARDLY_BETTER = 0.002
"""The relative gain of unigrams without smoothing, which takes no idea of a student."""


@dataclass(frozen=True, kw_only=True)
class StudentModel(CodeGrader):
    """A function that makes a language model of texts: it keeps the laws, and is ranked among others.

    `train` and `test` are expressions for lists of texts, and `peers` has an expression for each model to rank it
    with. The answer is right if it is better than the peer named by `beats`, and not only by a hair. A known wrong
    answer is a function or class too, and one is the same if it is as good on the test text.
    """

    train: str
    test: str
    peers: Mapping[str, str] = field(default_factory=dict)
    beats: str = ""

    def grade_code(self, answer: Any) -> Verdict:
        """Check the laws; then measure the model and its peers on the test text."""
        lm = answer(list(self.value(self.train)))
        if not isinstance(lm, LanguageModel):
            return Verdict("wrong", f"expected a LanguageModel, found {type(lm).__name__}")
        try:
            LAWS.check(lm, [name for name in laws_for(lm) if name not in _OF_KINDS])
        except AssertionError as error:
            return Verdict("wrong", f"it {' '.join(str(error).partition('> ')[2].split())[:200]}")
        models = {"yours": lm, **{name: self.value(peer) for name, peer in self.peers.items()}}
        losses = {name: self._loss(model) for name, model in models.items()}
        ranking = ", ".join(f"{name} {losses[name]:.3f}" for name in sorted(losses, key=lambda name: losses[name]))
        if losses["yours"] == math.inf:
            return Verdict("wrong", "it gives a token of the test text probability 0: leave some for every token")
        if self.beats and not losses["yours"] < (1 - _HARDLY_BETTER) * losses[self.beats]:
            worse = losses["yours"] >= losses[self.beats]
            but = f"{self.beats} is better" if worse else f"is hardly better than {self.beats}"

            def is_as_good(known: Any, tolerance: float = _SAME) -> bool:
                return math.isclose(
                    losses["yours"], self._loss(known(list(self.value(self.train)))), rel_tol=tolerance
                )

            return self.wrong_verdict(
                is_as_good,
                f"it keeps the laws, but {but} (bits per byte: {ranking})",
                lambda known: is_as_good(known, _HARDLY_BETTER),
            )
        return Verdict("right", f"it keeps the laws (bits per byte: {ranking})")

    def _loss(self, model: LanguageModel) -> float:
        return float(evaluate(model, self.value(self.test)).bits_per_byte)
