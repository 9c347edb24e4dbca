"""Numba kernels for penalties on tokens that occurred in the text.

Penalties change ln p of a token that occurred n times to

    slope · ln p - per_time · n - offset

Beside a stored list (level_kernels.py) the stack holds two more: one removes the tokens that occurred, the other
adds them with their penalised ln p. The backoffs that are added to ln p change neither order. Both lists depend on
the text: they are built when their context is visited, and serve until an edition of the counts ends. Up to
`RECENT` tokens whose counts have changed are gathered at each step instead (stack_kernels.py); when there are more,
the next edition begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.cut_kernels import penalised
from chainrule.ngram.sampling.draw_kernels import BLOCK, trailing_bits
from chainrule.ngram.sampling.level_kernels import add_up, fill_rows, sort_pairs
from chainrule.ngram.store.compiled import ZERO, inner

RECENT = 48
"""The most tokens whose counts have changed in one edition."""

DISTINCT, CHANGED, EDITION, USED, NUMBERS = range(5)
"""The items of `Text.numbers`: the number of distinct tokens; of those whose counts have changed since the edition
began; the edition; and the end of the pairs in use."""

MADE, REMOVED, PENALISED_AT, COUNT_OF, ENTRY = range(5)
"""The columns of `Text.entries`: the edition of the two lists, their first pairs, and their size."""


class Text(NamedTuple):
    """The counts of the tokens of a text, and the lists that depend on them."""

    counts: Any
    """The count of each token."""
    listed_counts: Any
    """The count of each token when the edition began."""
    distinct: Any
    """The tokens of the text, each once."""
    changed: Any
    """The tokens whose counts differ from their listed counts."""
    numbers: Any
    entries: Any
    """Where the lists beside each stored list are, [2 * slots, ENTRY]"""
    tops: Any
    """The largest value in each list of penalised tokens, without backoffs."""
    value: Any
    """ln p of each token of a list that is being built, without penalties."""
    region: Any
    """The first pair that the lists may use, and the end."""


@inner
def begin_text(read: Any, written: Any, plan: Any, text: Any) -> None:
    """Count the tokens of a text, given in two parts; padding in the first part is skipped."""
    for k in range(text.numbers[DISTINCT]):
        token = text.distinct[k]
        text.counts[token] = text.listed_counts[token] = 0
    text.numbers[DISTINCT] = text.numbers[CHANGED] = 0
    _begin_edition(text)
    for token in read:
        if token >= 0:
            count(token, plan, text)
    for token in written:
        count(token, plan, text)


@inner
def count(token: int, plan: Any, text: Any) -> None:
    """Add a token to the counts."""
    counts, numbers = text.counts, text.numbers
    is_new = counts[token] == 0
    if is_new:
        text.distinct[numbers[DISTINCT]] = token
        numbers[DISTINCT] += 1
    if is_new or (plan.per_time != 0.0 and counts[token] == text.listed_counts[token]):
        text.changed[numbers[CHANGED]] = token
        numbers[CHANGED] += 1
    counts[token] += 1
    if numbers[CHANGED] == RECENT:
        for k in range(RECENT):
            text.listed_counts[text.changed[k]] = counts[text.changed[k]]
        numbers[CHANGED] = 0
        _begin_edition(text)


@inner
def _begin_edition(text: Any) -> None:
    """Discard all lists that depend on the text."""
    text.numbers[EDITION] += 1
    text.numbers[USED] = text.region[0]


@inner
def make_room(levels: int, text: Any) -> Any:
    """Make room for the lists beside those of a number of levels; returns False if they do not fit."""
    wanted = 4 * levels * (text.numbers[DISTINCT] + BLOCK)
    if text.numbers[USED] + wanted > text.region[1]:
        _begin_edition(text)
    return text.region[0] + wanted <= text.region[1]


@inner
def build_beside(
    index: int, start: int, size: int, top_value: float, plan: Any, lists: Any, text: Any, spare: Any
) -> Any:
    """Build the two lists beside a stored one, unless they are of this edition; returns their number of pairs."""
    entry, shift = text.entries[index], trailing_bits(len(spare.ids))
    if entry[MADE] == text.numbers[EDITION]:
        return entry[COUNT_OF]
    found = _find_places(start, size, lists, text, spare)
    entry[MADE], entry[COUNT_OF] = text.numbers[EDITION], found
    removed = entry[REMOVED] = entry[PENALISED_AT] = _take_room(found, text)
    _copy_pairs(start, found, removed, lists, text, spare)
    fill_rows(removed, found, removed // BLOCK, len(plan.betas) - 1, shift, lists)
    if plan.slope == 1.0 and plan.per_time == 0.0 and plan.offset >= 0.0:
        text.tops[index] = (
            top_value - plan.offset
        )  # masses relative to the largest value are the same: one list is both
        return found
    begin = entry[PENALISED_AT] = _take_room(found, text)
    text.tops[index] = _penalise_pairs(removed, found, begin, plan, lists, text, spare)
    fill_rows(begin, found, begin // BLOCK, len(plan.betas) - 1, shift, lists)
    return found


@inner
def _find_places(start: int, size: int, lists: Any, text: Any, spare: Any) -> Any:
    """Write the places of the listed tokens in a stored list to `spare.keys`, in order; returns their number."""
    places, found = spare.keys[0], ZERO
    for k in range(size):
        places[found] = k
        found += text.listed_counts[lists.ids[start + k]] > 0
    return found


@inner
def _take_room(size: int, text: Any) -> Any:
    """Reserve room for a list; returns its first pair."""
    begin = text.numbers[USED]
    if size >= BLOCK:
        begin = (begin + BLOCK - 1) // BLOCK * BLOCK  # so that no two lists share a histogram
    text.numbers[USED] = begin + size
    return begin


@inner
def _copy_pairs(start: int, found: int, to: int, lists: Any, text: Any, spare: Any) -> None:
    """Copy the pairs at the places that were found in a stored list, with their masses."""
    for f in range(found):
        at = start + np.int64(spare.keys[0, f])
        lists.ids[to + f], lists.values[to + f] = lists.ids[at], lists.values[at]
        lists.times[to + f] = text.listed_counts[lists.ids[at]]
    for power in range(len(lists.mass)):
        mass, running = lists.mass[power], 0.0
        for f in range(found):
            place = np.int64(spare.keys[0, f])
            running += mass[start + place] - (mass[start + place - 1] if place > 0 else 0.0)
            mass[to + f] = running


@inner
def _penalise_pairs(source: int, size: int, to: int, plan: Any, lists: Any, text: Any, spare: Any) -> Any:
    """Copy a list with masses of penalised ln p, by falling penalised ln p; returns the largest.

    The values of the copy are not penalised: backoffs are added to them first.
    """
    ids, values = lists.ids, lists.values
    for f in range(size):
        token = ids[source + f]
        ids[to + f], text.value[token] = token, values[source + f]
        values[to + f] = penalised(values[source + f], text.listed_counts[token], plan)
    if plan.by_value and plan.per_time != 0.0:
        sort_pairs(to, size, lists, spare)
    top = add_up(to, size, lists, plan.betas)
    for k in range(to, to + size):
        values[k], lists.times[k] = text.value[ids[k]], text.listed_counts[ids[k]]
    return top
