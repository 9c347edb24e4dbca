"""Numba kernels that stack the lists of a distribution: those of long lists of words, and of gathered ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.store.kernels import value_at
from chainrule.ngram.writing.compiled import ZERO, inner, kernel
from chainrule.ngram.writing.cut_kernels import KEPT, LEVEL, ROW, SIGN, SIZE, START, effective
from chainrule.ngram.writing.draw_kernels import rows_for
from chainrule.ngram.writing.level_kernels import (
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
from chainrule.ngram.writing.walk_kernels import ask_for, code_of, value_after

PRESENCE, FREQUENCY, REPETITION = 0, 1, 2
"""The operations of a plan that change ln p of tokens that occurred."""

TOGETHER = 16
"""The rows that take turns, so that each finds what it asked for in the cache."""

FEW = 48
"""A context of at most this many words has no lists of its own: its words are gathered at every visit."""

_ADDS, _TAKES, _NO_ROWS = np.int64(1), np.int64(-1), np.int64(-1)


class Plan(NamedTuple):
    """A strategy in the form that the kernels take."""

    forbidden: Any
    """Codes of tokens."""
    penalties: Any
    """Which operations change ln p of tokens that occurred, in order,"""
    strengths: Any
    """and the value of each."""
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
    """The last step at which each token was gathered; and, in the second row, the text in which it occurred."""
    where: Any
    """The place of each gathered token."""
    occurred: Any
    """The tokens of the text so far, each once."""
    times: Any
    """How often each of them occurred."""
    chances: Any
    """ln p of each token that is ranked."""
    clock: Any
    """The number of the step and of the text."""
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


@kernel
def make_unigrams(lists: Any, directory: Any, spare: Any, words: Any, prob: Any, plan: Any) -> None:
    """Make the list of all words without context, in slot 0, behind the room for gathered tokens."""
    added, begin, has_nan = ZERO, directory.used[0], False
    for code in range(len(spare.ids)):
        if prob.plain[code] > -np.inf:
            lists.ids[begin + added], lists.values[begin + added] = words[code], np.float64(prob.plain[code])
            added += 1
        has_nan |= prob.plain[code] != prob.plain[code]
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
    for n in range(bottom, listed + 1):
        if n > 0 and context[n, 0] == 0:
            continue
        slot = len(directory.nodes) - 1
        if n > 0:
            slot = find_slot(context[n, 0], directory.nodes)
        if directory.nodes[slot] == 0:
            if not _has_room(context[n, 2] - context[n, 1], lists, directory):
                return np.int64(-1)
            make_level(slot, n, context, backoff, trie, prob, words, lists, directory, spare, plan.betas,
                       plan.by_value)  # fmt: skip
        place, tops = directory.places[slot], directory.tops[slot]
        many = _push(_ADDS, place[FIRST], place[ADDED], place[FIRST_ROW], n, tops[0], many, scratch)
        if n > bottom:
            row = place[FIRST_ROW] + rows_for(place[ADDED])
            at = place[FIRST] + place[ADDED]
            many = _push(_TAKES, at, place[TAKEN], row, n - 1, tops[1], many, scratch)
    return _gather(listed, top, many, context, backoff, trie, prob, words, plan, lists, spare, scratch)


@inner
def _has_room(children: int, lists: Any, directory: Any) -> Any:
    used = directory.used
    return (
        used[0] + 2 * children <= len(lists.ids)
        and used[1] + 2 * rows_for(children) <= len(lists.rows)
        and 2 * used[2] < len(directory.nodes)
    )


@inner
def _push(sign: int, start: int, size: int, row: int, level: int, top_value: float, many: int, scratch: Any) -> Any:
    """Add a list to the stack unless it is empty; returns the number of lists."""
    if size == 0 and top_value == top_value:
        return many
    entry = scratch.stack[many]
    entry[SIGN], entry[START], entry[SIZE], entry[ROW], entry[LEVEL] = sign, start, size, row, level
    entry[KEPT] = size
    scratch.tops[many] = top_value
    return many + 1


@inner
def _gather(
    listed: int, top: int, many: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, plan: Any,
    lists: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack two more lists: the words seen after contexts longer than those that are listed, and what they replace.

    Tokens that the strategy forbids or penalises are among them, with what it makes of their ln p. Returns the
    number of lists; 0 if there is a NaN.
    """
    ids, values, codes = lists.ids, lists.values, spare.keys[0]
    stamp, where, behind = scratch.stamp[0], scratch.where, scratch.gathered[0]
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
    if len(plan.penalties) > 0:
        for k in range(scratch.clock[2]):
            found = _also(scratch.occurred[k], found, trie, ids, spare, scratch)
    for k in range(found):
        below = value_after(np.int64(codes[k]), listed, context, backoff, trie, prob)
        values[behind + k] = effective(below, listed, top, backoff)
        if k >= seen:
            values[k] = values[behind + k]
    for k in range(len(plan.forbidden)):
        values[where[words[plan.forbidden[k]]]] = -np.inf
    for p in range(len(plan.penalties)):
        for k in range(scratch.clock[2]):
            at, times = where[scratch.occurred[k]], scratch.times[scratch.occurred[k]]
            values[at] = _penalised(values[at], plan.penalties[p], plan.strengths[p], times)
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
        many = _push(sign, start, size, _NO_ROWS, top, top_value, many, scratch)
    return many


@inner
def _also(token: int, found: int, trie: Any, ids: Any, spare: Any, scratch: Any) -> Any:
    """Gather one token more, if it is not gathered yet; returns the number of gathered tokens."""
    if scratch.stamp[0, token] != scratch.clock[0]:
        scratch.stamp[0, token], scratch.where[token] = scratch.clock[0], found
        ids[found], spare.keys[0, found] = token, trie.code[token]
        found += 1
    return found


@inner
def _penalised(value: float, penalty: int, strength: float, times: int) -> Any:
    """What the strategies of decode/strategies.py make of ln p of a token that occurred."""
    if penalty == REPETITION:
        return value / strength if value > 0 else value * strength
    return value - strength * (np.float64(times) if penalty == FREQUENCY else 1.0)
