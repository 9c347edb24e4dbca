"""One prediction of an n-gram model, explained: contexts, weights, and the product or sum that gives p."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.contract.lm import LanguageModel
from chainrule.explanation.explanation import Explanation, most_likely
from chainrule.explanation.formulas import FORMULAS, INTERPOLATED, discount_of, written_out
from chainrule.explanation.reading import word
from chainrule.ngram.evidence import SumStep, backoff_steps, mixture, product, sum_steps
from chainrule.ngram.infinite.model import AnyLengthModel
from chainrule.ngram.model import NgramModel


@dataclass(frozen=True)
class BackoffLine:
    """A context in the explanation of a model that backs off."""

    context: tuple[str, ...]
    seen: bool
    """Whether the context is in the model."""
    weight: float | None
    """The factor for backing off to the next shorter context; None for the last line."""
    stored: float | None
    """The probability that the model stores for the target after this context; only in the last line."""
    probability: float
    """p(target | context)"""
    count: int | None = None
    """c(h w), by which the target is known after the context h; None if the model does not tell."""
    total: int | None = None
    """c(h), the sum of all such counts."""
    types: int | None = None
    """T(h), how many different tokens were seen after the context."""


@dataclass(frozen=True)
class SumLine:
    """A stored probability in its parts: p(w | h) = own + γ(h) p(w | h')."""

    context: tuple[str, ...]
    count: int | None
    """c(h w); of Kneser-Ney the different tokens before h w. None if the model does not tell."""
    total: int | None
    types: int
    discount: float | None
    """D, which is taken off the count; None if the method has none, or the count is not known."""
    own: float | None
    """What the context's own counts give; None for the empty context, whose weight is not stored."""
    weight: float | None
    """γ(h), the weight of the shorter context."""
    lower: float
    """p(w | h'); below the empty context 1/V."""
    probability: float


@dataclass(frozen=True)
class MixtureLine:
    """A context in the explanation of a model that mixes contexts of all lengths; the last is 1 / V for all."""

    context: tuple[str, ...] | None
    """None for the uniform distribution, which is below the empty context."""
    count: int | None
    """N(· h w), by which the target is known after the context h."""
    total: int | None
    """N(· h ·), the sum of all such counts."""
    own: float
    """The part of p(target | context) that comes from these counts."""
    weight: float | None
    """λ, the weight of the next shorter context; None for the last line."""
    share: float
    """What the line adds to the model's probability: its own part times the weights of all longer contexts."""
    probability: float
    """p(target | context)"""


@dataclass(frozen=True)
class NgramExplanation(Explanation):
    """The probability of one token, from the longest context to the shortest that is used."""

    lines: tuple[BackoffLine, ...] | tuple[MixtureLine, ...]
    normalised: bool
    """Whether the model gives probabilities, which stupid backoff and some imported models do not."""
    formula: str = ""
    """The equation of the smoothing method; empty for a model that was imported or mixed, or mixes contexts."""
    sums: tuple[str, ...] = ()
    """The equation with its numbers, for the context whose probability is stored and those that it has mixed in."""
    terms: tuple[SumLine, ...] = ()
    """The same as numbers; empty where the method does not mix in shorter contexts."""

    @property
    def is_probability(self) -> bool:
        return self.normalised

    @property
    def title(self) -> str:
        """The value that is explained, in one line."""
        longest = self.lines[0].context or ()
        if isinstance(self.lines[0], MixtureLine):  # nothing but the empty context may have been seen
            longest = longest or self.tokens[-1:]
        before = "… " if 0 < len(longest) < len(self.tokens) else ""
        given = f" | {before}{' '.join(longest)}" if longest else ""
        return f"{self.letter}({self.target}{given}) = {math.exp(-self.nats):.4g}"

    @property
    def letter(self) -> str:
        """p for a probability, S for a score."""
        return "p" if self.normalised else "S"

    @property
    def equation(self) -> str:
        """The product of weights and stored probability, or the sum of shares, with its numbers."""
        last = self.lines[-1]
        if isinstance(last, BackoffLine):
            weights = [line.weight for line in self.lines if isinstance(line, BackoffLine) and line.weight != 1]
            factors = [*(weight for weight in weights if weight is not None), last.stored or 0.0]
            terms, sign = [f"{factor:.4g}" for factor in factors], " · "
        else:
            terms = [f"{line.share:.4g}" for line in self.lines if isinstance(line, MixtureLine) and line.share]
            sign = " + "
        result = f" = {math.exp(-self.nats):.4g}" if len(terms) > 1 else ""
        return f"{self.letter} = {sign.join(terms)}{result}"

    def steps(self) -> dict[str, Any]:
        contexts = {"contexts": [vars(line) for line in self.lines]}
        if not self.formula:
            return contexts
        terms = [vars(line) for line in self.terms]
        return contexts | {"formula": self.formula, "sums": list(self.sums), "terms": terms}


def explain_ngram(lm: NgramModel, ids: list[int], target: int) -> NgramExplanation:
    """Explain how a model of bounded order predicts the target after <s> and the ids."""
    steps = backoff_steps(lm, ids, target)
    formula = FORMULAS.get(lm.settings.smoothing, "")
    longest = next((step.context for step in steps if step.is_seen), ())
    # what was counted after each context that was seen, by its length
    counted = {len(one.context): one for one in sum_steps(lm, longest, target)} if formula else {}
    lines = tuple(
        BackoffLine(
            tuple(word(lm, token) for token in step.context),
            step.is_seen,
            None if step.log_weight is None else math.exp(step.log_weight),
            None if step.log_stored is None else math.exp(step.log_stored),
            math.exp(product(steps[place:])),
            *_counts(counted.get(len(step.context))),
        )
        for place, step in enumerate(steps)
    )
    found = _explained(lm, ids, target, -product(steps), lines, lm.normalised)
    if not formula:
        return found
    terms = tuple(
        SumLine(
            tuple(word(lm, token) for token in one.context),
            one.count,
            one.total,
            one.types,
            discount_of(lm, one),
            one.own,
            one.weight,
            one.lower,
            one.probability,
        )
        for length, one in sorted(counted.items(), reverse=True)
        if length <= len(steps[-1].context) and lm.settings.smoothing in INTERPOLATED
    )
    return replace(found, formula=formula, sums=written_out(lm, steps, target), terms=terms)


def _counts(step: SumStep | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if step is None else (step.count, step.total, step.types)


def explain_any_length(lm: AnyLengthModel, ids: list[int], target: int) -> NgramExplanation:
    """Explain how a model of n-grams of any length predicts the target after <s> and the ids."""
    found = mixture(lm, ids, target)
    probabilities, shares = found.probabilities, found.shares
    lines = [
        MixtureLine(
            tuple(word(lm, token) for token in step.context),
            step.count,
            step.total,
            step.own,
            step.weight,
            shares[place],
            probabilities[place],
        )
        for place, step in enumerate(found.steps)
    ]
    lines.append(MixtureLine(None, None, None, found.uniform, None, shares[-1], found.uniform))
    return _explained(lm, ids, target, -math.log(probabilities[0]), tuple(lines), True)


def _explained(
    lm: LanguageModel, ids: list[int], target: int, nats: float, lines: Any, normalised: bool
) -> NgramExplanation:
    read = [lm.tokenizer.bos, *ids]
    state = lm.extend(lm.start(1), np.asarray([ids], dtype=np.int64))
    return NgramExplanation(
        kind=lm.kind,
        tokens=tuple(word(lm, token) for token in read),
        target=word(lm, target),
        nats=nats,
        likely=most_likely(lm, lm.next_log_probs(state)[0]),
        lines=lines,
        normalised=normalised,
    )
