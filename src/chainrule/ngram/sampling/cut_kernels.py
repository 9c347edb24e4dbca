"""Numba kernels over a distribution given as sorted lists: cutting it down to its most likely tokens.

A list holds (token, value) pairs by falling value, equal ones by rising token; a value is ln p up to backoffs that
all values of the list share. A list adds its pairs to the distribution or, if its sign is -1, takes pairs of other
lists out again: a token that a longer context has seen stands in the list of that context, and its value after the
shorter context is taken out. So the pairs that remain are each token's once. (level_kernels.py says where lists
come from; nothing here knows about n-grams.)

Every strategy keeps the most likely tokens and thus a prefix of each list. How many tokens, or how much mass, a
value has above it is known from the places of that value in the lists, which binary search finds: a cut takes a few
such rounds, however many tokens it keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.compiled import ZERO, inner
from chainrule.ngram.sampling.past_kernels import penalised

COUNT = np.int64(-1)
"""Instead of the index of a power: tokens are counted, not their mass summed."""

_NARROW = 8  # a range of places up to this width is halved, without a guess where in it the cut lies

SIGN, START, SIZE, ROW, LEVEL, KIND, BESIDE, KEPT, LOW, HIGH, ABOVE, REACH, FIELDS = range(13)
"""The columns of the array `stack`, which has a row for each list of the distribution:

its sign; where it starts in the arrays of `Lists`, and its size; its first histogram, or -1 if it has none; the
level after which backoffs are still to be added to its values; its kind; which list of the stack has its penalised
tokens, or -1 if none has; how many pairs are kept; and, during a cut, the range of places that the cut may lie at,
and the number of values above the pivot, and at or above it.
"""

STORED, GATHERED, OCCURRED, PENALISED = (np.int64(kind) for kind in range(4))
"""The kinds of lists: of a context, and in both orders; made for one step; of those tokens of a stored list that
occurred in the text, to be taken out; and of the same tokens, with penalties to be added to their values.
"""


class Values(NamedTuple):
    """The values of all lists, and what penalties make of them: few arrays, since they are passed by value."""

    value: Any
    times: Any
    """In lists of penalised tokens: how often each token occurred."""
    slope: float
    per_time: float
    offset: float


@inner
def values_of(lists: Any, plan: Any) -> Any:
    """The values of lists."""
    return Values(lists.values, lists.times, plan.slope, plan.per_time, plan.offset)


@inner
def effective(value: Any, level: int, top: int, backoff: Any) -> Any:
    """A list's value as ln p: with the backoffs of the longer contexts, added one by one as the automaton does."""
    for n in range(level + 1, top + 1):
        value += backoff[n]
    return value


@inner
def value_at_place(stack: Any, j: int, place: int, values: Any, top: int, backoff: Any) -> Any:
    """ln p of a pair of a list."""
    at = stack[j, START] + place
    value = effective(values.value[at], stack[j, LEVEL], top, backoff)
    return penalised(value, values.times[at], values) if stack[j, KIND] == PENALISED else value


@inner
def _place(
    stack: Any, j: int, low: int, high: int, pivot: float, is_strict: bool, values: Any, top: int, backoff: Any
) -> Any:
    """The number of a list's pairs with ln p above the pivot, or, if not `is_strict`, at least it: low to high."""
    while low < high:
        middle = (low + high) >> 1
        value = value_at_place(stack, j, middle, values, top, backoff)
        if value > pivot or (value == pivot and not is_strict):
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _past_ties(stack: Any, j: int, place: int, high: int, pivot: float, values: Any, top: int, backoff: Any) -> Any:
    """The first place from `place` on whose ln p is below the pivot; that of `place` is not above it."""
    for at in range(place, min(place + 2, high)):
        if value_at_place(stack, j, at, values, top, backoff) != pivot:
            return at
    return _place(stack, j, min(place + 2, high), high, pivot, False, values, top, backoff)


@inner
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


@inner
def find_near_cut(stack: Any, many: int, values: Any, top: int, backoff: Any, count: float, heads: Any) -> Any:
    """The same as `find_cut` of a few tokens, by merging the lists from their fronts; `heads` is scratch."""
    for j in range(many):
        stack[j, REACH] = 0
        heads[j] = value_at_place(stack, j, ZERO, values, top, backoff) if stack[j, KEPT] > 0 else -np.inf
    above = 0.0
    while True:
        pivot = -np.inf
        for j in range(many):
            pivot = max(pivot, heads[j])
        if pivot == -np.inf:
            return -np.inf, 0.0
        reached = above
        for j in range(many):
            place = stack[j, ABOVE] = stack[j, REACH]
            if heads[j] == pivot:
                kept = stack[j, KEPT]
                place = _past_ties(stack, j, place + 1, kept, pivot, values, top, backoff)
                heads[j] = value_at_place(stack, j, place, values, top, backoff) if place < kept else -np.inf
                reached += stack[j, SIGN] * (place - stack[j, ABOVE])
                stack[j, REACH] = place
        if reached >= count:
            return pivot, above
        above = reached


@inner
def find_cut(
    stack: Any, many: int, mass: Any, factor: Any, values: Any, top: int, backoff: Any, power: int, target: float
) -> Any:
    """The largest ln p such that kept tokens of at least that ln p reach `target`; and what those above it reach.

    Counts tokens if `power` is COUNT, else sums their mass. Leaves in `stack` how many pairs are above that ln p,
    and how many reach it. Returns -inf if all kept tokens together do not reach the target.
    """
    for j in range(many):
        stack[j, LOW], stack[j, HIGH] = 0, stack[j, KEPT]
    least, most = 0.0, sum_to(stack, many, KEPT, power, mass, factor)  # what is reached at the ends of the ranges
    shift = 0
    while True:
        widest, width = ZERO, ZERO
        for j in range(many):
            if stack[j, HIGH] - stack[j, LOW] > width:
                widest, width = j, stack[j, HIGH] - stack[j, LOW]
        if width == 0:
            return -np.inf, 0.0
        step = _guess(width, stack[widest, LOW], (target - least) / (most - least), shift)
        pivot = value_at_place(stack, widest, stack[widest, LOW] + step, values, top, backoff)
        for j in range(many):
            low, high = stack[j, LOW], stack[j, HIGH]
            stack[j, ABOVE] = _place(stack, j, low, high, pivot, True, values, top, backoff)
        # the pivot is at its own place, even where rounding of penalties has put two values in the wrong order
        pivot_at = stack[widest, LOW] + step
        stack[widest, ABOVE] = min(stack[widest, ABOVE], pivot_at)
        above = sum_to(stack, many, ABOVE, power, mass, factor)
        if above >= target:
            for j in range(many):
                stack[j, HIGH] = stack[j, ABOVE]
            most, shift = above, -1
            continue
        for j in range(many):
            stack[j, REACH] = _past_ties(stack, j, stack[j, ABOVE], stack[j, HIGH], pivot, values, top, backoff)
        stack[widest, REACH] = max(stack[widest, REACH], pivot_at + 1)
        reached = sum_to(stack, many, REACH, power, mass, factor)
        if reached >= target:
            return pivot, above
        for j in range(many):
            stack[j, LOW] = stack[j, REACH]
        least, shift = reached, 1


@inner
def _guess(width: int, low: int, share: float, shift: int) -> Any:
    """How far into a range of places, which begins at `low`, the cut lies; `share` of what the range has is wanted.

    Probabilities fall about as 1 / place (Zipf), so that sums grow with the logarithm of the place. The guess is
    shifted away from the end of the range that moved last, so that the other end moves, too.
    """
    if width <= _NARROW or not 0.0 < share < 1.0:
        return width >> 1
    begin = np.float64(low + 1)
    step = np.int64(begin * ((begin + width) / begin) ** share - begin) + shift * (width >> 4)
    return min(max(step, np.int64(0)), width - 1)


@inner
def keep_ties(stack: Any, many: int, ids: Any, room: Any, size: int) -> None:
    """After a cut: keep the tokens above it, and of those at the cut the `room` lowest ids."""
    ties = 0
    for j in range(many):
        ties += stack[j, SIGN] * (stack[j, REACH] - stack[j, ABOVE])
    if room >= ties:
        for j in range(many):
            stack[j, KEPT] = stack[j, REACH]
        return
    low, high = ZERO, size  # the least id such that `room` of the ties are at most it
    while low < high:
        middle = (low + high) >> 1
        found = 0
        for j in range(many):
            if stack[j, REACH] > stack[j, ABOVE]:
                found += stack[j, SIGN] * (_with_ids_to(ids, stack, j, middle) - stack[j, ABOVE])
        if found >= room:
            high = middle
        else:
            low = middle + 1
    for j in range(many):
        stack[j, KEPT] = _with_ids_to(ids, stack, j, low)


@inner
def _with_ids_to(ids: Any, stack: Any, j: int, most: int) -> Any:
    """The place in a list after its pairs above the cut and those at the cut with ids up to `most`."""
    start, low, high = stack[j, START], stack[j, ABOVE], stack[j, REACH]
    while low < high:
        middle = (low + high) >> 1
        if ids[start + middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low


@inner
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
            value = value_at_place(stack, j, middle, values, top, backoff)
            if len(temperatures) > 0:
                value -= best
            for t in range(len(temperatures)):
                value /= temperatures[t]
            if value >= least:
                low = middle + 1
            else:
                high = middle
        stack[j, KEPT] = low
