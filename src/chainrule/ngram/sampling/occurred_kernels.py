"""Numba kernels for the lists of a context's tokens that occurred in the text, for penalties on these.

Beside a stored list (level_kernels.py) two more stand in the distribution: one takes its tokens that occurred out,
and one puts them back with what the penalties make of their ln p. A penalised ln p is

    slope · ln p - per_time · n - offset

for a token that occurred n times, so the order of the second list does not depend on the backoffs that are added to
ln p, either. Both lists depend on the context and the text. When the context comes up again, the tokens that were
entered in the log since are merged into them. Where every ln p is lowered by the same offset, one list is both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.compiled import NO, ZERO, inner
from chainrule.ngram.sampling.draw_kernels import BLOCK, BUCKETS, from_id, rows_for, trailing_bits
from chainrule.ngram.sampling.level_kernels import fill_rows, radix_sort, sort_pairs
from chainrule.ngram.sampling.past_kernels import EDITION, LOGGED, USED, forget_lists, penalised

MADE, SEEN, OUT, IN, COUNT_OF, ROOM, ENTRY = range(7)
"""The columns of `Past.entries`: the edition that the lists are of; how much of the log they have; where the list
of tokens that are taken out begins, and that of penalised ones; their size; how many pairs each has room for."""

_LEAST = 8  # pairs that a list has room for
_SEARCHED = 24  # among so many times as many tokens, those of the log are searched; among fewer, all are looked at


@inner
def make_room(most: int, many: int, past: Any) -> Any:
    """Make sure of room for the lists beside stored ones with `most` pairs together; returns whether there is."""
    wanted = 3 * most + 2 * many * (BLOCK + _LEAST)
    if past.numbers[USED] + wanted > past.region[1]:
        forget_lists(past)
    return past.region[0] + wanted <= past.region[1]


@inner
def is_shared(plan: Any) -> Any:
    """Whether one list is that of what is taken out and that of what is put back: both have the same masses."""
    return plan.slope == 1.0 and plan.per_time == 0.0 and plan.offset >= 0.0


@inner
def catch_up(index: int, start: int, size: int, plan: Any, lists: Any, past: Any, spare: Any) -> Any:
    """Bring the two lists beside a stored one up to date with the log; returns their number of pairs."""
    entry, numbers = past.entries[index], past.numbers
    if entry[MADE] != numbers[EDITION]:
        entry[MADE], entry[SEEN], entry[COUNT_OF], entry[ROOM] = numbers[EDITION], 0, 0, 0
        past.tops[index] = -np.inf
    seen = entry[SEEN]
    if seen == numbers[LOGGED]:
        return entry[COUNT_OF]
    entry[SEEN] = numbers[LOGGED]
    found = _find(start, size, seen, lists, past, spare)
    if found == 0:
        return entry[COUNT_OF]
    many = ZERO
    for f in range(found):
        many += past.first_logged[lists.ids[start + np.int64(spare.keys[0, f])]] >= seen
    _grow(entry, entry[COUNT_OF] + many, plan, lists, past)
    shift, kept = trailing_bits(len(spare.ids)), entry[COUNT_OF]
    _take_new(start, found, seen, lists, past, spare)
    _merge(entry[OUT], kept, many, NO, NO, plan, lists, shift)
    if is_shared(plan):
        entry[COUNT_OF] += many
        return entry[COUNT_OF]
    if many < found:
        kept = _droppenalised(entry[IN], kept, seen, lists, past)
    is_scaled = _penalise(start, found, index, entry[IN], kept, plan, lists, past, spare)
    by_key = plan.by_value and plan.per_time != 0.0
    _merge(entry[IN], kept, found, by_key, is_scaled or many < found, plan, lists, shift)
    entry[COUNT_OF] += many
    return entry[COUNT_OF]


@inner
def _find(start: int, size: int, seen: int, lists: Any, past: Any, spare: Any) -> Any:
    """Write the places in a stored list of tokens that the log has since `seen`, in order; returns their number."""
    places, found = spare.keys[0], ZERO
    logged = past.numbers[LOGGED]
    if size < _SEARCHED * (logged - seen):
        for k in range(size):
            places[found] = k
            found += past.last_logged[lists.ids[start + k]] >= seen
        return found
    for at in range(seen, logged):
        token = past.log[at]
        if past.last_logged[token] == at:
            k = from_id(lists.ids_by_id, start, start + size, token)
            if k < start + size and lists.ids_by_id[k] == token:
                places[found] = lists.place_by_id[k]
                found += 1
    bits = ZERO
    while size - 1 >> bits:
        bits += 1
    if radix_sort(spare.keys, spare.items, spare.counts, found, bits) == 1:
        for k in range(found):
            places[k] = spare.keys[1, k]
    return found


@inner
def _grow(entry: Any, size: int, plan: Any, lists: Any, past: Any) -> None:
    """Make room for so many pairs in each of two lists, or in the one that is both."""
    if size <= entry[ROOM]:
        return
    room, kept = size + (size >> 1) + _LEAST, entry[COUNT_OF]
    for column in (OUT, IN):
        if column == IN and is_shared(plan):
            entry[IN] = entry[OUT]
            continue
        begin, old = past.numbers[USED], entry[column]
        if room >= BLOCK:
            begin = (begin + BLOCK - 1) // BLOCK * BLOCK  # so that no two lists have a histogram in common
        past.numbers[USED] = begin + room
        for k in range(kept):
            _copy(old + k, begin + k, lists)
        for power in range(len(lists.mass)):
            for k in range(kept):
                lists.mass[power, begin + k] = lists.mass[power, old + k]
        for block in range(rows_for(kept)):
            for b in range(BUCKETS):
                lists.rows[begin // BLOCK + block, b] = lists.rows[old // BLOCK + block, b]
        entry[column] = begin
    entry[ROOM] = room


@inner
def _copy(source: int, to: int, lists: Any) -> None:
    """Copy a pair without its mass."""
    lists.ids[to], lists.values[to], lists.times[to] = lists.ids[source], lists.values[source], lists.times[source]
    lists.place_by_id[to] = lists.place_by_id[source]


@inner
def _take_new(start: int, found: int, seen: int, lists: Any, past: Any, spare: Any) -> None:
    """Put the found pairs of tokens that are new in the log in front of all lists, each with its own mass."""
    many = ZERO
    for f in range(found):
        place = np.int64(spare.keys[0, f])
        at, token = start + place, lists.ids[start + place]
        if past.first_logged[token] < seen:
            continue
        lists.ids[many], lists.values[many] = token, lists.values[at]
        lists.times[many], lists.place_by_id[many] = 0, place
        for power in range(len(lists.mass)):
            before = lists.mass[power, at - 1] if place > 0 else 0.0
            lists.mass[power, many] = lists.mass[power, at] - before
        many += 1


@inner
def _droppenalised(start: int, size: int, seen: int, lists: Any, past: Any) -> Any:
    """Leave out the pairs of tokens that the log has again; returns the number of those that stay."""
    for power in range(len(lists.mass)):
        mass, before, running, to = lists.mass[power], 0.0, 0.0, start
        for k in range(start, start + size):
            own, before = mass[k] - before, mass[k]
            if past.last_logged[lists.ids[k]] < seen:
                running += own
                mass[to] = running
                to += 1
    kept = ZERO
    for k in range(start, start + size):
        if past.last_logged[lists.ids[k]] < seen:
            _copy(k, start + kept, lists)
            kept += 1
    return kept


@inner
def _penalise(
    start: int, found: int, index: int, begin: int, kept: int, plan: Any, lists: Any, past: Any, spare: Any
) -> Any:
    """Put the found pairs in front of all lists, by falling penalised ln p, each with its own mass.

    Masses are relative to the largest penalised ln p so far: if it rises, those that the list has are scaled.
    Returns whether they were.
    """
    ids, values, times = lists.ids, lists.values, lists.times
    top = past.tops[index]
    for f in range(found):
        place = np.int64(spare.keys[0, f])
        token = ids[start + place]
        ids[f], times[f], lists.place_by_id[f] = token, past.logged_times[token], place
        past.value[token] = values[start + place]
        values[f] = penalised(values[start + place], times[f], plan)
        top = max(top, values[f])
    if plan.by_value and plan.per_time != 0.0:
        sort_pairs(ZERO, found, lists, spare)
    for power in range(len(plan.betas)):
        for f in range(found):
            lists.mass[power, f] = np.exp(plan.betas[power] * (values[f] - top))
    for f in range(found):
        values[f], times[f] = past.value[ids[f]], past.logged_times[ids[f]]
    is_scaled = kept > 0 and top > past.tops[index]
    if is_scaled:
        for power in range(len(plan.betas)):
            scale = np.exp(plan.betas[power] * (past.tops[index] - top))
            for k in range(begin, begin + kept):
                lists.mass[power, k] *= scale
    past.tops[index] = top
    return is_scaled


@inner
def _merge(
    start: int, size: int, many: int, by_key: bool, is_changed: bool, plan: Any, lists: Any, shift: int
) -> None:
    """Merge the pairs in front of all lists into a list, from its end; they are in the same order.

    That is the order of the stored list or, `by_key`, that of penalised ln p.
    """
    mass, powers = lists.mass, len(lists.mass)
    a, b = size - 1, many - 1
    for to in range(start + size + many - 1, start - 1, -1):
        if b < 0:
            break
        if a >= 0 and _is_after(start + a, b, by_key, plan, lists):
            _copy(start + a, to, lists)
            for power in range(powers):
                mass[power, to] = mass[power, start + a] - (mass[power, start + a - 1] if a > 0 else 0.0)
            a -= 1
        else:
            _copy(b, to, lists)
            for power in range(powers):
                mass[power, to] = mass[power, b]
            b -= 1
    for power in range(powers):
        running = mass[power, start + a] if a >= 0 else 0.0
        for k in range(start + a + 1, start + size + many):
            running += mass[power, k]
            mass[power, k] = running
    unchanged = ZERO if is_changed or size < BLOCK else (a + 1) // BLOCK
    fill_rows(start, size + many, start // BLOCK, powers - 1, shift, unchanged, lists)


@inner
def _is_after(at: int, other: int, by_key: bool, plan: Any, lists: Any) -> Any:
    """Whether a pair comes after another."""
    if not by_key:
        return lists.place_by_id[at] > lists.place_by_id[other]
    here = penalised(lists.values[at], lists.times[at], plan)
    there = penalised(lists.values[other], lists.times[other], plan)
    return here < there or (here == there and lists.ids[at] > lists.ids[other])
