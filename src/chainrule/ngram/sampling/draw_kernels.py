"""Numba kernels that draw from a distribution given as sorted lists (cut_kernels.py), of which prefixes are kept.

The mass of the kept tokens is summed over `BUCKETS` ranges of ids, then over the ids of one range. For the first
sum a list has histograms, one for every `BLOCK` pairs; for the second its pairs are stored in the order of ids too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.cut_kernels import GATHERED, PENALISED, STORED, effective, penalised, value_at_place
from chainrule.ngram.store.compiled import inner, kernel, rank_of

BLOCK = 256
"""The number of pairs of a list from one histogram to the next."""
BUCKETS = 256

_LEAST_LEFT = np.exp(-12.0)  # times the mass of the most likely token in any list, removed or not


class Lists(NamedTuple):
    """The pairs of all lists, one list after the other; and the pairs of each list in the order of ids."""

    ids: Any
    """The tokens, as int32."""
    values: Any
    mass: Any
    """For each power β: the prefix sums of exp(β (value - the list's largest value)), [powers, pairs]."""
    rows: Any
    """The histograms: after every `BLOCK` pairs of a list, the mass so far by bucket, for the last power."""
    ids_by_id: Any
    place_by_id: Any
    """The place of each token in the list."""
    mass_by_id: Any
    """The mass of each token alone, for the last power."""
    times: Any
    """The count of each token in lists of penalised tokens."""


@inner
def rows_for(size: int) -> Any:
    """Return the number of histograms of a list: after each block and the last pair; 0 for less than a block."""
    return (size + BLOCK - 1) // BLOCK if size >= BLOCK else 0


@kernel
def trailing_bits(vocab_size: int) -> Any:
    """Return the number of bits by which an id is shifted to give its bucket."""
    shift = 0
    while (vocab_size - 1) >> shift >= BUCKETS:
        shift += 1
    return shift


@inner
def draw(
    stack: Any, many: int, lists: Any, factor: Any, uniform: float, shift: int, best: float, top: int, backoff: Any,
    plan: Any, values: Any, text: Any, work: Any,
) -> Any:  # fmt: skip
    """Return the first token x with Σ_{y <= x} p(y) > u Σ p(y) over the kept tokens.

    The bucket of a token is its id shifted right by `shift`. Masses are relative to e^`best`. `work` has room for 3
    numbers per bucket and per id of a bucket. Returns -1 if no token is kept, if too little mass is left for exact
    sums, or if rounding makes the tokens of the bucket lighter than the bucket.
    """
    by_bucket = work[0]
    total = _bucket_masses(stack, many, lists, factor, shift, by_bucket)
    if not total > _LEAST_LEFT:
        return -1
    left, bucket = uniform * total, 0
    while bucket < BUCKETS - 1 and by_bucket[bucket] <= left:
        left -= by_bucket[bucket]
        bucket += 1
    _weigh(stack, many, lists, factor, shift, bucket, best, top, backoff, plan, values, text, work)
    running = 0.0
    for k in range(1 << shift):
        if work[2, k] > 0.5:
            running += work[1, k]
            if running > left:
                return (bucket << shift) + k
    return -1


@inner
def _bucket_masses(stack: Any, many: int, lists: Any, factor: Any, shift: int, by_bucket: Any) -> Any:
    """Write the mass of the kept tokens of each bucket; returns their sum."""
    power = factor.shape[1] - 1
    ids, mass, rows = lists.ids, lists.mass, lists.rows
    by_bucket[:BUCKETS] = 0.0
    for j in range(many):
        kept, start, place = stack[j].kept, stack[j].start, 0
        scale = stack[j].sign * factor[j, power]
        if stack[j].row >= 0 and kept >= BLOCK:
            blocks = (kept + BLOCK - 1) // BLOCK if kept == stack[j].size else kept // BLOCK
            row = stack[j].row + blocks - 1
            for b in range(BUCKETS):
                by_bucket[b] += scale * rows[row, b]
            place = min(blocks * BLOCK, kept)
        before = mass[power, start + place - 1] if place > 0 else 0.0
        for k in range(start + place, start + kept):
            here = mass[power, k]
            by_bucket[ids[k] >> shift] += scale * (here - before)
            before = here
    total = 0.0
    for b in range(BUCKETS):
        by_bucket[b] = max(by_bucket[b], 0.0)
        total += by_bucket[b]
    return total


@inner
def _weigh(
    stack: Any, many: int, lists: Any, factor: Any, shift: int, bucket: int, best: float, top: int, backoff: Any,
    plan: Any, values: Any, text: Any, work: Any,
) -> None:  # fmt: skip
    """Write the mass of each token of a bucket to `work`, and a number above 0 if the token is kept.

    The lists of occurred and of penalised tokens hold tokens of the stored list before them, and are skipped.
    """
    weight, times, power = work[1], work[2], factor.shape[1] - 1
    ids, mass, places = lists.ids_by_id, lists.mass_by_id, lists.place_by_id
    first, width = bucket << shift, 1 << shift
    weight[:width] = 0.0
    times[:width] = 0.0
    for j in range(many):
        sign, start, kept = stack[j].sign, stack[j].start, stack[j].kept
        scale = sign * factor[j, power]
        if stack[j].kind == GATHERED:
            for k, token in enumerate(lists.ids[start : start + kept], start):
                if first <= token < first + width:
                    before = lists.mass[power, k - 1] if k > start else 0.0
                    weight[token - first] += scale * (lists.mass[power, k] - before)
                    times[token - first] += sign
        if stack[j].kind != STORED:
            continue
        if plan.looks_back and j + 2 < many and stack[j + 2].kind == PENALISED:
            _weigh_occurred(stack, j, lists, scale, first, width, best, top, backoff, plan, values, text, work)
            continue
        for k in range(rank_of(ids, start, start + stack[j].size, first), start + stack[j].size):
            token = ids[k] - first
            if token >= width:
                break
            is_kept = np.float64(places[k] < kept)  # a factor, not a branch, which could not be predicted
            weight[token] += scale * is_kept * mass[k]
            times[token] += sign * is_kept


@inner
def _weigh_occurred(
    stack: Any, j: int, lists: Any, scale: float, first: int, width: int, best: float, top: int, backoff: Any,
    plan: Any, values: Any, text: Any, work: Any,
) -> None:  # fmt: skip
    """Do the same for a stored list of which tokens occurred in the text: those have their penalised ln p.

    Such a token is kept unless it comes after the last kept pair of the list of penalised tokens, `beside`.
    """
    ids, places, beta, beside = lists.ids_by_id, lists.place_by_id, plan.betas[len(plan.betas) - 1], j + 2
    sign, start, kept = stack[j].sign, stack[j].start, stack[beside].kept
    least, last = np.inf if kept == 0 else -np.inf, np.int64(0)
    if 0 < kept < stack[beside].size:
        least = value_at_place(stack, beside, kept - 1, values, top, backoff)
        last = np.int64(lists.ids[stack[beside].start + kept - 1])
    for k in range(rank_of(ids, start, start + stack[j].size, first), start + stack[j].size):
        token, count = ids[k] - first, text.listed_counts[ids[k]]
        if token >= width:
            break
        if count == 0:
            is_kept = np.float64(places[k] < stack[j].kept)
            work[1, token] += scale * is_kept * lists.mass_by_id[k]
            work[2, token] += sign * is_kept
            continue
        value = penalised(effective(lists.values[start + places[k]], stack[j].level, top, backoff), count, plan)
        if value > least or (value == least and ids[k] <= last):
            work[1, token] += sign * np.exp(beta * (value - best))
            work[2, token] += sign
