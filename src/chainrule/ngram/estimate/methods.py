"""The smoothing method that settings name, with its parameters taken from the counts or from held-out text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from chainrule.errors import SettingsError
from chainrule.ngram.estimate import smooth
from chainrule.ngram.estimate.levels import Counts
from chainrule.ngram.estimate.passes import Method, with_continuation_counts
from chainrule.ngram.estimate.tuning import HeldOut, tune_lambdas
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.workspace import IN_MEMORY, Workspace
from chainrule.system.progress import Progress


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
    """The smoothing method that the settings name, with its parameters, and the counts that it smooths."""
    name = settings.smoothing
    if name == "mle":
        return MethodOfCounts(counts, lambda n: smooth.mle)
    if name in ("laplace", "add-k"):
        k = 1.0 if name == "laplace" else settings.k
        return MethodOfCounts(counts, lambda n: lambda seen: smooth.add_k(seen, k, counts.vocab_size - 1))
    if name == "witten-bell":
        return MethodOfCounts(counts, lambda n: smooth.witten_bell)
    if name == "stupid-backoff":
        return MethodOfCounts(counts, lambda n: lambda seen: smooth.stupid_backoff(seen, settings.alpha))
    if name == "jelinek-mercer":
        return _jelinek_mercer(settings, counts, held_out, progress)
    if name == "katz":
        ratios = _good_turing(settings, counts, progress)
        return MethodOfCounts(counts, _with(smooth.katz, ratios, counts), {"good_turing": _rounded(ratios)})
    if name not in ("absolute-discounting", "kneser-ney", "modified-kneser-ney"):
        raise SettingsError(f"there is no smoothing method {name!r}")
    if name != "absolute-discounting":
        counts = with_continuation_counts(counts, workspace)
    closed_form, fallback = (
        (smooth.three_discounts, smooth.FALLBACK_THREE)
        if name == "modified-kneser-ney"
        else (smooth.one_discount, smooth.FALLBACK_ONE)
    )
    discounts = _discounts(settings, counts, closed_form, fallback, progress)
    return MethodOfCounts(
        counts, _with(smooth.absolute_discounting, discounts, counts), {"discounts": _rounded(discounts)}
    )


def _discounts(
    settings: NgramSettings,
    counts: Counts,
    closed_form: Callable[[Sequence[int]], list[float] | None],
    fallback: list[float],
    progress: Progress,
) -> list[list[float]]:
    """The discounts of each length, from its counts of counts; the fallback, with a note, if those give none."""
    found = [closed_form(smooth.counts_of_counts(level.count, 4)) for level in counts.levels]
    discounts = [values or fallback for values in found]
    _note_fallback(settings, "discount", discounts, fallback, progress)
    return discounts


def _good_turing(settings: NgramSettings, counts: Counts, progress: Progress) -> list[list[float]]:
    """The Good-Turing ratios of each length; a note names those whose counts of counts give none."""
    k = settings.good_turing
    found = [smooth.good_turing_ratios(smooth.counts_of_counts(level.count, k + 1), k) for level in counts.levels]
    _note_fallback(settings, "Good-Turing ratio", found, smooth.FALLBACK_RATIOS, progress)
    return found


def _note_fallback(
    settings: NgramSettings, what: str, parameters: list[list[float]], fallback: list[float], progress: Progress
) -> None:
    """Say which lengths have the fallback for their parameters, if any."""
    lengths = [n for n, values in enumerate(parameters, start=1) if values is fallback]
    if lengths:
        values = ", ".join(f"{value:g}" for value in fallback[1:])
        progress.note(
            f"{settings.name}: the counts of {_lengths(lengths)} give no valid {what}; falling back to {values}"
        )


def _lengths(lengths: list[int]) -> str:
    """The lengths as text, such as `4- to 20-grams` or `1- and 3-grams`."""
    first, last = lengths[0], lengths[-1]
    if len(lengths) > 2 and lengths == list(range(first, last + 1)):
        return f"{first}- to {last}-grams"
    return " and ".join(f"{n}-" for n in lengths) + "grams"


def _with(function: Callable[..., smooth.Smoothed], parameters: list[list[float]], counts: Counts) -> Any:
    """The method for each length: the function with that length's parameters, on the device of the counts."""
    word = counts.levels[0].word
    xp = array_namespace(word)
    arrays = [xp.asarray(values, dtype=xp.float64, device=device(word)) for values in parameters]
    return lambda n: lambda seen: function(seen, arrays[n - 1])


def _rounded(parameters: list[list[float]]) -> list[list[float]]:
    return [[round(value, 6) for value in values[1:]] for values in parameters]


def _jelinek_mercer(
    settings: NgramSettings, counts: Counts, held_out: HeldOut | None, progress: Progress
) -> MethodOfCounts:
    edges = bucket_edges(settings.buckets)
    if held_out is None:
        progress.note(f"{settings.name}: no held-out text to tune the interpolation on: every weight is 1/2")
        lambdas = np.full((counts.order, len(edges) + 1), 0.5)
    else:
        with progress.task("tuning the interpolation"):
            lambdas = tune_lambdas(counts, held_out, edges)
    metrics = {"lambdas": lambdas.round(6).squeeze(axis=1).tolist() if not edges else lambdas.round(6).tolist()}
    word = counts.levels[0].word
    xp = array_namespace(word)
    weights = xp.asarray(lambdas, dtype=xp.float64, device=device(word))
    return MethodOfCounts(
        counts, lambda n: lambda seen: smooth.jelinek_mercer(seen, weights[n - 1], edges), metrics
    )


def bucket_edges(buckets: int) -> list[float]:
    """The upper ends of the buckets of context counts: 1, 2, 4, 8, ...; the last bucket is open."""
    return [float(2**i) for i in range(buckets - 1)]
