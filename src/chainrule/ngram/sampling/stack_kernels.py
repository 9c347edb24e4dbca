"""Numba kernels that stack the lists of a distribution: those of long lists of words, and of gathered ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.compiled import ZERO, inner, kernel
from chainrule.ngram.sampling.cut_kernels import (
    BESIDE,
    GATHERED,
    KEPT,
    KIND,
    LEVEL,
    OCCURRED,
    PENALISED,
    ROW,
    SIGN,
    SIZE,
    START,
    STORED,
    effective,
)
from chainrule.ngram.sampling.draw_kernels import BLOCK, rows_for
from chainrule.ngram.sampling.level_kernels import (
    ADDED,
    FIRST,
    FIRST_ROW,
    TAKEN,
    add_up,
    enter,
    find_slot,
    make_level,
    sort_pairs,
)
from chainrule.ngram.sampling.occurred_kernels import IN, OUT, catch_up, is_shared, make_room
from chainrule.ngram.sampling.past_kernels import DISTINCT, NEW, penalised
from chainrule.ngram.sampling.walk_kernels import ask_for, code_of, value_after
from chainrule.ngram.store.kernels import value_at

TOGETHER = 16
"""The rows that take turns, so that each finds what it asked for in the cache."""

FEW = 48
"""A context of at most this many words has no lists of its own: its words are gathered at every visit."""

_ADDS, _TAKES, _NO_ROWS = np.int64(1), np.int64(-1), np.int64(-1)


class Plan(NamedTuple):
    """A strategy in the form that the kernels take."""

    forbidden: Any
    """Codes of tokens."""
    looks_back: bool
    """Whether there are penalties on tokens that occurred."""
    slope: float
    """Of ln p <= 0 of a token that occurred n times they make slope · ln p - per_time · n - offset."""
    per_time: float
    offset: float
    kinds: Any
    """Which operations narrow the choice, in order, and for each of them:"""
    numbers: Any
    """its value,"""
    powers: Any
    """the index of its β, the inverse of the temperatures before it,"""
    cooled: Any
    """and how many temperatures come before it."""
    temperatures: Any
    betas: Any
    """The powers that masses are summed for; the last is that of the draw."""
    steepest: float
    """The largest of these powers."""
    by_value: bool
    """Whether lists need to be sorted by value."""
    log_alpha: float
    """The backoff of every context, seen or not, if the model is one of stupid backoff; else 0."""


class Scratch(NamedTuple):
    """Arrays for one step."""

    stamp: Any
    """The last step at which each token was gathered."""
    where: Any
    """The place of each gathered token."""
    ranked: Any
    """The tokens that are ranked, each once,"""
    times: Any
    """how often lists add each of them, less how often they take it out,"""
    chances: Any
    """and its ln p."""
    clock: Any
    """The number of the step."""
    stack: Any
    factor: Any
    tops: Any
    context: Any
    """For each row and length of context: its node, its first child, and one past its last."""
    backoff: Any
    longest: Any
    """The length of the longest context of each row."""
    work: Any
    gathered: Any
    """The number of pairs that each of two lists of gathered tokens may have, before all other lists."""
    past: Any
    """What the text consists of, for penalties."""


@kernel
def make_unigrams(lists: Any, directory: Any, spare: Any, words: Any, log_probs: Any, plan: Any) -> None:
    """Make the list of all words without context, in slot 0, behind the room for gathered tokens."""
    added, begin, has_nan = ZERO, directory.used[0], False
    for code in range(len(spare.ids)):
        if log_probs[code] > -np.inf:
            lists.ids[begin + added], lists.values[begin + added] = words[code], np.float64(log_probs[code])
            added += 1
        has_nan |= log_probs[code] != log_probs[code]
    slot = np.int64(len(directory.nodes) - 1)
    enter(slot, ZERO - 1, begin, added, ZERO, lists, directory, spare, plan.betas, plan.by_value)
    if has_nan:
        directory.tops[slot, 0] = np.nan


@inner
def stack_up(
    top: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, plan: Any, lists: Any, directory: Any,
    spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack the lists of the distribution; returns their number, 0 if there is a NaN, -1 if there is no room."""
    bottom, listed, many = ZERO, ZERO, ZERO
    for n in range(1, top + 1):
        bottom = n if backoff[n] == -np.inf else bottom  # nothing is left to shorter contexts
        listed = n if context[n, 2] - context[n, 1] > FEW else listed
    if plan.looks_back and not has_room_beside(bottom, listed, context, trie, scratch.past):
        return ZERO
    for n in range(bottom, listed + 1):
        if n > 0 and context[n, 0] == 0:
            continue
        slot = len(directory.nodes) - 1
        if n > 0:
            slot = find_slot(context[n, 0], directory.nodes)
        if directory.nodes[slot] == 0:
            if not has_room(context[n, 2] - context[n, 1], lists, directory):
                return np.int64(-1)
            make_level(slot, n, context, backoff, trie, prob, words, lists, directory, spare, plan.betas,
                       plan.by_value)  # fmt: skip
        place = directory.places[slot]
        row, at, size = place[FIRST_ROW], place[FIRST], place[ADDED]
        for which in range(2 if n > bottom else 1):  # what is added, what is taken out
            many = push_stored(which, at, size, row, n - which, slot, many, plan, lists, directory, spare, scratch)
            row, at, size = row + rows_for(size), at + size, place[TAKEN]
    return _gather(listed, top, many, context, backoff, trie, prob, words, plan, lists, spare, scratch)


@inner
def has_room_beside(bottom: int, listed: int, context: Any, trie: Any, past: Any) -> Any:
    """Whether there is room for the lists of tokens that occurred beside those of a context."""
    distinct = past.numbers[DISTINCT]
    most = distinct
    for n in range(bottom, listed + 1):
        most += 2 * min(distinct, context[n, 2] - context[n, 1]) if n > 0 else 0
    return make_room(most, 2 * (listed + 1), past)


@inner
def push_stored(
    which: int, start: int, size: int, row: int, level: int, slot: int, many: int, plan: Any, lists: Any,
    directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Add a stored list to the stack, and those of its tokens that occurred; returns the number of lists."""
    top_value, past = directory.tops[slot, which], scratch.past
    sign = _ADDS if which == 0 else _TAKES
    own = many
    many = _push(sign, start, size, row, level, STORED, top_value, many, scratch)
    if not plan.looks_back or size == 0:
        return many
    index = 2 * slot + which
    occurred = catch_up(index, start, size, plan, lists, past, spare)
    if occurred > 0:
        if is_shared(plan):
            past.tops[index] = top_value - plan.offset
        for kind, begin, value in (
            (OCCURRED, past.entries[index, OUT], top_value),
            (PENALISED, past.entries[index, IN], past.tops[index]),
        ):
            row_beside = begin // BLOCK if occurred >= BLOCK else _NO_ROWS
            sign = -sign
            many = _push(sign, begin, occurred, row_beside, level, kind, value, many, scratch)
        scratch.stack[own, BESIDE] = many - 1
    return many


@inner
def has_room(children: int, lists: Any, directory: Any) -> Any:
    used = directory.used
    return (
        used[0] + 2 * children <= len(lists.ids)
        and used[1] + 2 * rows_for(children) <= len(lists.rows)
        and 2 * used[2] < len(directory.nodes)
    )


@inner
def _push(
    sign: int, start: int, size: int, row: int, level: int, kind: int, top_value: float, many: int, scratch: Any
) -> Any:
    """Add a list to the stack unless it is empty; returns the number of lists."""
    if size == 0 and top_value == top_value:
        return many
    entry = scratch.stack[many]
    entry[SIGN], entry[START], entry[SIZE], entry[ROW], entry[LEVEL] = sign, start, size, row, level
    entry[KIND], entry[BESIDE], entry[KEPT] = kind, -1, size
    scratch.tops[many] = top_value
    return many + 1


@inner
def _gather(
    listed: int, top: int, many: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, plan: Any,
    lists: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack two more lists: the words seen after contexts longer than those that are listed, and what they replace.

    Tokens that the strategy forbids are among them, and those that occurred but are not in the log yet, with what
    it makes of their ln p. Returns the number of lists; 0 if there is a NaN.
    """
    ids, values, codes = lists.ids, lists.values, spare.keys[0]
    stamp, where, behind, past = scratch.stamp, scratch.where, scratch.gathered[0], scratch.past
    scratch.clock[0] += 1
    now, found = scratch.clock[0], ZERO
    for n in range(top, listed, -1):
        for child in range(context[n, 1], context[n, 2]):
            code = code_of(child, trie)
            token = np.int64(words[code])
            if stamp[token] != now:
                ask_for(code, listed, context, trie)
                stamp[token], where[token], codes[found] = now, found, code
                own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
                ids[found], values[found] = token, effective(own, n, top, backoff)
                found += 1
    seen = found
    for k in range(len(plan.forbidden)):
        found = _also(words[plan.forbidden[k]], found, trie, ids, spare, scratch)
    if plan.looks_back:
        for k in range(past.numbers[NEW]):
            found = _also(past.new[k], found, trie, ids, spare, scratch)
    for k in range(found):
        below = value_after(np.int64(codes[k]), listed, context, backoff, trie, prob)
        values[behind + k] = effective(below, listed, top, backoff)
        if k >= seen:
            values[k] = values[behind + k]
    return push_gathered(found, top, many, words, plan, lists, spare, scratch)


@inner
def push_gathered(
    found: int, top: int, many: int, words: Any, plan: Any, lists: Any, spare: Any, scratch: Any
) -> Any:
    """Stack the two lists of gathered tokens: ln p of each, and ln p without the contexts that are not listed.

    Returns the number of lists; 0 if there is a NaN.
    """
    ids, values, where = lists.ids, lists.values, scratch.where
    behind, past = scratch.gathered[0], scratch.past
    if plan.looks_back:
        for k in range(found):
            own, below = values[k], values[behind + k]
            if plan.slope != 1.0 and max(own, below) > 0:
                return ZERO  # a repetition penalty divides what is above 0
            times, logged_times = past.times[ids[k]], past.logged_times[ids[k]]
            values[k] = penalised(own, times, plan) if times > 0 else own
            values[behind + k] = penalised(below, logged_times, plan) if logged_times > 0 else below
    for k in range(len(plan.forbidden)):
        values[where[words[plan.forbidden[k]]]] = -np.inf
    taken, added = ZERO, ZERO
    for k in range(found):
        if values[k] != values[k]:
            return ZERO
        if values[behind + k] > -np.inf:
            ids[behind + taken], values[behind + taken] = ids[k], values[behind + k]
            taken += 1
        if values[k] > -np.inf:
            ids[added], values[added] = ids[k], values[k]
            added += 1
    for sign, start, size in ((_ADDS, ZERO, added), (_TAKES, behind, taken)):
        if plan.by_value:
            sort_pairs(start, size, lists, spare)
        top_value = add_up(start, size, lists, plan.betas)
        many = _push(sign, start, size, _NO_ROWS, top, GATHERED, top_value, many, scratch)
    return many


@inner
def _also(token: int, found: int, trie: Any, ids: Any, spare: Any, scratch: Any) -> Any:
    """Gather one token more, if it is not gathered yet; returns the number of gathered tokens."""
    if scratch.stamp[token] != scratch.clock[0]:
        scratch.stamp[token], scratch.where[token] = scratch.clock[0], found
        ids[found], spare.keys[0, found] = token, trie.code[token]
        found += 1
    return found
