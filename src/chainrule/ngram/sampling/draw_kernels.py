"""Numba kernels that draw from a distribution given as sorted lists (cut_kernels.py), of which prefixes are kept.

The mass of the kept tokens is summed over ranges of ids (`BUCKETS` of them), then over the ids of one range. Prefix
sums by range for every `BLOCK` pairs of a list, and the list once more in the order of its ids, make that short.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.compiled import inner, kernel
from chainrule.ngram.sampling.cut_kernels import (
    BESIDE,
    GATHERED,
    KEPT,
    KIND,
    LEVEL,
    ROW,
    SIGN,
    SIZE,
    START,
    STORED,
    effective,
    value_at_place,
)
from chainrule.ngram.sampling.past_kernels import penalised

BLOCK = 256
"""The number of pairs of a list from one stored histogram to the next."""
BUCKETS = 256

_LEAST_LEFT = np.exp(-12.0)  # of the mass of the most likely token in any list, taken out or not


class Lists(NamedTuple):
    """The pairs of all lists, one list after the other; and once more in the order of ids."""

    ids: Any
    """The tokens, as int32."""
    values: Any
    mass: Any
    """For each power β: the prefix sums of exp(β (value - the list's largest value)), [powers, pairs]."""
    rows: Any
    """For every `BLOCK` pairs of a list: the mass of all pairs up to there by bucket of ids, for the last power."""
    ids_by_id: Any
    place_by_id: Any
    """Where the list has this token."""
    mass_by_id: Any
    """The mass of this token alone, for the last power."""
    times: Any
    """In lists of penalised tokens: how often each token occurred."""


@inner
def rows_for(size: int) -> Any:
    """The number of rows of a list: after every block and the last pair; none for a list of less than a block."""
    return (size + BLOCK - 1) // BLOCK if size >= BLOCK else 0


@kernel
def trailing_bits(vocab_size: int) -> Any:
    """By how many bits an id is shifted to give its bucket."""
    shift = 0
    while (vocab_size - 1) >> shift >= BUCKETS:
        shift += 1
    return shift


@inner
def draw(
    stack: Any, many: int, lists: Any, factor: Any, uniform: float, shift: int, work: Any, best: float, top: int,
    backoff: Any, beta: float, values: Any, past: Any,
) -> Any:  # fmt: skip
    """The first token x with Σ_{y <= x} p(y) > u Σ p(y) over the kept tokens; -1 if there is none.

    The bucket of a token is its id shifted right by `shift`. `work` has room for 3 numbers per bucket and per id
    of a bucket. `best` is the ln p that masses are relative to. -1, too, if too little is left for exact sums.
    """
    by_bucket = work[0]
    total = _bucket_masses(stack, many, lists, factor, shift, by_bucket)
    if not total > _LEAST_LEFT:
        return -1
    left, bucket = uniform * total, 0
    while bucket < BUCKETS - 1 and by_bucket[bucket] <= left:
        left -= by_bucket[bucket]
        bucket += 1
    later, step = bucket, 1
    while later >= 0:  # more than one round only if rounding leaves a bucket too short
        _weigh(stack, many, lists, factor, shift, later, work, best, top, backoff, beta, values, past)
        token = _first_above(left, 1 << shift, work)
        if token >= 0:
            return (later << shift) + token
        left = 0.0 if step > 0 else np.inf
        if later == BUCKETS - 1:
            later, step, left = bucket, -1, np.inf
        later += step
    return -1


@inner
def _bucket_masses(stack: Any, many: int, lists: Any, factor: Any, shift: int, by_bucket: Any) -> Any:
    """Write the mass of the kept tokens of each bucket; returns their sum."""
    power = factor.shape[1] - 1
    ids, mass, rows = lists.ids, lists.mass, lists.rows
    by_bucket[:BUCKETS] = 0.0
    for j in range(many):
        kept, start, place = stack[j, KEPT], stack[j, START], 0
        scale = stack[j, SIGN] * factor[j, power]
        if stack[j, ROW] >= 0 and kept >= BLOCK:
            blocks = (kept + BLOCK - 1) // BLOCK if kept == stack[j, SIZE] else kept // BLOCK
            row = stack[j, ROW] + blocks - 1
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
    stack: Any, many: int, lists: Any, factor: Any, shift: int, bucket: int, work: Any, best: float, top: int,
    backoff: Any, beta: float, values: Any, past: Any,
) -> None:  # fmt: skip
    """Write the mass of each token of a bucket to `work`, and whether it is kept: how often, less taken out."""
    weight, times, power = work[1], work[2], factor.shape[1] - 1
    ids, mass, places = lists.ids_by_id, lists.mass_by_id, lists.place_by_id
    first, width = bucket << shift, 1 << shift
    weight[:width] = 0.0
    times[:width] = 0.0
    for j in range(many):
        sign, start, kept = stack[j, SIGN], stack[j, START], stack[j, KEPT]
        scale = sign * factor[j, power]
        if stack[j, KIND] == GATHERED:
            before = 0.0
            for k in range(start, start + kept):
                token, here = lists.ids[k] - first, lists.mass[power, k]
                if 0 <= token < width:
                    weight[token] += scale * (here - before)
                    times[token] += sign
                before = here
            continue
        if stack[j, KIND] != STORED:
            continue  # the stored list that they stand beside has their tokens
        if stack[j, BESIDE] >= 0:
            _weigh_penalised(stack, j, lists, scale, first, width, work, best, top, backoff, beta, values, past)
            continue
        for k in range(from_id(ids, start, start + stack[j, SIZE], first), start + stack[j, SIZE]):
            token = ids[k] - first
            if token >= width:
                break
            is_kept = np.float64(places[k] < kept)  # a factor, not a branch, which could not be predicted
            weight[token] += scale * is_kept * mass[k]
            times[token] += sign * is_kept


@inner
def _weigh_penalised(
    stack: Any, j: int, lists: Any, scale: float, first: int, width: int, work: Any, best: float, top: int,
    backoff: Any, beta: float, values: Any, past: Any,
) -> None:  # fmt: skip
    """`_weigh` for a stored list of which some tokens are penalised."""
    weight, times = work[1], work[2]
    ids, places = lists.ids_by_id, lists.place_by_id
    sign, start, kept, other = stack[j, SIGN], stack[j, START], stack[j, KEPT], stack[j, BESIDE]
    least, last = -np.inf, np.int64(len(past.times))  # ln p and token of the last penalised one that is kept
    if stack[other, KEPT] == 0:
        least = np.inf
    elif stack[other, KEPT] < stack[other, SIZE]:
        least = value_at_place(stack, other, stack[other, KEPT] - 1, values, top, backoff)
        last = np.int64(lists.ids[stack[other, START] + stack[other, KEPT] - 1])
    for k in range(from_id(ids, start, start + stack[j, SIZE], first), start + stack[j, SIZE]):
        token = ids[k] - first
        if token >= width:
            break
        if past.logged_times[ids[k]] == 0:
            is_kept = np.float64(places[k] < kept)
            weight[token] += scale * is_kept * lists.mass_by_id[k]
            times[token] += sign * is_kept
            continue
        value = effective(lists.values[start + places[k]], stack[j, LEVEL], top, backoff)
        value = penalised(value, past.logged_times[ids[k]], values)
        if value > least or (value == least and ids[k] <= last):
            weight[token] += sign * np.exp(beta * (value - best))
            times[token] += sign


@inner
def _first_above(left: float, width: int, work: Any) -> Any:
    """The first kept token of a bucket whose running mass exceeds `left`, the last one for infinity; -1 if none."""
    weight, times = work[1], work[2]
    running, last = 0.0, -1
    for k in range(width):
        is_kept = times[k] > 0.5
        running += weight[k] if is_kept else 0.0
        last = k if is_kept else last
        if running > left and is_kept:
            return k
    return last if left == np.inf else -1


@inner
def from_id(ids: Any, low: int, high: int, first: int) -> Any:
    """The first place of sorted ids from low to high - 1 with an id of at least `first`."""
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < first:
            low = middle + 1
        else:
            high = middle
    return low
