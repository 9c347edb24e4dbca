"""Numba kernels that write with an n-gram model: walk, gather the levels, apply the strategy, draw, and walk on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.store.kernels import backoff_at, children_of, value_at
from chainrule.ngram.writing.compiled import kernel
from chainrule.ngram.writing.level_kernels import (
    ADDED,
    FIRST,
    FIRST_ROW,
    TAKEN,
    add_up,
    child_of,
    code_of,
    enter,
    find_slot,
    make_level,
    rows_for,
    sort_pairs,
    trailing_bits,
    value_after,
)
from chainrule.ngram.writing.list_kernels import (
    COUNT,
    KEPT,
    LEVEL,
    ROW,
    SIGN,
    SIZE,
    START,
    draw,
    effective,
    find_cut,
    keep_above_share,
    keep_ties,
    sum_to,
)

DONE, NO_ROOM, HELP = 0, 1, 2
"""What `write_rows` returns: all is written; there is no room for more lists; it cannot choose a token itself."""

TOP_K, TOP_P, MIN_P = 0, 1, 2
"""The operations of a plan that keep the most likely tokens."""

FEW = 48
"""A context of at most this many words has no lists of its own: its words are gathered at every visit."""

# as NumPy's integers: for a Python integer, Numba would compile functions anew
_ADDS, _TAKES, _FRONT, _NO_ROWS = np.int64(1), np.int64(-1), np.int64(0), np.int64(-1)
_ENOUGH = 1 - 1e-9  # as decode.strategies.TopP has it
_MOST_OFF = 12.0  # the largest ratio, as a logarithm, of a mass that is taken out to what remains, for exact sums


class Plan(NamedTuple):
    """A strategy in the form that the kernels take."""

    forbidden: Any
    """Codes of tokens."""
    penalties: Any
    """What each penalty takes off ln p of a token that has occurred."""
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


class Scratch(NamedTuple):
    """Arrays for one step."""

    stamp: Any
    """The last step at which each token was gathered; and, in the second row, the text in which it occurred."""
    where: Any
    """The place of each gathered token."""
    occurred: Any
    """The tokens of the text so far, each once."""
    clock: Any
    """The number of the step and of the text."""
    stack: Any
    factor: Any
    tops: Any
    context: Any
    """For each length of context: its node, its first child, and one past its last."""
    backoff: Any
    work: Any
    gathered: Any
    """The number of pairs that each of two lists of gathered tokens may have, before all other lists."""


@kernel
def find_all_ends(words_BN: Any, trie: Any, ends_BN: Any) -> None:
    """Write the nodes of the last 1, 2, ... words of each row, from column 1 on; 0 where the trie has none."""
    for row in range(len(words_BN)):
        _find_ends(words_BN[row], trie, ends_BN[row])


@kernel
def _find_ends(words: Any, trie: Any, ends: Any) -> None:
    ends[:] = 0
    for n in range(1, len(words) + 1):
        node = np.int64(0)
        for k in range(n):
            code = np.int64(trie.code[words[len(words) - n + k]])
            node = child_of(node, k, code, trie) if code < trie.size else np.int64(0)
            if node == 0:
                break
        ends[n] = node


@kernel
def make_unigrams(lists: Any, directory: Any, spare: Any, words: Any, prob: Any, plan: Any) -> None:
    """Make the list of all words without context, in slot 0, behind the room for gathered tokens."""
    added, begin, has_nan = np.int64(0), directory.used[0], False
    for code in range(len(spare.ids)):
        if prob.plain[code] > -np.inf:
            lists.ids[begin + added], lists.values[begin + added] = words[code], np.float64(prob.plain[code])
            added += 1
        has_nan |= prob.plain[code] != prob.plain[code]
    slot, nothing = np.int64(len(directory.nodes) - 1), np.int64(0)
    enter(slot, nothing - 1, begin, added, nothing, lists, directory, spare, plan.betas, plan.by_value)
    if has_nan:
        directory.tops[slot, 0] = np.nan


@kernel
def write_rows(
    rows: Any, ends_BN: Any, uniforms_BT: Any, read_BT: Any, end: int, tokens_BT: Any, scores_BT: Any, done_B: Any,
    trie: Any, prob: Any, back: Any, words: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Write a token for each column of `uniforms_BT` into the rows first to last - 1, from where they stand.

    A row stands after the tokens that `done_B` counts and the nodes `ends_BN` of its context; both move on with it,
    so that a call after one that has not returned DONE goes on with what is left.
    """
    steps = uniforms_BT.shape[1]
    for row in range(rows[0], rows[1]):
        ends = ends_BN[row]
        if done_B[row] < steps and len(plan.penalties) > 0:
            _note_occurred(read_BT[row], tokens_BT[row, : done_B[row]], scratch)
        while done_B[row] < steps:
            t = done_B[row]
            many, top = _stack_up(ends, trie, prob, back, words, plan, lists, directory, spare, scratch)
            if many < 0:
                return NO_ROOM, row
            token = np.int64(-1)
            if many > 0:
                token = _choose(many, top, uniforms_BT[row, t], len(words) - 1, plan, lists, scratch)
            if token < 0:
                return HELP, row
            tokens_BT[row, t] = token
            scores_BT[row, t] = _walk(ends, top, np.int64(trie.code[token]), scratch.backoff, trie, prob)
            done_B[row] = steps if token == end else t + 1
            if len(plan.penalties) > 0:
                _note_one(token, scratch)
    return DONE, rows[1]


@kernel
def _walk(ends: Any, top: int, code: int, backoff: Any, trie: Any, prob: Any) -> Any:
    """Move the nodes of the context on by a word; returns its ln p."""
    score = -np.inf
    is_found = False
    for n in range(top, -1, -1):
        if n > 0 and ends[n] == 0:
            if n + 1 < len(ends):
                ends[n + 1] = 0
            continue
        child = child_of(ends[n], n, code, trie)
        if child > 0 and not is_found:
            is_found = True
            own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
            score = effective(own, n, top, backoff)
        if n + 1 < len(ends):
            ends[n + 1] = child
    return score


@kernel
def _note_occurred(read: Any, written: Any, scratch: Any) -> None:
    """Begin a text with the tokens that it has so far."""
    scratch.clock[1] += 1
    scratch.clock[2] = 0
    for token in read:
        if token >= 0:
            _note_one(token, scratch)
    for token in written:
        _note_one(token, scratch)


@kernel
def _note_one(token: int, scratch: Any) -> None:
    if scratch.stamp[1, token] != scratch.clock[1]:
        scratch.stamp[1, token] = scratch.clock[1]
        scratch.occurred[scratch.clock[2]] = token
        scratch.clock[2] += 1


@kernel
def _stack_up(
    ends: Any, trie: Any, prob: Any, back: Any, words: Any, plan: Any, lists: Any, directory: Any, spare: Any,
    scratch: Any,
) -> Any:  # fmt: skip
    """Stack the lists of the distribution; returns their number, or -1 if there is no room, and the top level."""
    context, backoff, stack = scratch.context, scratch.backoff, scratch.stack
    top, bottom, listed = 0, 0, 0
    for n in range(1, len(ends)):
        backoff[n] = 0.0
        context[n, 0], context[n, 1], context[n, 2] = ends[n], trie.table[2, 0], trie.table[2, 0]
        if ends[n] > 0:
            top = n
            backoff[n] = backoff_at(ends[n] - 1, n - 1, back.plain, back.codes, back.books, back.bits)
            bottom = n if backoff[n] == -np.inf else bottom  # nothing is left to shorter contexts
            context[n, 1], context[n, 2] = children_of(ends[n], n, trie.table, trie.base, trie.offset, trie.rest)
            listed = n if context[n, 2] - context[n, 1] > FEW else listed
    many = 0
    for n in range(bottom, listed + 1):
        if n > 0 and ends[n] == 0:
            continue
        slot = len(directory.nodes) - 1
        if n > 0:
            slot = find_slot(ends[n], directory.nodes)
        if directory.nodes[slot] == 0:
            if not _has_room(context[n, 2] - context[n, 1], lists, directory):
                return -1, top
            make_level(slot, n, context, backoff, trie, prob, words, lists, directory, spare, plan.betas,
                       plan.by_value)  # fmt: skip
        place, tops = directory.places[slot], directory.tops[slot]
        many = _push(_ADDS, place[FIRST], place[ADDED], place[FIRST_ROW], n, tops[0], many, stack, scratch.tops)
        if n > bottom:
            row = place[FIRST_ROW] + rows_for(place[ADDED])
            at = place[FIRST] + place[ADDED]
            many = _push(_TAKES, at, place[TAKEN], row, n - 1, tops[1], many, stack, scratch.tops)
    return _gather(listed, top, many, trie, prob, words, plan, lists, spare, scratch), top


@kernel
def _has_room(children: int, lists: Any, directory: Any) -> Any:
    used = directory.used
    return (
        used[0] + 2 * children <= len(lists.ids)
        and used[1] + 2 * rows_for(children) <= len(lists.rows)
        and 2 * used[2] < len(directory.nodes)
    )


@kernel
def _push(
    sign: int, start: int, size: int, row: int, level: int, top_value: float, many: int, stack: Any, tops: Any
) -> Any:
    """Add a list to the stack unless it is empty; returns the number of lists."""
    if size == 0 and top_value == top_value:
        return many
    entry = stack[many]
    entry[SIGN], entry[START], entry[SIZE], entry[ROW], entry[LEVEL] = sign, start, size, row, level
    entry[KEPT] = size
    tops[many] = top_value
    return many + 1


@kernel
def _gather(
    listed: int, top: int, many: int, trie: Any, prob: Any, words: Any, plan: Any, lists: Any,
    spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack two more lists: the words seen after contexts longer than those that are listed, and what they replace.

    Tokens that the strategy forbids or penalises are among them, with what it makes of their ln p. Returns the
    number of lists; 0 if there is a NaN.
    """
    ids, values, backoff = lists.ids, lists.values, scratch.backoff
    stamp, where = scratch.stamp[0], scratch.where
    scratch.clock[0] += 1
    now, found = scratch.clock[0], 0
    context = scratch.context
    for n in range(top, listed, -1):
        for child in range(context[n, 1], context[n, 2]):
            token = np.int64(words[code_of(child, trie)])
            if stamp[token] != now:
                stamp[token], where[token] = now, found
                own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
                ids[found], values[found] = token, effective(own, n, top, backoff)
                found += 1
    for k in range(len(plan.forbidden)):
        found = _also(plan.forbidden[k], found, listed, top, trie, prob, words, lists, scratch)
        values[where[words[plan.forbidden[k]]]] = -np.inf
    for penalty in plan.penalties:
        for k in range(scratch.clock[2]):
            token = scratch.occurred[k]
            found = _also(np.int64(trie.code[token]), found, listed, top, trie, prob, words, lists, scratch)
            values[where[token]] -= penalty
    taken, behind = 0, scratch.gathered[0]
    for k in range(found):
        code = np.int64(trie.code[ids[k]])
        below = effective(value_after(code, listed, context, backoff, trie, prob), listed, top, backoff)
        if below > -np.inf:
            ids[behind + taken], values[behind + taken] = ids[k], below
            taken += 1
    added = 0
    for k in range(found):
        if values[k] != values[k]:
            return np.int64(0)
        if values[k] > -np.inf:
            ids[added], values[added] = ids[k], values[k]
            added += 1
    for sign, start, size in ((_ADDS, _FRONT, added), (_TAKES, behind, taken)):
        sort_pairs(start, size, lists, spare, plan.by_value)
        top_value = add_up(start, size, lists, plan.betas)
        many = _push(sign, start, size, _NO_ROWS, top, top_value, many, scratch.stack, scratch.tops)
    return many


@kernel
def _also(
    code: int, found: int, listed: int, top: int, trie: Any, prob: Any, words: Any, lists: Any,
    scratch: Any,
) -> Any:  # fmt: skip
    """Gather one token more, if it is not gathered yet; returns the number of gathered tokens."""
    token = np.int64(words[code])
    if scratch.stamp[0, token] != scratch.clock[0]:
        scratch.stamp[0, token], scratch.where[token] = scratch.clock[0], found
        own = value_after(code, listed, scratch.context, scratch.backoff, trie, prob)
        lists.ids[found], lists.values[found] = token, effective(own, listed, top, scratch.backoff)
        found += 1
    return found


@kernel
def _choose(many: int, top: int, uniform: float, size: int, plan: Any, lists: Any, scratch: Any) -> Any:
    """A token by the strategy; -1 if none can follow, if there is a NaN, or if sums would not be exact enough."""
    stack, factor, backoff = scratch.stack, scratch.factor, scratch.backoff
    best = -np.inf
    for j in range(many):
        scratch.tops[j] = effective(scratch.tops[j], stack[j, LEVEL], top, backoff)
        if scratch.tops[j] != scratch.tops[j]:
            return np.int64(-1)
        best = max(best, scratch.tops[j])
    if plan.by_value:
        largest = best
        best, _ = find_cut(stack, many, lists, factor, top, backoff, COUNT, 1.0)
        if best == -np.inf or (largest - best) * plan.steepest > _MOST_OFF:
            return np.int64(-1)
    for j in range(many):
        for power in range(len(plan.betas)):
            factor[j, power] = np.exp(plan.betas[power] * (scratch.tops[j] - best))
    for k in range(len(plan.kinds)):
        number, power = plan.numbers[k], plan.powers[k]
        if plan.kinds[k] == TOP_K:
            cut, above = find_cut(stack, many, lists, factor, top, backoff, COUNT, number)
            if cut > -np.inf:
                keep_ties(stack, many, lists.ids, number - above, size)
        elif plan.kinds[k] == TOP_P:
            target = number * _ENOUGH * sum_to(stack, many, KEPT, power, lists.mass, factor)
            cut, above = find_cut(stack, many, lists, factor, top, backoff, power, target)
            if cut > -np.inf:
                own = np.exp(plan.betas[power] * (cut - best))
                keep_ties(stack, many, lists.ids, np.ceil((target - above) / own), size)
        else:
            before = plan.temperatures[: plan.cooled[k]]
            keep_above_share(stack, many, lists.values, top, backoff, best, before, number)
    return draw(stack, many, lists, factor, uniform, trailing_bits(size), scratch.work)
