"""From counts to probabilities: a smoothing method applied to all levels, from short n-grams to long ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from array_api_compat import device, is_numpy_array

from chainrule.arrays import Array, array_namespace
from chainrule.ngram.estimate.levels import Counts, Level
from chainrule.ngram.estimate.smooth import Seen, Smoothed
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.workspace import IN_MEMORY, Workspace, give_back_memory
from chainrule.system.parallel import worth_a_kernel
from chainrule.system.progress import SILENT, Progress

NGRAMS_AT_ONCE = 1 << 16
"""How many n-grams one thread smooths at a time: few enough for its cache."""

_NANOSECONDS = 64  # to count an n-gram with NumPy
_COUNTED_AT_ONCE = 1 << 26  # n-grams that a worker counts at a time, each time reading the whole level above

Method = Callable[[Seen], Smoothed]


def logarithms(array: Array, workspace: Workspace = IN_MEMORY) -> Array:
    """Return the natural logarithms of an array, in its place; in another array where work may be done twice."""
    if not is_numpy_array(array):
        return array_namespace(array).log(array)
    logs = workspace.empty(len(array), array.dtype) if workspace.executor.is_remote else array

    def log(first: int) -> None:
        part = slice(first, first + NGRAMS_AT_ONCE)
        with np.errstate(divide="ignore"):
            np.log(array[part], out=logs[part])

    for _ in workspace.in_order(log, range(0, len(array), NGRAMS_AT_ONCE)):
        pass
    return logs


def with_continuation_counts(counts: Counts, workspace: Workspace = IN_MEMORY) -> Counts:
    """Return the counts of Kneser-Ney: the number of different words before each n-gram, except for the longest.

    N-grams that begin with <s> have no word before them, and keep their counts.
    """

    pieces = [
        (n, first)
        for n, level in enumerate(counts.levels[:-1], start=1)
        for first in range(0, len(level), _COUNTED_AT_ONCE)
    ]
    different = [_empty(counts, len(level), workspace, level.count.dtype) for level in counts.levels[:-1]]

    def count(piece: tuple[int, int]) -> None:
        n, first = piece
        below, above = counts.levels[n - 1], counts.levels[n]
        last = min(first + _COUNTED_AT_ONCE, len(below))
        # never more than the count of the n-gram, whose type is thus wide enough
        found = _count_places(above.suffix, first, last, below.count.dtype)
        from_start = counts.starting_with_bos(n)
        kept = slice(max(from_start.start, first), min(from_start.stop, last))
        if kept.start < kept.stop:
            found[kept.start - first : kept.stop - first] = below.count[kept]
        different[n - 1][first:last] = found

    for _ in workspace.executor.in_order(count, pieces):
        workspace.release()
    levels = [
        Level(level.word, found, level.begin, level.suffix)
        for level, found in zip(counts.levels, different, strict=False)
    ]
    return Counts(counts.vocab_size, counts.bos, [*levels, counts.levels[-1]])


def smooth_levels(
    counts: Counts,
    method: Callable[[int], Method],
    kept: list[Array] | None = None,
    workspace: Workspace = IN_MEMORY,
    progress: Progress = SILENT,
    *,
    consume: bool = False,
) -> tuple[Array, Array]:
    """Return p(w | h) of every n-gram and the backoff of every context, level after level.

    `method(n)` is the method for n-grams of n words, `kept` masks those not pruned. The empty context has no
    backoff, because every word is a unigram. With `consume`, the counts and suffixes of each level are freed as
    soon as they have been used.
    """
    xp = array_namespace(counts.levels[0].word)
    sizes = [len(level) for level in counts.levels]
    first = [0, *accumulate(sizes)]
    every_prob, every_backoff = (_empty(counts, size, workspace, xp.float32) for size in (first[-1], first[-2]))
    # below the unigrams: uniform over all words except <s>
    size = counts.vocab_size
    below = xp.full(size, 1.0 / (size - 1), dtype=xp.float64, device=device(counts.levels[0].word))
    below[int(codes_of_words(size)[counts.bos])] = 0.0
    with progress.task("smoothing", first[-1], "n-grams") as task:
        for n, level in enumerate(counts.levels, start=1):
            prob = every_prob[first[n - 1] : first[n]]
            backoff = every_backoff[first[n - 2] : first[n - 1]] if n > 1 else None
            smooth = partial(_smooth, counts, n, method(n), below, kept[n - 1] if kept else None, prob, backoff)
            for _, done in workspace.in_order(smooth, _stretches(level)):
                task.advance(done)
            below = prob
            give_back_memory()
            if consume:
                level.count = level.suffix = level.begin[:0]
            workspace.release()
    return every_prob, every_backoff


def _smooth(
    counts: Counts, n: int, method: Method, below: Array, kept: Array | None, prob: Array, backoff: Array | None,
    stretch: tuple[int, int],
) -> int:  # fmt: skip
    """Smooth the n-grams of a stretch of the contexts of one level; returns their number."""
    xp = array_namespace(prob)
    first, last = stretch
    level = counts.levels[n - 1]
    begin = xp.astype(level.begin[first : last + 1], xp.int64)
    ngrams = slice(int(begin[0]), int(begin[-1]))
    lower = below if n == 1 else below[xp.astype(level.suffix[ngrams], xp.int64)]
    is_full = xp.full(last - first, n == counts.order, dtype=xp.bool, device=device(prob))
    if 1 < n < counts.order:
        from_start = counts.starting_with_bos(n - 1)
        is_full[max(from_start.start - first, 0) : max(from_start.stop - first, 0)] = True
    own_kept = None if kept is None else kept[ngrams]
    seen = Seen(level.count[ngrams], begin - begin[0], xp.astype(lower, xp.float64), is_full, own_kept)
    smoothed, factor = method(seen)
    prob[ngrams] = xp.astype(smoothed, xp.float32)
    if backoff is not None:
        backoff[first:last] = xp.astype(factor, xp.float32)
    return ngrams.stop - ngrams.start


def _empty(counts: Counts, size: int, workspace: Workspace, dtype: Any) -> Array:
    xp = array_namespace(counts.levels[0].word)
    if workspace.spills:
        return workspace.empty(size, dtype)
    return xp.empty(size, dtype=dtype, device=device(counts.levels[0].word))


def _stretches(level: Level) -> Iterator[tuple[int, int]]:
    """Ranges of contexts that have about `NGRAMS_AT_ONCE` n-grams each; on a GPU, one range of all contexts."""
    contexts = level.begin.shape[0] - 1
    first = 0
    while first < contexts:
        last = contexts
        if is_numpy_array(level.begin):
            wanted = int(level.begin[first]) + NGRAMS_AT_ONCE
            last = int(np.searchsorted(level.begin, np.asarray(wanted, dtype=level.begin.dtype), side="right")) - 1
            last = min(max(last, first + 1), contexts)
        yield first, last
        first = last


def _count_places(places: Array, first: int, last: int, dtype: Any) -> Array:
    """Count how often each index from `first` to `last` - 1 occurs in `places`."""
    if not is_numpy_array(places):
        import torch

        return torch.bincount(places, minlength=last)[first:last]
    if not worth_a_kernel(len(places), _NANOSECONDS):
        return np.bincount(places, minlength=last)[first:last].astype(dtype)
    from chainrule.ngram.estimate.kernels import count_places

    return count_places(places, first, np.zeros(last - first, dtype=dtype))
