"""One prediction of an n-gram model, explained: contexts, weights, and the product or sum that gives p.

In the equations of smoothing methods (ngram/estimate/smooth.py), c(h w) is the number of times that w followed the
context h, c(h) the same for all w, T(h) the number of different w that followed h, h' is h without its first token,
and V is the number of tokens that can be predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from chainrule.explanation.explanation import Explanation, common_fields
from chainrule.explanation.reading import word, words
from chainrule.ngram.evidence import BackoffStep, SumStep, backoff_steps, mixture, predictable, product, sum_steps
from chainrule.ngram.infinite.any_length_model import AnyLengthModel
from chainrule.ngram.ngram_model import NgramModel
from chainrule.system.display import Part, ResultTable
from chainrule.system.progress import Progress

_DISCOUNTED = "p(w | h) = max(c(h w) - D, 0) / c(h) + γ(h) p(w | h')"
_CONTINUATIONS = "; below the longest n-grams, c counts the different tokens before h w"
FORMULAS = {
    "mle": "p(w | h) = c(h w) / c(h)",
    "laplace": "p(w | h) = (c(h w) + 1) / (c(h) + V)",
    "add-k": "p(w | h) = (c(h w) + k) / (c(h) + k V)",
    "jelinek-mercer": "p(w | h) = λ c(h w) / c(h) + (1 - λ) p(w | h')",
    "witten-bell": "p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h))",
    "absolute-discounting": _DISCOUNTED,
    "kneser-ney": _DISCOUNTED + _CONTINUATIONS,
    "modified-kneser-ney": _DISCOUNTED + _CONTINUATIONS,
    "katz": "p(w | h) = d c(h w) / c(h) if h w was seen, else α(h) p(w | h')",
    "stupid-backoff": "S(w | h) = c(h w) / c(h) if h w was seen, else α S(w | h')",
}
"""The equation of each smoothing method; a model that was imported or mixed has none."""
INTERPOLATED = ("jelinek-mercer", "witten-bell", "absolute-discounting", "kneser-ney", "modified-kneser-ney")
_MOST = 8  # tokens of a context that are shown
_ROUNDING = 0.05  # a count computed from stored probabilities may differ by this much from a whole number


@dataclass(frozen=True)
class BackoffLine:
    """A context in the explanation of a model that backs off."""

    context: tuple[str, ...]
    seen: bool
    """True if the context is in the model."""
    weight: float | None
    """The factor for backing off to the next shorter context; None for the last line."""
    stored: float | None
    """The probability that the model stores for the target after this context; only in the last line."""
    probability: float
    """p(target | context)"""
    count: int | None = None
    """c(h w), the count of the target after the context h; None if the model does not store it."""
    total: int | None = None
    """c(h), the sum of all such counts."""
    types: int | None = None
    """T(h), the number of different tokens seen after the context."""

    def row(self) -> list[str]:
        """Return the line as the row of a table."""
        weight, stored = ("" if value is None else f"{value:.4g}" for value in (self.weight, self.stored))
        return [_shown(self.context), "yes" if self.seen else "no", weight, stored, f"{self.probability:.4g}"]


@dataclass(frozen=True)
class MixtureLine:
    """A context in the explanation of a model that mixes contexts of all lengths; the last line is 1 / V."""

    context: tuple[str, ...] | None
    """None for the uniform distribution, which is below the empty context."""
    count: int | None
    """N(· h w), the count of the target after the context h."""
    total: int | None
    """N(· h ·), the sum of all such counts."""
    own: float
    """The part of p(target | context) that comes from these counts."""
    weight: float | None
    """λ, the weight of the next shorter context; None for the last line."""
    share: float
    """The term of this line in the model's probability: its own part times the weights of all longer contexts."""
    probability: float
    """p(target | context)"""

    def row(self) -> list[str]:
        """Return the line as the row of a table."""
        counts = ("" if count is None else f"{count:,}" for count in (self.count, self.total))
        weight = "" if self.weight is None else f"{self.weight:.4g}"
        name = "every word alike" if self.context is None else _shown(self.context)
        return [name, *counts, f"{self.own:.4g}", weight, f"{self.share:.4g}", f"{self.probability:.4g}"]


@dataclass(frozen=True, repr=False)
class NgramExplanation(Explanation):
    """The probability of one token, from the longest context to the shortest that is used."""

    lines: tuple[BackoffLine, ...] | tuple[MixtureLine, ...]
    normalised: bool
    """True if the model gives probabilities, which stupid backoff and some imported models do not."""
    formula: str = ""
    """The equation of the smoothing method; empty for a model that was imported or mixed, or mixes contexts."""
    sums: tuple[str, ...] = ()
    """The equation with its numbers, for the context whose probability is stored and the contexts mixed into it."""
    terms: tuple[dict[str, Any], ...] = ()
    """The same as numbers: those of a `SumStep` (ngram/evidence.py), and the discount D, None if there is none.

    Empty if the method does not mix in shorter contexts.
    """

    @property
    def is_probability(self) -> bool:
        return self.normalised

    @property
    def title(self) -> str:
        """The value that is explained, in one line."""
        longest = self.lines[0].context or ()
        if isinstance(self.lines[0], MixtureLine):  # perhaps only the empty context was seen
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

    def details(self) -> list[Part]:
        """Return the contexts, the longest first, and the product or sum of what they give."""
        headings = ["context", "N(· h w)", "N(· h ·)", "own part", "weight of shorter", "adds to p", "p after it"]
        if isinstance(self.lines[0], BackoffLine):
            letter = self.letter
            headings = ["context", "in the model", "backoff weight", f"stored {letter}", f"{letter} after it"]
        table = ResultTable(headings, [line.row() for line in self.lines])
        parts = [*super().details(), "", table, "", self.equation]
        if self.formula:
            parts += [self.formula, *(f"  {one}" for one in self.sums)]
        if not self.is_probability:
            parts.append("S is a score: the scores of all tokens do not sum to one, so that it is no probability")
        return parts

    def steps(self) -> dict[str, Any]:
        contexts = {"contexts": [vars(line) for line in self.lines]}
        if not self.formula:
            return contexts
        return contexts | {"formula": self.formula, "sums": list(self.sums), "terms": list(self.terms)}


def _shown(context: tuple[str, ...]) -> str:
    """Write a context: (none) for an empty one, the end and the length of a long one."""
    if len(context) > _MOST:
        return f"… {' '.join(context[-_MOST:])} ({len(context):,} tokens)"
    return " ".join(context) or "(none)"


def explain_ngram(lm: NgramModel, ids: list[int], target: int, last: int, progress: Progress) -> NgramExplanation:
    """Explain how a model of bounded order predicts the target after <s> and the ids."""
    steps, smoothing = backoff_steps(lm, ids, target), lm.settings.smoothing
    formula = FORMULAS.get(smoothing, "")
    longest = next((step.context for step in steps if step.is_seen), ())
    # the counts after each context that was seen, by its length
    counted = {len(one.context): one for one in sum_steps(lm, longest, target)} if formula else {}
    lines = []
    for place, step in enumerate(steps):
        weight, stored = (None if log is None else math.exp(log) for log in (step.log_weight, step.log_stored))
        found = counted.get(len(step.context))
        counts = (None, None, None) if found is None else (found.count, found.total, found.types)
        p = math.exp(product(steps[place:]))
        lines.append(BackoffLine(words(lm.tokenizer, step.context), step.is_seen, weight, stored, p, *counts))
    terms = [
        {
            "context": words(lm.tokenizer, one.context),
            **{name: getattr(one, name) for name in ("count", "total", "types")},
            "discount": _discount(lm, one),
            **{name: getattr(one, name) for name in ("own", "weight", "lower", "probability")},
        }
        for length, one in sorted(counted.items(), reverse=True)
        if length <= len(steps[-1].context) and smoothing in INTERPOLATED
    ]
    return NgramExplanation(
        **common_fields(lm, lm.tokenizer.bos, ids, target, -product(steps)),
        lines=tuple(lines),
        normalised=lm.normalised,
        formula=formula,
        sums=_written_out(lm, steps, target),
        terms=tuple(terms),
    )


def explain_any_length(
    lm: AnyLengthModel, ids: list[int], target: int, last: int, progress: Progress
) -> NgramExplanation:
    """Explain how a model of n-grams of any length predicts the target after <s> and the ids."""
    steps, lines, left = mixture(lm, ids, target), [], 1.0
    for step in steps:
        context, share = words(lm.tokenizer, step.context), left * step.own
        lines.append(MixtureLine(context, step.count, step.total, step.own, step.weight, share, step.probability))
        left *= step.weight
    lines.append(MixtureLine(None, None, None, lm.uniform, None, left * lm.uniform, lm.uniform))
    common = common_fields(lm, lm.tokenizer.bos, ids, target, -math.log(steps[0].probability))
    return NgramExplanation(**common, lines=tuple(lines), normalised=True)


def _written_out(lm: NgramModel, steps: list[BackoffStep], target: int) -> tuple[str, ...]:
    """Return a prediction written out by its equation: first the context that stores p, then those in its sum."""
    smoothing = lm.settings.smoothing
    if smoothing in ("laplace", "add-k"):
        return (_add_k(lm, steps[0], target),)
    if smoothing not in FORMULAS:
        return ()
    sums = sum_steps(lm, steps[-1].context, target)
    if smoothing in INTERPOLATED:
        return tuple(f"{_name(lm, one.context, target)} = {_interpolated(lm, one)}" for one in sums)
    # the stored probabilities of the other methods do not mix in shorter contexts
    count, total, p = sums[0].count, sums[0].total, sums[0].probability
    if not count or not total:
        return ()
    ratio = f"{p * total / count:.4g} · " if smoothing == "katz" else ""
    return (f"{_name(lm, sums[0].context, target)} = {ratio}{count:,} / {total:,} = {p:.4g}",)


def _interpolated(lm: NgramModel, step: SumStep) -> str:
    """own + γ p(w | h') = p, with the counts in the own part if they are known."""
    p, v = f"{step.probability:.4g}", predictable(lm)
    discounts = _discounts(lm, len(step.context) + 1)
    own = None
    if step.count is not None and step.total:
        if discounts:
            discount = _discount(lm, step) or 0.0
            own = f"({step.count:,} - {discount:.4g}) / {step.total:,}"
            if step.weight is None:  # not stored for the empty context: the rest of p is its share of 1/V
                rest = step.probability - max(step.count - discount, 0.0) / step.total
                return f"{own} + {max(rest, 0.0) * v:.4g} / {v:,} = {p}"
        elif lm.settings.smoothing == "jelinek-mercer" and step.weight is not None:
            own = f"{1 - step.weight:.4g} · {step.count:,} / {step.total:,}"
        elif step.weight is not None:
            types = f"{step.types:,}"
            return f"({step.count:,} + {types} · {step.lower:.4g}) / ({step.total:,} + {types}) = {p}"
    if step.own is None:
        return p
    known = "" if own or not discounts else f", where D = {' or '.join(f'{d:.4g}' for d in discounts)}"
    return f"{own or f'{step.own:.4g}'} + {step.weight:.4g} · {step.lower:.4g} = {p}{known}"


def _discount(lm: NgramModel, step: SumStep) -> float | None:
    """D, which is subtracted from the count of a step; None if there is none, or the count is not known."""
    discounts = _discounts(lm, len(step.context) + 1)
    if not discounts or step.count is None:
        return None
    # D of counts of 1, 2, and 3 or more, or one for all
    return discounts[min(step.count, len(discounts)) - 1] if step.count else 0.0


def _discounts(lm: NgramModel, n: int) -> list[float]:
    """D of n-grams of n tokens: one, or three for counts of 1, 2, and 3 or more; empty if the method has none."""
    every = lm.metrics.get("discounts", [])
    return list(every[n - 1]) if n <= len(every) else []


def _add_k(lm: NgramModel, whole: BackoffStep, target: int) -> str:
    """(c(h w) + k) / (c(h) + k V); counts that are not stored are computed from p and the backoff weight."""
    v, settings = predictable(lm), lm.settings
    k = 1.0 if settings.smoothing == "laplace" else settings.k
    parameters = f"V = {v:,}" if settings.smoothing == "laplace" else f"k = {k:g}, V = {v:,}"
    count = total = 0.0  # after a context that was never seen
    if whole.is_seen:
        step = sum_steps(lm, whole.context, target)[0]
        if step.count is not None and step.total is not None:
            count, total = float(step.count), float(step.total)
        elif step.weight is not None:
            total = k * v * (1 / step.weight - 1)  # γ(h) = k V / (c(h) + k V)
            count = step.probability * (total + k * v) - k
        else:
            return parameters
    if max(abs(count - round(count)), abs(total - round(total))) > _ROUNDING:  # of rounded or pruned probabilities
        return parameters
    p = (round(count) + k) / (round(total) + k * v)
    named, added = _name(lm, whole.context, target), f"{v:,}" if k == 1 else f"{k:g} · {v:,}"
    return f"{named} = ({round(count):,} + {k:g}) / ({round(total):,} + {added}) = {p:.4g}, {parameters}"


def _name(lm: NgramModel, context: tuple[int, ...], target: int) -> str:
    given = f" | {' '.join(words(lm.tokenizer, context))}" if context else ""
    return f"{'p' if lm.normalised else 'S'}({word(lm.tokenizer, target)}{given})"
