"""The smoothing method that the settings name, with parameters from the counts or from held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import device

from chainrule.arrays import array_namespace
from chainrule.ngram.estimate import smooth
from chainrule.ngram.estimate.levels import Counts
from chainrule.ngram.estimate.passes import Method, with_continuation_counts
from chainrule.ngram.estimate.tuning import HeldOut, stop_weights, sum_weights, tune_lambdas
from chainrule.ngram.settings import NgramSettings, length_name, parse_lambdas
from chainrule.ngram.workspace import IN_MEMORY, Workspace
from chainrule.system.progress import Progress

_DISCOUNTS = {
    "absolute-discounting": (smooth.one_discount, smooth.FALLBACK_ONE),
    "kneser-ney": (smooth.one_discount, smooth.FALLBACK_ONE),
    "modified-kneser-ney": (smooth.three_discounts, smooth.FALLBACK_THREE),
}
"""The closed form of the discounts of each method, and the discounts to use where it has no valid result."""


@dataclass(frozen=True)
class MethodOfCounts:
    """The counts to smooth, the method for each length of n-gram, and its parameters as metrics."""

    counts: Counts
    method: Callable[[int], Method]
    metrics: dict[str, Any] = field(default_factory=dict)


def choose_method(
    settings: NgramSettings,
    counts: Counts,
    held_out: HeldOut | None,
    progress: Progress,
    workspace: Workspace = IN_MEMORY,
) -> MethodOfCounts:
    """Return the smoothing method that the settings name, with its parameters, and the counts that it smooths."""
    name, size = settings.smoothing, counts.vocab_size - 1  # <s> is never predicted
    without_parameters: dict[str, Method] = {
        "mle": smooth.mle,
        "laplace": partial(smooth.add_k, k=1.0, vocabulary=size),
        "add-k": partial(smooth.add_k, k=settings.k, vocabulary=size),
        "witten-bell": smooth.witten_bell,
        "stupid-backoff": partial(smooth.stupid_backoff, alpha=settings.alpha),
    }
    if name in without_parameters:
        return MethodOfCounts(counts, lambda n: without_parameters[name])
    method: Callable[..., smooth.Smoothed]
    estimate: Callable[[Sequence[int]], list[float] | None]
    if name == "jelinek-mercer":
        edges = bucket_edges(settings.buckets)
        if settings.lambdas:
            lambdas = stop_weights(parse_lambdas(settings.lambdas, counts.order))[:, None]
        elif held_out is None:
            lambdas = np.full((counts.order, len(edges) + 1), 0.5)
        else:
            if held_out.is_trained_on:
                progress.note(
                    f"{settings.name}: no held-out text, so the interpolation is tuned on the text itself, each "
                    "token predicted from the counts of the others"
                )
            with progress.task("tuning the interpolation"):
                lambdas = tune_lambdas(counts, held_out, edges)
        method = partial(smooth.jelinek_mercer, edges=edges)
        return MethodOfCounts(counts, _for_each_length(method, lambdas, counts), {"lambdas": _named(lambdas)})
    if name == "katz":
        k = settings.good_turing
        method, what, metric = smooth.katz, "Good-Turing ratio", "good_turing"
        estimate, fallback, up_to = partial(smooth.good_turing_ratios, k=k), smooth.FALLBACK_RATIOS, k + 1
    else:
        method, what, metric = smooth.absolute_discounting, "discount", "discounts"
        (estimate, fallback), up_to = _DISCOUNTS[name], 4
        if name != "absolute-discounting":
            counts = with_continuation_counts(counts, workspace)
    parameters = [estimate(smooth.counts_of_counts(level.count, up_to)) or fallback for level in counts.levels]
    _note_fallback(settings, what, parameters, fallback, progress)
    rounded = [[round(value, 6) for value in values[1:]] for values in parameters]
    return MethodOfCounts(counts, _for_each_length(method, parameters, counts), {metric: rounded})


def _named(lambdas_NK: np.ndarray) -> dict[str, Any]:
    """Return the weights of a sum by the names of n-grams; with buckets, λ of each length and bucket."""
    lengths = range(len(lambdas_NK), 0, -1)
    if lambdas_NK.shape[1] > 1:
        return {length_name(n): lambdas_NK[n - 1].round(6).tolist() for n in lengths}
    names = [*map(length_name, lengths), "uniform"]
    return {name: round(weight, 6) for name, weight in zip(names, sum_weights(lambdas_NK[:, 0]), strict=True)}


def _note_fallback(
    settings: NgramSettings, what: str, parameters: list[list[float]], fallback: list[float], progress: Progress
) -> None:
    """Say which lengths have the fallback for their parameters, if any."""
    lengths = [n for n, values in enumerate(parameters, start=1) if values is fallback]
    if lengths:
        values = ", ".join(f"{value:g}" for value in fallback[1:])
        progress.note(
            f"{settings.name}: the counts of {_lengths(lengths)} give no valid {what}; falling back to {values}, "
            "as is usual for short or repetitive text"
        )


def _lengths(lengths: list[int]) -> str:
    """Return the lengths as text, such as `4- to 20-grams` or `1-, 2- and 4-grams`."""
    first, last = lengths[0], lengths[-1]
    if len(lengths) > 2 and lengths == list(range(first, last + 1)):
        return f"{first}- to {last}-grams"
    *others, latest = (f"{n}-" for n in lengths)
    return " and ".join([", ".join(others), latest] if others else [latest]) + "grams"


def _for_each_length(
    method: Callable[..., smooth.Smoothed], parameters: Iterable[Any], counts: Counts
) -> Callable[[int], Method]:
    """Give the method the parameters of each length, on the device of the counts."""
    word = counts.levels[0].word
    xp = array_namespace(word)
    arrays = [xp.asarray(values, dtype=xp.float64, device=device(word)) for values in parameters]
    return lambda n: lambda seen: method(seen, arrays[n - 1])


def bucket_edges(buckets: int) -> list[float]:
    """Return the upper ends of the buckets of context counts: 1, 2, 4, 8, ...; the last bucket is open."""
    return [float(2**i) for i in range(buckets - 1)]
