"""Numba kernels for penalties on tokens that occurred in the text.

Penalties change ln p of a token that occurred n times to

    slope · ln p - per_time · n - offset

Beside a stored list (level_kernels.py) the stack holds two more: one removes the tokens that occurred, the other
adds them with their penalised ln p. The backoffs that are added to ln p change neither order. Both lists depend on
the text. They are built at the first visit of their context. Up to `RECENT` tokens whose counts have changed are
gathered at each step (stack_kernels.py). When there are more, the next edition of the counts begins, and the next
visit of a context adds the tokens that have occurred since to its lists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from chainrule.ngram.sampling.cut_kernels import penalised
from chainrule.ngram.sampling.draw_kernels import BLOCK, trailing_bits
from chainrule.ngram.sampling.level_kernels import add_up, fill_rows, radix_sort, sort_pairs
from chainrule.ngram.store.compiled import ZERO, inner, integers, rank_of

RECENT = 48
"""The most tokens whose counts have changed in one edition."""

DISTINCT, LISTED, CHANGED, EDITION, OLDEST, USED, NUMBERS = range(7)
"""The items of `Text.numbers`: the number of distinct tokens; the same when the edition began; the number of tokens
whose counts have changed since; the edition; the oldest edition whose lists are kept; the end of the pairs in
use."""

ENTRY = integers("made seen removed penalised size room")
"""An item of `Text.entries`: the edition of the two lists; the number of distinct tokens when it began; the
first pairs of the lists, their size, and the number of pairs that each has room for."""

_SEARCHED = 24  # a list with at least this many times as many pairs as there are new tokens is searched for them


class Text(NamedTuple):
    """The counts of the tokens of a text, and the lists that depend on them."""

    counts: Any
    """The count of each token; at most 1 if penalties do not depend on it."""
    listed_counts: Any
    """The count of each token when the edition began."""
    distinct: Any
    """The tokens of the text, each once."""
    changed: Any
    """The tokens whose counts differ from their listed counts."""
    numbers: Any
    entries: Any
    """Where the lists beside each stored list are, of type `ENTRY`; two for each slot."""
    tops: Any
    """The largest value in each list of penalised tokens, without backoffs."""
    value: Any
    """ln p of each token of a list that is being built, without penalties."""
    region: Any
    """The first pair that the lists may use, and the end."""


@inner
def begin_text(read: Any, written: Any, plan: Any, text: Any) -> None:
    """Count the tokens of a text, given in two parts; padding in the first part is skipped.

    The lists are kept if all listed tokens occur in this text, as they do if it continues the text before.
    """
    counts, distinct, numbers = text.counts, text.distinct, text.numbers
    for k in range(numbers[DISTINCT]):
        counts[distinct[k]] = 0
    numbers[DISTINCT], numbers[CHANGED] = numbers[LISTED], 0
    for token in read:
        if token >= 0:
            _add(token, plan, text)
    for token in written:
        _add(token, plan, text)
    for k in range(numbers[LISTED]):
        if counts[distinct[k]] == 0:
            _forget_listed(text)
            break
    for k in range(numbers[DISTINCT]):
        if counts[distinct[k]] != text.listed_counts[distinct[k]]:
            _note_change(distinct[k], text)


@inner
def count(token: int, plan: Any, text: Any) -> None:
    """Count a token, and note if its count differs from its listed count now."""
    before = text.counts[token]
    _add(token, plan, text)
    if before == text.listed_counts[token] and before != text.counts[token]:
        _note_change(token, text)


@inner
def _add(token: int, plan: Any, text: Any) -> None:
    """Count a token, and enter it among the distinct tokens if it is new."""
    counts, numbers = text.counts, text.numbers
    if counts[token] == 0 and text.listed_counts[token] == 0:
        text.distinct[numbers[DISTINCT]] = token
        numbers[DISTINCT] += 1
    counts[token] = counts[token] + 1 if plan.per_time != 0.0 else 1


@inner
def _note_change(token: int, text: Any) -> None:
    """Note that the count of a token differs from its listed count; if many differ, begin an edition."""
    numbers = text.numbers
    text.changed[numbers[CHANGED]] = token
    numbers[CHANGED] += 1
    if numbers[CHANGED] == RECENT:
        for k in range(numbers[DISTINCT]):
            text.listed_counts[text.distinct[k]] = text.counts[text.distinct[k]]
        numbers[LISTED], numbers[CHANGED] = numbers[DISTINCT], 0
        numbers[EDITION] += 1


@inner
def _forget_listed(text: Any) -> None:
    """Discard the lists, the listed counts, and the tokens that do not occur in the text."""
    numbers, kept = text.numbers, ZERO
    for k in range(numbers[DISTINCT]):
        token = text.distinct[k]
        text.listed_counts[token], text.distinct[kept] = 0, token
        kept += text.counts[token] > 0
    numbers[DISTINCT], numbers[LISTED] = kept, 0
    _discard_lists(text)


@inner
def _discard_lists(text: Any) -> None:
    """Discard all lists that depend on the text."""
    text.numbers[EDITION] += 1
    text.numbers[OLDEST] = text.numbers[EDITION]
    text.numbers[USED] = text.region[0]


@inner
def make_room(levels: int, text: Any) -> Any:
    """Make room for the lists beside those of a number of levels; returns False if they do not fit."""
    wanted = 4 * levels * (_with_reserve(text.numbers[DISTINCT]) + BLOCK)
    if text.numbers[USED] + wanted > text.region[1]:
        _discard_lists(text)
    return text.region[0] + wanted <= text.region[1]


@inner
def _with_reserve(size: int) -> Any:
    """Return the number of pairs that a list of a size has room for, so that it may grow."""
    return size + (size >> 1)


@inner
def build_beside(
    index: int, start: int, size: int, top_value: float, plan: Any, lists: Any, text: Any, spare: Any
) -> Any:
    """Build the two lists beside a stored one, or bring them up to date; returns their number of pairs."""
    entry, numbers, shift = text.entries[index], text.numbers, trailing_bits(len(spare.ids))
    if entry.made == numbers[EDITION]:
        return entry.size
    if entry.made < numbers[OLDEST]:
        entry.seen = entry.size = entry.room = 0
    found = _find_places(start, size, entry, lists, text, spare)
    is_same = found == entry.size
    entry.made, entry.seen, entry.size = numbers[EDITION], numbers[LISTED], found
    if is_same and (plan.per_time == 0.0 or not _counts_differ(entry.penalised, found, lists, text)):
        return found
    # an offset does not change masses relative to the largest value: one list is both
    is_shared = plan.slope == 1.0 and plan.per_time == 0.0 and plan.offset >= 0.0
    if found > entry.room:
        entry.room = _with_reserve(found)
        entry.removed = entry.penalised = _take_room(entry.room, text)
        if not is_shared:
            entry.penalised = _take_room(entry.room, text)
    removed, begin = entry.removed, entry.penalised
    if not is_same:
        _copy_pairs(start, found, removed, lists, text, spare)
        fill_rows(removed, found, removed // BLOCK, len(plan.betas) - 1, shift, lists)
    if is_shared:
        text.tops[index] = top_value - plan.offset
        return found
    text.tops[index] = _penalise_pairs(removed, found, begin, plan, lists, text, spare)
    fill_rows(begin, found, begin // BLOCK, len(plan.betas) - 1, shift, lists)
    return found


@inner
def _counts_differ(begin: int, size: int, lists: Any, text: Any) -> Any:
    """Return True if the counts of a list of penalised tokens are not the listed counts."""
    differ = False
    for k in range(begin, begin + size):
        differ |= lists.times[k] != text.listed_counts[lists.ids[k]]
    return differ


@inner
def _find_places(start: int, size: int, entry: Any, lists: Any, text: Any, spare: Any) -> Any:
    """Write the places of the listed tokens in a stored list to `spare.ids`, in order; returns their number.

    If few tokens were listed since the last visit, these are searched, and merged with the places of the others.
    """
    places, found, seen, listed = spare.ids, ZERO, entry.seen, text.numbers[LISTED]
    if size < _SEARCHED * (listed - seen):
        for k in range(size):
            places[found] = k
            found += text.listed_counts[lists.ids[start + k]] > 0
        return found
    for token in text.distinct[seen:listed]:
        at = rank_of(lists.ids_by_id, start, start + size, token)
        if at < start + size and lists.ids_by_id[at] == token:
            spare.keys[0, found] = lists.place_by_id[at]
            found += 1
    new = spare.keys[radix_sort(spare.keys, spare.items, spare.counts, found, 32)]
    old, a, b = lists.place_by_id[entry.removed : entry.removed + entry.size], ZERO, ZERO
    for f in range(len(old) + found):
        if b == found or (a < len(old) and old[a] < new[b]):
            places[f] = old[a]
            a += 1
        else:
            places[f] = new[b]
            b += 1
    return len(old) + found


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
        at = start + spare.ids[f]
        lists.ids[to + f], lists.values[to + f] = lists.ids[at], lists.values[at]
        lists.place_by_id[to + f] = spare.ids[f]
        lists.times[to + f] = text.listed_counts[lists.ids[at]]
    for power in range(len(lists.mass)):
        mass, running = lists.mass[power], 0.0
        for f in range(found):
            place = spare.ids[f]
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
