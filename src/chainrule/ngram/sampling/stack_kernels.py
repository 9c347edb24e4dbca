"""Numba kernels that stack the lists of a distribution: the stored lists of contexts with many words, and two more.

The words of the other contexts are gathered in these two at each visit, with the forbidden tokens and those whose
counts have changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.cut_kernels import GATHERED, OCCURRED, PENALISED, STORED, effective, penalised
from chainrule.ngram.sampling.draw_kernels import BLOCK, rows_for
from chainrule.ngram.sampling.level_kernels import add_up, enter, find_slot, make_level, sort_pairs
from chainrule.ngram.sampling.penalty_kernels import CHANGED, build_beside, make_room
from chainrule.ngram.sampling.walk_kernels import code_of, prefetch_word, value_after
from chainrule.ngram.store.compiled import ZERO, inner, kernel
from chainrule.ngram.store.kernels import value_at

TOGETHER = 16
"""The number of rows that take turns, so that each finds the items that it prefetched in the cache."""

FEW = 48
"""A context with at most this many words has no stored lists: its words are gathered at each visit."""

_ADDS, _REMOVES, _NO_ROWS = np.int64(1), np.int64(-1), np.int64(-1)


class Plan(NamedTuple):
    """A strategy as the kernels take it."""

    forbidden: Any
    """Codes of tokens."""
    looks_back: bool
    """True if there are penalties on tokens that occurred."""
    slope: float
    """Penalties change ln p <= 0 of a token that occurred n times to slope · ln p - per_time · n - offset."""
    per_time: float
    offset: float
    kinds: Any
    """The kinds of the operations that keep the most likely tokens, in order."""
    numbers: Any
    """The value of each of these operations."""
    powers: Any
    """The index of β for each: β is the inverse of the product of the temperatures before it."""
    cooled: Any
    """The number of temperatures before each."""
    temperatures: Any
    betas: Any
    """The powers for which masses are summed; the last one is for the draw."""
    steepest: float
    """The largest of these powers."""
    by_value: bool
    """True if lists have to be sorted by value."""
    log_alpha: float
    """The backoff of every context, seen or not, in a model of stupid backoff; else 0."""


class Scratch(NamedTuple):
    """Arrays for one step."""

    stamp: Any
    """The last step at which each token was gathered."""
    where: Any
    """The place of each gathered token."""
    ranked: Any
    """The tokens that are ranked or counted, each once."""
    times: Any
    """The number of lists that add each of these tokens, less those that remove it; or its count."""
    chances: Any
    """ln p of each token."""
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
    text: Any
    """The counts of the text, for penalties."""


@kernel
def make_unigrams(lists: Any, directory: Any, spare: Any, words: Any, log_probs: Any, plan: Any) -> None:
    """Build the list of all words without context, in the last slot, behind the room for gathered tokens."""
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
    if plan.looks_back and not make_room(listed + 1, scratch.text):
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
        many = push_level(slot, n, n > bottom, many, plan, lists, directory, spare, scratch)
    return _gather(listed, top, many, context, backoff, trie, prob, words, plan, lists, spare, scratch)


@inner
def push_level(
    slot: int, level: int, removes: bool, many: int, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any
) -> Any:
    """Stack the list that a level adds and, if it `removes` words of shorter ones, the other; returns the number.

    With penalties, the lists of tokens that occurred follow each of them.
    """
    place, text = directory.places[slot], scratch.text
    row, start, size, sign = place.first_row, place.first, place.added, _ADDS
    for which in range(2 if removes else 1):
        top_value, index, occurred = directory.tops[slot, which], 2 * slot + which, ZERO
        many = _push(sign, start, size, row, level - which, STORED, top_value, many, scratch)
        if plan.looks_back and size > 0:
            occurred = build_beside(index, start, size, top_value, plan, lists, text, spare)
        if occurred > 0:
            for kind, begin, value in (
                (OCCURRED, text.entries[index].removed, top_value),
                (PENALISED, text.entries[index].penalised, text.tops[index]),
            ):
                row_beside = begin // BLOCK if occurred >= BLOCK else _NO_ROWS
                sign = -sign
                many = _push(sign, begin, occurred, row_beside, level - which, kind, value, many, scratch)
        row, start, size, sign = row + rows_for(size), start + size, place.taken, _REMOVES
    return many


@inner
def has_room(children: int, lists: Any, directory: Any) -> Any:
    """Return True if there is room for the two lists of a context with a number of children."""
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
    entry.sign, entry.start, entry.size, entry.row, entry.level = sign, start, size, row, level
    entry.kind, entry.kept = kind, size
    scratch.tops[many] = top_value
    return many + 1


@inner
def _gather(
    listed: int, top: int, many: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, plan: Any,
    lists: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack two more lists: the words seen after contexts longer than `listed`, and their entries in other lists.

    Forbidden tokens are among them, and those whose counts have changed. Returns the number of lists; 0 if there is
    a NaN.
    """
    ids, values, codes = lists.ids, lists.values, spare.keys[0]
    stamp, where, behind, text = scratch.stamp, scratch.where, scratch.gathered[0], scratch.text
    scratch.clock[0] += 1
    now, found = scratch.clock[0], ZERO
    for n in range(top, listed, -1):
        for child in range(context[n, 1], context[n, 2]):
            code = code_of(child, trie)
            token = np.int64(words[code])
            if stamp[token] != now:
                prefetch_word(code, listed, context, trie)
                stamp[token], where[token], codes[found] = now, found, code
                own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
                ids[found], values[found] = token, effective(own, n, top, backoff)
                found += 1
    seen = found
    changed = text.numbers[CHANGED] if plan.looks_back else ZERO
    for k in range(len(plan.forbidden) + changed):
        is_forbidden = k < len(plan.forbidden)
        token = np.int64(words[plan.forbidden[k]] if is_forbidden else text.changed[k - len(plan.forbidden)])
        if stamp[token] != now:
            stamp[token], where[token], codes[found] = now, found, trie.code[token]
            ids[found] = token
            found += 1
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
    """Stack the lists of gathered tokens: one adds them, the other removes them with ln p of the other lists.

    Returns the number of lists; 0 if there is a NaN.
    """
    ids, values, where = lists.ids, lists.values, scratch.where
    behind, text = scratch.gathered[0], scratch.text
    if plan.looks_back:
        for k in range(found):
            own, below = values[k], values[behind + k]
            if plan.slope != 1.0 and max(own, below) > 0:
                return ZERO  # a repetition penalty divides values above 0
            times, listed = text.counts[ids[k]], text.listed_counts[ids[k]]
            values[k] = penalised(own, times, plan) if times > 0 else own
            values[behind + k] = penalised(below, listed, plan) if listed > 0 else below
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
    for sign, start, size in ((_ADDS, ZERO, added), (_REMOVES, behind, taken)):
        if plan.by_value:
            sort_pairs(start, size, lists, spare)
        top_value = add_up(start, size, lists, plan.betas)
        many = _push(sign, start, size, _NO_ROWS, top, GATHERED, top_value, many, scratch)
    return many
