"""Numba kernels over a distribution given as sorted lists: cutting it down to its most likely tokens.

A list holds (token, value) pairs by falling value, equal ones by rising token; a value is ln p up to backoffs that
all values of the list share. A list adds its pairs to the distribution or, if its sign is -1, removes pairs of
other lists: a word that was seen after a longer context is in the list of that context, and another list removes it
from the shorter context. So each token remains once. (level_kernels.py builds the lists; nothing here depends on
n-grams.)

Every strategy keeps the most likely tokens and thus a prefix of each list. Binary search finds the place of a value
in each list, and these places give the number and the mass of the tokens above it. A cut takes a few such rounds,
however many tokens it keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.store.compiled import ZERO, inner, integers, rank_of

COUNT = np.int64(-1)
"""A special index of a power: tokens are counted instead of summing their mass."""

_NARROW = 8  # a range of places up to this width is halved; in a wider one, the place of the cut is guessed

STACKED = integers("sign start size row level kind kept low high above reach")
"""A list of the distribution, as the array `stack` holds one for each:

its sign; its start in the arrays of `Lists`, and its size; its first histogram, or -1 if it has none; its level:
the backoffs of longer contexts are added to its values; its kind; the number of pairs that are kept; and, during a
cut, the range of possible places of the cut, and the numbers of values above the pivot, and at or above it.
"""

STORED, GATHERED, OCCURRED, PENALISED = (np.int64(kind) for kind in range(4))
"""The kinds of lists: stored for a context, by value and by id; gathered for one step; the tokens of a stored list
that occurred in the text, which are removed; and the same tokens, which are added with penalties.
"""


class Values(NamedTuple):
    """The values of all lists, and the penalties; few arrays, since these are copied at each call."""

    value: Any
    times: Any
    """The count of each token in lists of penalised tokens."""
    slope: float
    per_time: float
    offset: float


@inner
def values_of(lists: Any, plan: Any) -> Any:
    """Return the values of lists, with the penalties of a plan."""
    return Values(lists.values, lists.times, plan.slope, plan.per_time, plan.offset)


@inner
def penalised(value: float, times: int, plan: Any) -> Any:
    """Return ln p <= 0 of a token after the penalties of decode/strategies.py, given the count of the token."""
    return plan.slope * value - plan.per_time * times - plan.offset


@inner
def effective(value: Any, level: int, top: int, backoff: Any) -> Any:
    """Return ln p of a list's value: add the backoffs of the longer contexts, one by one as the automaton does."""
    for n in range(level + 1, top + 1):
        value += backoff[n]
    return value


@inner
def value_at_place(stack: Any, j: int, place: int, values: Any, top: int, backoff: Any) -> Any:
    """Return ln p of the pair at a place of a list."""
    at = stack[j].start + place
    value = effective(values.value[at], stack[j].level, top, backoff)
    return penalised(value, values.times[at], values) if stack[j].kind == PENALISED else value


@inner
def _place(
    stack: Any, j: int, low: int, high: int, pivot: float, is_strict: bool, values: Any, top: int, backoff: Any
) -> Any:
    """Return the number of a list's pairs with ln p > pivot (if `is_strict`) or >= pivot, from low to high."""
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
    """Return the first place from `place` on with ln p below the pivot; at `place` it is not above the pivot."""
    for at in range(place, min(place + 2, high)):
        if value_at_place(stack, j, at, values, top, backoff) != pivot:
            return at
    return _place(stack, j, min(place + 2, high), high, pivot, False, values, top, backoff)


@inner
def sum_to(stack: Any, many: int, places: Any, power: int, mass: Any, factor: Any) -> Any:
    """Return the mass of the pairs before a place in each list; their number if `power` is COUNT."""
    total = 0.0
    for j in range(many):
        place = places[j]
        if place == 0:
            continue
        if power == COUNT:
            total += stack[j].sign * place
        else:
            total += stack[j].sign * factor[j, power] * mass[power, stack[j].start + place - 1]
    return total


@inner
def find_near_cut(stack: Any, many: int, values: Any, top: int, backoff: Any, count: float, heads: Any) -> Any:
    """Find the cut after a few tokens as `find_cut` does, by merging the lists from their fronts.

    `heads` is a scratch array; it is left with the largest value of each list below the cut.
    """
    for j in range(many):
        stack[j].reach = 0
        heads[j] = value_at_place(stack, j, ZERO, values, top, backoff) if stack[j].kept > 0 else -np.inf
    above = 0.0
    while True:
        pivot = -np.inf
        for j in range(many):
            pivot = max(pivot, heads[j])
        if pivot == -np.inf:
            return -np.inf, 0.0
        reached = above
        for j in range(many):
            place = stack[j].above = stack[j].reach
            if heads[j] == pivot:
                kept = stack[j].kept
                place = _past_ties(stack, j, place + 1, kept, pivot, values, top, backoff)
                heads[j] = value_at_place(stack, j, place, values, top, backoff) if place < kept else -np.inf
                reached += stack[j].sign * (place - stack[j].above)
                stack[j].reach = place
        if reached >= count:
            return pivot, above
        above = reached


@inner
def find_cut(
    stack: Any, many: int, mass: Any, factor: Any, values: Any, top: int, backoff: Any, power: int, target: float
) -> Any:
    """Return the largest cut such that the kept tokens with ln p >= cut reach `target`, and the sum of those above.

    Counts tokens if `power` is COUNT, else sums their mass. Writes to `stack` the number of pairs above the cut,
    and of those at or above it. The cut is -inf if all kept tokens together do not reach the target.
    """
    for j in range(many):
        stack[j].low, stack[j].high = 0, stack[j].kept
    least, most = 0.0, sum_to(stack, many, stack.kept, power, mass, factor)  # the sums at the ends of the ranges
    shift = 0
    while True:
        widest, width = ZERO, ZERO
        for j in range(many):
            if stack[j].high - stack[j].low > width:
                widest, width = j, stack[j].high - stack[j].low
        if width == 0:
            return -np.inf, 0.0
        step = _guess(width, stack[widest].low, (target - least) / (most - least), shift)
        pivot = value_at_place(stack, widest, stack[widest].low + step, values, top, backoff)
        for j in range(many):
            low, high = stack[j].low, stack[j].high
            stack[j].above = _place(stack, j, low, high, pivot, True, values, top, backoff)
        # the pivot is at its own place, even if rounding of penalties put two values in the wrong order
        pivot_at = stack[widest].low + step
        stack[widest].above = min(stack[widest].above, pivot_at)
        above = sum_to(stack, many, stack.above, power, mass, factor)
        if above >= target:
            for j in range(many):
                stack[j].high = stack[j].above
            most, shift = above, -1
            continue
        for j in range(many):
            stack[j].reach = _past_ties(stack, j, stack[j].above, stack[j].high, pivot, values, top, backoff)
        stack[widest].reach = max(stack[widest].reach, pivot_at + 1)
        reached = sum_to(stack, many, stack.reach, power, mass, factor)
        if reached >= target:
            return pivot, above
        for j in range(many):
            stack[j].low = stack[j].reach
        least, shift = reached, 1


@inner
def _guess(width: int, low: int, share: float, shift: int) -> Any:
    """Guess the place of the cut in a range that begins at `low`; `share` of the range's sum is wanted.

    Probabilities fall about as 1 / place (Zipf), so sums grow with the logarithm of the place. The guess is shifted
    away from the end of the range that moved last, so that the other end moves too.
    """
    if width <= _NARROW or not 0.0 < share < 1.0:
        return width >> 1
    begin = np.float64(low + 1)
    step = np.int64(begin * ((begin + width) / begin) ** share - begin) + shift * (width >> 4)
    return min(max(step, np.int64(0)), width - 1)


@inner
def keep_ties(stack: Any, many: int, ids: Any, room: Any, size: int) -> None:
    """Keep the tokens above the cut, and the `room` lowest ids of those at the cut."""
    ties = 0
    for j in range(many):
        ties += stack[j].sign * (stack[j].reach - stack[j].above)
    if room >= ties:
        for j in range(many):
            stack[j].kept = stack[j].reach
        return
    low, high = ZERO, size  # the least id such that `room` of the ties are at most it
    while low < high:
        middle = (low + high) >> 1
        found = 0
        for j in range(many):
            if stack[j].reach > stack[j].above:
                found += stack[j].sign * (_with_ids_to(ids, stack, j, middle) - stack[j].above)
        if found >= room:
            high = middle
        else:
            low = middle + 1
    for j in range(many):
        stack[j].kept = _with_ids_to(ids, stack, j, low)


@inner
def _with_ids_to(ids: Any, stack: Any, j: int, most: int) -> Any:
    """Return the place in a list after its pairs above the cut and its pairs at the cut with ids up to `most`."""
    start = stack[j].start
    return rank_of(ids, start + stack[j].above, start + stack[j].reach, most + 1) - start


@inner
def keep_above_share(
    stack: Any, many: int, values: Any, top: int, backoff: Any, best: float, temperatures: Any, share: float
) -> None:
    """Keep the tokens that are at least `share` times as likely as the best one, after these temperatures."""
    at_best = best if len(temperatures) == 0 else 0.0
    least = at_best + np.log(share)
    for j in range(many):
        low, high = 0, stack[j].kept
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
        stack[j].kept = low
