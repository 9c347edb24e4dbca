"""The equation of each smoothing method, and a stored probability written out by it.

c(h w) is how often w followed the context h, c(h) the same for all w, T(h) how many different w did, h' is h
without its first token, and V the number of tokens that can be predicted. The methods themselves are in
ngram/estimate/smooth.py.
"""

from __future__ import annotations

from chainrule.explanation.reading import word
from chainrule.ngram.evidence import BackoffStep, SumStep, predictable, sum_steps
from chainrule.ngram.model import NgramModel

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
"""By the name of the method; a model that was imported or mixed has none."""
INTERPOLATED = ("jelinek-mercer", "witten-bell", "absolute-discounting", "kneser-ney", "modified-kneser-ney")
_ROUNDING = 0.05  # how far from a whole number a count may be that is worked out from stored probabilities


def written_out(lm: NgramModel, steps: list[BackoffStep], target: int) -> tuple[str, ...]:
    """A prediction by the equation of its method: the context for which p is stored, then those in its sum."""
    smoothing = lm.settings.smoothing
    if smoothing in ("laplace", "add-k"):
        return (_add_k(lm, steps[0], target),)
    if smoothing not in FORMULAS:
        return ()
    sums = sum_steps(lm, steps[-1].context, target)
    if smoothing in INTERPOLATED:
        return tuple(f"{_name(lm, one.context, target)} = {_interpolated(lm, one)}" for one in sums)
    # the others have nothing of shorter contexts in what is stored
    count, total, p = sums[0].count, sums[0].total, sums[0].probability
    if not count or not total:
        return ()
    ratio = f"{p * total / count:.4g} · " if smoothing == "katz" else ""
    return (f"{_name(lm, sums[0].context, target)} = {ratio}{count:,} / {total:,} = {p:.4g}",)


def _interpolated(lm: NgramModel, step: SumStep) -> str:
    """own + γ p(w | h') = p, with the counts that make its own part where they are known."""
    p, v = f"{step.probability:.4g}", predictable(lm)
    discounts = _discounts(lm, len(step.context) + 1)
    own = None
    if step.count is not None and step.total:
        if discounts:
            discount = discount_of(lm, step) or 0.0
            own = f"({step.count:,} - {discount:.4g}) / {step.total:,}"
            if step.weight is None:  # that of the empty context is not stored: it is what 1/V has of p
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


def discount_of(lm: NgramModel, step: SumStep) -> float | None:
    """D, which is taken off the count of a step; None where there is none, or the count is not known."""
    discounts = _discounts(lm, len(step.context) + 1)
    if not discounts or step.count is None:
        return None
    # D of counts of 1, 2, and 3 or more, or one for all
    return discounts[min(step.count, len(discounts)) - 1] if step.count else 0.0


def _discounts(lm: NgramModel, n: int) -> list[float]:
    """D of n-grams of n tokens: one, or those of counts of 1, 2, and 3 or more; none where the method has none."""
    every = lm.metrics.get("discounts", [])
    return list(every[n - 1]) if n <= len(every) else []


def _add_k(lm: NgramModel, whole: BackoffStep, target: int) -> str:
    """(c(h w) + k) / (c(h) + k V): counts that are not kept follow from p and from the backoff weight."""
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
    given = f" | {' '.join(word(lm, token) for token in context)}" if context else ""
    return f"{'p' if lm.normalised else 'S'}({word(lm, target)}{given})"
