"""Numba kernels over a distribution given as sorted lists: cutting it down to its most likely tokens, and drawing.

A list holds (token, value) pairs by falling value, equal ones by rising token; a value is ln p up to backoffs that
all values of the list share. A list adds its pairs to the distribution or, if its sign is -1, takes pairs of other
lists out again: a token that a longer context has seen stands in the list of that context, and its value after the
shorter context is taken out. So the pairs that remain are each token's once. (level_kernels.py says where lists
come from; nothing here knows about n-grams.)

Every strategy keeps the most likely tokens and thus a prefix of each list. How many tokens, or how much mass, a
value has above it is known from the places of that value in the lists, which binary search finds: a cut takes about
log V rounds, however many tokens it keeps. To draw, the mass of the kept tokens is summed over ranges of ids
(`BUCKETS` of them); prefix sums for every `BLOCK` pairs of a list make that short, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.writing.compiled import kernel

BLOCK = 256
"""The number of pairs of a list from one stored histogram to the next."""
BUCKETS = 256
COUNT = np.int64(-1)
"""Instead of the index of a power: tokens are counted, not their mass summed."""
_STREAMED = 64  # a prefix of at most this many pairs is read as a whole rather than searched by id

SIGN, START, SIZE, ROW, LEVEL, KEPT, LOW, HIGH, ABOVE, REACH, FIELDS = range(11)
"""The columns of the array `stack`, which has a row for each list of the distribution:

its sign; where it starts in the arrays of `Lists`, and its size; its first histogram, or -1; the level after which
backoffs are still to be added to its values; how many pairs are kept; and, during a cut, the range of places that
the cut may lie at, and the number of values above the pivot, and at or above it.
"""


class Lists(NamedTuple):
    """The pairs of all lists, one list after the other."""

    ids: Any
    """The tokens, as int32."""
    values: Any
    rank: Any
    """The places of the list's pairs in the order of their ids."""
    mass: Any
    """For each power β: the prefix sums of exp(β (value - the list's largest value)), [powers, pairs]."""
    rows: Any
    """For every `BLOCK` pairs of a list: the mass of all pairs up to there by bucket of ids, for the last power."""


@kernel
def effective(value: Any, level: int, top: int, backoff: Any) -> Any:
    """A list's value as ln p: with the backoffs of the longer contexts, added one by one as the automaton does."""
    for n in range(level + 1, top + 1):
        value += backoff[n]
    return value


@kernel
def _place(values: Any, entry: Any, pivot: float, is_strict: bool, top: int, backoff: Any) -> Any:
    """The number of a list's pairs whose ln p is above the pivot, or, if not `is_strict`, at least the pivot."""
    start, low, high, level = entry[START], entry[LOW], entry[HIGH], entry[LEVEL]
    while low < high:
        middle = (low + high) >> 1
        value = effective(values[start + middle], level, top, backoff)
        if value > pivot or (value == pivot and not is_strict):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def sum_to(stack: Any, many: int, column: int, power: int, mass: Any, factor: Any) -> Any:
    """The mass of the pairs before the places in a column of `stack`, or, if `power` is COUNT, their number."""
    total = 0.0
    for j in range(many):
        place = stack[j, column]
        if place == 0:
            continue
        if power == COUNT:
            total += stack[j, SIGN] * place
        else:
            total += stack[j, SIGN] * factor[j, power] * mass[power, stack[j, START] + place - 1]
    return total


@kernel
def find_cut(
    stack: Any, many: int, lists: Any, factor: Any, top: int, backoff: Any, power: int, target: float
) -> Any:
    """The largest ln p such that kept tokens of at least that ln p reach `target`; and what those above it reach.

    Counts tokens if `power` is COUNT, else sums their mass. Leaves in `stack` how many pairs are above that ln p,
    and how many reach it. Returns -inf if all kept tokens together do not reach the target.
    """
    values, mass = lists.values, lists.mass
    for j in range(many):
        stack[j, LOW], stack[j, HIGH] = 0, stack[j, KEPT]
    ahead: Any = np.int64(min(target, len(values)))
    while True:
        widest, width = 0, 0
        for j in range(many):
            if stack[j, HIGH] - stack[j, LOW] > width:
                widest, width = j, stack[j, HIGH] - stack[j, LOW]
        if width == 0:
            return -np.inf, 0.0
        step = width >> 1
        if power == COUNT:  # the cut is near the front: the first steps are short
            step = min(step, ahead)
            ahead *= 2
        pivot = effective(
            values[stack[widest, START] + stack[widest, LOW] + step], stack[widest, LEVEL], top, backoff
        )
        for j in range(many):
            stack[j, ABOVE] = _place(values, stack[j], pivot, True, top, backoff)
        above = sum_to(stack, many, ABOVE, power, mass, factor)
        if above >= target:
            for j in range(many):
                stack[j, HIGH] = stack[j, ABOVE]
            continue
        for j in range(many):
            stack[j, LOW] = stack[j, ABOVE]
            stack[j, REACH] = _place(values, stack[j], pivot, False, top, backoff)
        if sum_to(stack, many, REACH, power, mass, factor) >= target:
            return pivot, above
        for j in range(many):
            stack[j, LOW] = stack[j, REACH]


@kernel
def keep_ties(stack: Any, many: int, ids: Any, room: Any, size: int) -> None:
    """After `find_cut`: keep the tokens above the cut, and of those at the cut the `room` lowest ids."""
    ties = 0
    for j in range(many):
        ties += stack[j, SIGN] * (stack[j, REACH] - stack[j, ABOVE])
    low, high = 0, size  # the least id such that `room` of the ties are at most it
    if room >= ties:
        low = size
    while low < high:
        middle = (low + high) >> 1
        found = 0
        for j in range(many):
            found += stack[j, SIGN] * (_with_ids_to(ids, stack[j], middle) - stack[j, ABOVE])
        if found >= room:
            high = middle
        else:
            low = middle + 1
    for j in range(many):
        stack[j, KEPT] = _with_ids_to(ids, stack[j], low)


@kernel
def _with_ids_to(ids: Any, entry: Any, most: int) -> Any:
    """The place in a list after its pairs above the cut and those at the cut with ids up to `most`."""
    start, low, high = entry[START], entry[ABOVE], entry[REACH]
    while low < high:
        middle = (low + high) >> 1
        if ids[start + middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def keep_above_share(
    stack: Any, many: int, values: Any, top: int, backoff: Any, best: float, temperatures: Any, share: float
) -> None:
    """Keep the tokens at least `share` times as likely as the best one, after these temperatures."""
    at_best = best if len(temperatures) == 0 else 0.0
    least = at_best + np.log(share)
    for j in range(many):
        low, high = 0, stack[j, KEPT]
        while low < high:
            middle = (low + high) >> 1
            value = effective(values[stack[j, START] + middle], stack[j, LEVEL], top, backoff)
            if len(temperatures) > 0:
                value -= best
            for t in range(len(temperatures)):
                value /= temperatures[t]
            if value >= least:
                low = middle + 1
            else:
                high = middle
        stack[j, KEPT] = low


@kernel
def draw(stack: Any, many: int, lists: Any, factor: Any, uniform: float, shift: int, work: Any) -> Any:
    """The first token x with Σ_{y <= x} p(y) > u Σ p(y) over the kept tokens; -1 if there is none.

    The bucket of a token is its id shifted right by `shift`. `work` has room for 3 numbers per bucket and per id
    of a bucket.
    """
    by_bucket = work[0]
    power = factor.shape[1] - 1
    total = _bucket_masses(stack, many, lists, factor[:, power], power, shift, by_bucket)
    if not total > 0:
        return -1
    left, bucket = uniform * total, 0
    while bucket < BUCKETS - 1 and by_bucket[bucket] <= left:
        left -= by_bucket[bucket]
        bucket += 1
    for later in range(bucket, BUCKETS):  # more than one step only if rounding leaves a bucket too short
        token = _draw_in(stack, many, lists, factor[:, power], power, shift, later, left, work)
        if token >= 0:
            return token
        left = 0.0
    for before in range(bucket - 1, -1, -1):
        token = _draw_in(stack, many, lists, factor[:, power], power, shift, before, np.inf, work)
        if token >= 0:
            return token
    return -1


@kernel
def _bucket_masses(stack: Any, many: int, lists: Any, factor: Any, power: int, shift: int, by_bucket: Any) -> Any:
    """Write the mass of the kept tokens of each bucket; returns their sum."""
    ids, mass, rows = lists.ids, lists.mass, lists.rows
    by_bucket[:BUCKETS] = 0.0
    for j in range(many):
        kept, start, place = stack[j, KEPT], stack[j, START], 0
        scale = stack[j, SIGN] * factor[j]
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


@kernel
def _draw_in(
    stack: Any, many: int, lists: Any, factor: Any, power: int, shift: int, bucket: int, left: float, work: Any
) -> Any:
    """The first kept token of a bucket whose running mass exceeds `left`, the last one for infinity; -1 if none."""
    weight, times = work[1], work[2]
    first, width = bucket << shift, 1 << shift
    weight[:width] = 0.0
    times[:width] = 0.0
    for j in range(many):
        _gather(stack[j], lists, factor[j], power, first, width, weight, times)
    found, running = -1, 0.0
    for k in range(width):
        if times[k] > 0.5:
            running += weight[k]
            found = first + k
            if running > left:
                return found
    return found if left == np.inf else -1


@kernel
def _gather(
    entry: Any, lists: Any, factor: float, power: int, first: int, width: int, weight: Any, times: Any
) -> None:
    """Add the kept pairs of a list with ids from `first` on to the weights and counts of `width` ids."""
    ids, rank, mass = lists.ids, lists.rank, lists.mass
    sign, start, kept = entry[SIGN], entry[START], entry[KEPT]
    by_id = kept > _STREAMED
    place, end = 0, kept
    if by_id:
        place, end = _from_id(ids, rank, entry, first), entry[SIZE]
    while place < end:
        at = np.int64(rank[start + place]) if by_id else place
        place += 1
        token = ids[start + at] - first
        if by_id and token >= width:
            break
        if at < kept and 0 <= token < width:
            own = mass[power, start + at] - (mass[power, start + at - 1] if at > 0 else 0.0)
            weight[token] += sign * factor * own
            times[token] += sign


@kernel
def _from_id(ids: Any, rank: Any, entry: Any, first: int) -> Any:
    """The number of a list's pairs with an id below `first`."""
    start, low, high = entry[START], 0, entry[SIZE]
    while low < high:
        middle = (low + high) >> 1
        if ids[start + rank[start + middle]] < first:
            low = middle + 1
        else:
            high = middle
    return low
