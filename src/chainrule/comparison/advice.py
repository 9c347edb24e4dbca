"""Advice: which model to take, by the differences that the test text shows and by what each model costs.

It also says when a network would overtake a better model. Twice the time lowers the loss of a network by about what
the second half of its training gained, and by less the more often it has read its text:

    gain of a doubling = second half * min(1.2, 0.8 / epochs^0.45)

The numbers were fitted to LSTMs and Transformers on five texts, each trained for some lengths of time (the figures
are in benchmarks/results/comparison.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from chainrule.comparison.results import COSTS, Comparison, Result

NEAR = 0.05
"""A model is nearly as good as another if its loss is higher by this share at most."""
_WORTH_SAYING = 2.0  # times as cheap
_GAINS = {
    "training_seconds": "trains {}x as fast",
    "tokens_per_second": "scores text {}x as fast",
    "megabytes": "is {}x as small",
}
MOST_TIMES = 8.0
"""The longest training, in times of the measured one, that a curve is continued to."""
OFF_BY = 1.5
"""Four of five predictions on other texts were wrong by less than this factor."""

_GAIN, _FALL, _MOST_GAIN = 0.8, 0.45, 1.2
_STEP = 1 / 32  # of a doubling


def pick(comparison: Comparison) -> Result | None:
    """Return the cheapest model that the test text cannot tell from the best; None if none has a finite loss."""
    best = comparison.best
    if best is None or not best.has_finite_loss:
        return None
    return max([best, *comparison.equal_to_best], key=lambda one: _cheapness(one, best))


def advise(comparison: Comparison) -> str | None:
    """Return which model to take, and which to take for less; None if no model has a finite loss."""
    return " ".join(sentences(comparison)) or None


def sentences(comparison: Comparison) -> list[str]:
    """Return the advice: the model to take, models that are nearly as good for less, and what more time gives."""
    best, picked = comparison.best, pick(comparison)
    if best is None or picked is None:
        return []
    return [_why(comparison, picked, best), *_cheaper(comparison, picked), *_overtaking(comparison)]


def _why(comparison: Comparison, picked: Result, best: Result) -> str:
    if picked is not best:
        gains = "".join(f", and it {gain}" for gain in [joined(_gains(picked, best))] if gain)
        return f"Take {picked.name}: the test text cannot tell it from {best.name}, the best{gains}."
    if comparison.equal_to_best:
        others = joined([one.name for one in comparison.equal_to_best])
        return f"Take {best.name}: the test text cannot tell it from {others}, and it costs least of them."
    return f"Take {best.name} for quality."


def _cheaper(comparison: Comparison, picked: Result) -> list[str]:
    """Return a sentence for each model that is nearly as good, and much cheaper than all that are better."""
    near = [one for one in comparison.comparable if picked.rank < one.rank <= picked.rank * (1 + NEAR)]
    listed: list[Result] = []
    for one in sorted(near, key=lambda one: one.rank):
        if all(_gains_at(one, picked) & _gains_at(one, better) for better in (picked, *listed)):
            listed.append(one)
    return [
        f"For less: {one.name} {joined(_gains(one, picked))}; its {comparison.loss_name} "
        f"{'are' if comparison.is_of_text else 'is'} {one.rank / picked.rank - 1:.1%} higher."
        for one in listed
    ]


def _overtaking(comparison: Comparison) -> list[str]:
    """Return when the best network would pass the best model that is counted, if that is better."""
    ranked = sorted((one for one in comparison.comparable if one.has_finite_loss), key=lambda one: one.rank)
    network = next((one for one in ranked if one.second_half is not None), None)
    counted = next((one for one in ranked if one.flops_per_token is None), None)
    if network is None or counted is None or network.rank <= counted.rank or not network.epochs:
        return []
    needed = times_to_gain(network.rank - counted.rank, network.second_half or 0.0, network.epochs)
    if needed is None:
        return [
            f"By its learning curve, {network.name} would not pass {counted.name} in {MOST_TIMES:.0f} times its "
            f"{_duration(network.training_seconds)} of training."
        ]
    times = needed, max(1.0, needed / OFF_BY), needed * OFF_BY
    about, low, high = (_duration(network.training_seconds * one) for one in times)
    return [
        f"By its learning curve, {network.name} would pass {counted.name} after about {about} of training "
        f"({low} to {high}) instead of {_duration(network.training_seconds)}."
    ]


def _duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> _duration(48.2), _duration(400), _duration(9000)
    ('48 s', '6.7 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.2g} minutes" if seconds < 5400 else f"{seconds / 3600:.2g} hours"


def _gains(one: Result, than: Result) -> list[str]:
    """Return in words in which respects a model is much cheaper than another."""
    much = _gains_at(one, than)
    return [text.format(f"{COSTS[key].gain(one, than):,.0f}") for key, text in _GAINS.items() if key in much]


def _gains_at(one: Result, than: Result) -> set[str]:
    """Return the costs at which a model is much cheaper than another."""
    return {key for key in _GAINS if COSTS[key].gain(one, than) >= _WORTH_SAYING}


def _cheapness(one: Result, than: Result) -> float:
    """Return how many times as cheap as another a model is: the mean of the logarithms over its costs."""
    gains = [gain for key in _GAINS if (gain := COSTS[key].gain(one, than)) > 0]
    return sum(map(math.log, gains)) / len(gains) if gains else 0.0


def joined(parts: Sequence[str]) -> str:
    """Return the parts as a list of a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


# -- learning curves, continued ---------------------------------------------------------------------------


def second_half(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Return by how much the validation loss fell over the second half of a training; None if that is not known.

    >>> second_half([{"step": step, "validation_loss": loss} for step, loss in ((10, 5.0), (20, 4.0), (40, 3.5))])
    0.5
    """
    points = [(one["step"], one["validation_loss"]) for one in history if one.get("validation_loss") is not None]
    if len(points) < 2:
        return None
    last, loss = points[-1]
    before = [point for point in points if point[0] <= last / 2]
    after = next(point for point in points if point[0] > last / 2)
    if not before:
        return None
    share = (last / 2 - before[-1][0]) / (after[0] - before[-1][0])
    return float(before[-1][1] + share * (after[1] - before[-1][1]) - loss)


def times_to_gain(gain: float, half: float, epochs: float) -> float | None:
    """Return how many times as long a network must train to lower its loss by `gain`; None: more than MOST_TIMES.

    `half` is what the second half of its training gained, and `epochs` how often it has read the text.

    >>> times_to_gain(0.0, half=0.3, epochs=1.0), times_to_gain(2.0, half=0.3, epochs=1.0)
    (1.0, None)
    >>> round(times_to_gain(0.2, half=0.3, epochs=1.0), 1)
    2.0
    """
    times, gained = 1.0, 0.0
    while gained < gain:
        gained += _STEP * half * min(_MOST_GAIN, _GAIN / max(epochs * times, 1e-9) ** _FALL)
        times *= 2**_STEP
        if times > MOST_TIMES or half <= 0:
            return None
    return times
