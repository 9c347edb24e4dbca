"""Numba kernels that sample and draft with n-grams of any length, from the lists of `chainrule.ngram.sampling`.

The recursion of model.py has the form of backing off: a word that was not seen after a level's context h_k has

    p_k(w) = A_k p_{k-1}(w),    A_k = (θ + d N(h_k ·)) / (N(· h_k ·) + θ),

and the words that were seen after h_k were all seen after h_{k-1}. So each level adds a list of its words with
ln p_k, and removes a list of the same words with ln p_{k-1}; ln A_k is its backoff. A context that occurs often has
such lists, built at the first visit. The others form one more level, whose words are gathered at each visit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.infinite.kernels import distinct, read
from chainrule.ngram.infinite.suffixes import LONGEST
from chainrule.ngram.sampling.cut_kernels import effective
from chainrule.ngram.sampling.level_kernels import enter, find_slot
from chainrule.ngram.sampling.penalty_kernels import CHANGED, begin_text, count, make_room
from chainrule.ngram.sampling.sample_kernels import DONE, HELP, NO_ROOM, choose
from chainrule.ngram.sampling.stack_kernels import FEW, has_room, push_gathered, push_level
from chainrule.ngram.store.compiled import ZERO, inner, kernel, rank_of

_BACKOFF = 2  # the column of `Directory.tops`
_LOOKED_AT = 64  # about the most occurrences of a context that a draft looks at


class Contexts(NamedTuple):
    """The arrays of `Suffixes` and of the model that the kernels need."""

    follower: Any
    places: Any
    starts: Any
    fresh: Any
    p: Any
    """p_0 of each token."""
    log_p: Any
    """ln p_0 of each token."""
    discount: Any
    """d of each length of context."""
    strength: Any
    """θ of each length of context."""
    start: Any
    """The levels after a token that discards the context before it."""
    resets: Any
    """True for each token that discards the context before it."""
    words: Any
    """Each token."""


@kernel
def sample_rows(
    rows: Any, position: Any, uniforms_BT: Any, read_BT: Any, end: int, tokens_BT: Any, scores_BT: Any, done_B: Any,
    contexts: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Sample a token for each column of `uniforms_BT` in the rows from rows[0] to rows[1] - 1.

    `done_B` counts the tokens that each row has, and `position` holds its levels and their number. These change
    with each token, so that a call continues where one before, that did not return DONE, stopped.
    """
    steps, size = uniforms_BT.shape[1], np.int64(len(contexts.words))
    (levels_BK3, depth_B), backoff, longer_K3 = position, scratch.backoff[0], scratch.context[1]
    for row in range(rows[0], rows[1]):
        if plan.looks_back and done_B[row] < steps:
            begin_text(read_BT[row], tokens_BT[row, : done_B[row]], plan, scratch.text)
        while done_B[row] < steps:
            t, levels = done_B[row], levels_BK3[row]
            many, listed, top = _stack_up(levels, depth_B[row], contexts, plan, lists, directory, spare, scratch)
            if many < 0:
                return NO_ROOM, row
            token = np.int64(-1)
            if many > 0:
                token = choose(many, top, uniforms_BT[row, t], size, backoff, plan, lists, scratch)
            if token < 0:
                return HELP, row
            tokens_BT[row, t] = token
            if scratch.stamp[token] == scratch.clock[0]:
                scores_BT[row, t] = scratch.chances[token]
            else:
                value = _value_after(token, listed, contexts, lists, directory, scratch.context[0], backoff)
                scores_BT[row, t] = effective(value, listed, top, backoff)
            depth_B[row] = _move_on(levels, depth_B[row], token, contexts, longer_K3)
            done_B[row] = steps if token == end else t + 1
            if plan.looks_back:
                count(token, plan, scratch.text)
    return DONE, rows[1]


@kernel
def draft_tokens(ids: Any, levels: Any, depth: int, ahead: Any, longer: Any, contexts: Any, tokens: Any) -> Any:
    """Read the ids into the levels, then fill `tokens` with guesses; returns the number of levels after the ids.

    A guess is the most common token after the longest context. `ahead` and `longer` are scratch arrays for levels.
    """
    for i in range(len(ids)):
        depth = _move_on(levels, depth, np.int64(ids[i]), contexts, longer)
    for k in range(depth):
        for c in range(3):
            ahead[k, c] = levels[k, c]
    many = np.int64(depth)
    for t in range(len(tokens)):
        tokens[t] = _most_common(contexts.follower, ahead[many - 1, 0], ahead[many - 1, 1])
        many = _move_on(ahead, many, tokens[t], contexts, longer)
    return depth


@inner
def _most_common(follower: Any, first: int, last: int) -> Any:
    """Return the most common token of a range, or of a sample of a long range; the first of equals."""
    step = max((last - first) // _LOOKED_AT, 1)
    found, times = np.int64(follower[first]), ZERO
    for r in range(first, last, step):
        equal = ZERO
        for s in range(r, last, step):
            equal += follower[s] == follower[r]
        if equal > times:
            found, times = np.int64(follower[r]), equal
    return found


@inner
def _move_on(levels: Any, depth: int, token: int, contexts: Any, longer: Any) -> Any:
    """Replace the levels by those after a token; returns their number."""
    if contexts.resets[token]:
        for k in range(len(contexts.start)):
            for c in range(3):
                levels[k, c] = contexts.start[k, c]
        return np.int64(len(contexts.start))
    read(levels, depth, token, contexts.places, contexts.starts, longer)
    return np.int64(distinct(longer, depth, levels))


@inner
def _stack_up(
    levels: Any, depth: int, contexts: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any
) -> Any:
    """Stack the lists of the distribution after these levels, and write the backoffs.

    Returns the number of lists (0: the plain way is needed; -1: there is no room), the number of levels with
    lists, and the number of all levels, where those without lists count as one.
    """
    context, backoff = scratch.context[0], scratch.backoff[0]
    counted, listed, many = ZERO, ZERO, ZERO
    for k in range(1, depth):
        counted = k
        if levels[k, 1] - levels[k, 0] > FEW:
            if levels[k, 2] >= LONGEST:
                return ZERO, ZERO, ZERO  # its length is cut off, so it has no key of its own
            listed = k
        context[k, 1], context[k, 2] = levels[k, 0], levels[k, 1]
        if levels[k, 2] >= LONGEST:
            break
    if plan.looks_back and not make_room(listed + 1, scratch.text):
        return ZERO, ZERO, ZERO
    for k in range(listed + 1):
        slot = np.int64(len(directory.nodes) - 1)
        if k > 0:
            node = (levels[k, 0] << 8) + levels[k, 2]
            slot = find_slot(node, directory.nodes)
            if directory.nodes[slot] == 0:
                most = min(levels[k, 1] - levels[k, 0], np.int64(len(contexts.words)))
                if not has_room(most, lists, directory):
                    return np.int64(-1), ZERO, ZERO
                _make_level(slot, node, k, levels[k], contexts, plan, lists, directory, spare, scratch)
            backoff[k] = directory.tops[slot, _BACKOFF]
        context[k, 0] = slot
        many = push_level(slot, k, k > 0, many, plan, lists, directory, spare, scratch)
    top = listed + 1 if counted > listed else listed
    many = _gather(levels, listed, counted, many, contexts, plan, lists, directory, spare, scratch)
    return many, listed, top


@inner
def _make_level(
    slot: int, node: int, k: int, level: Any, contexts: Any, plan: Any, lists: Any, directory: Any, spare: Any,
    scratch: Any,
) -> None:  # fmt: skip
    """Build the two lists of a level from those of the shorter ones, and enter them at a slot."""
    n, found, total = level[2], ZERO, ZERO
    scratch.clock[0] += 1
    now, begin = scratch.clock[0], directory.used[0]
    for r in range(level[0], level[1]):
        if contexts.fresh[r] <= n + 1:
            token = np.int64(contexts.follower[r])
            if scratch.stamp[token] != now:
                scratch.stamp[token], scratch.times[token] = now, 0
                scratch.ranked[found] = token
                found += 1
            scratch.times[token] += 1
            total += 1
    d, whole = contexts.discount[n], total + contexts.strength[n]
    share = (contexts.strength[n] + d * found) / whole
    for i in range(found):
        token = scratch.ranked[i]
        below, log_below = _p_of(token, k - 1, contexts, lists, directory, scratch.context[0])
        # p_k(w) = A_k p_{k-1}(w) + (N(· h w) - d) / (N(· h ·) + θ)
        own = below * share + (scratch.times[token] - d) / whole
        lists.ids[begin + i], lists.values[begin + i] = token, np.log(own)
        lists.ids[begin + found + i], lists.values[begin + found + i] = token, log_below
    enter(slot, node, begin, found, found, lists, directory, spare, plan.betas, plan.by_value)
    directory.tops[slot, _BACKOFF] = np.log(share)


@inner
def _p_of(token: int, k: int, contexts: Any, lists: Any, directory: Any, context: Any) -> Any:
    """Return p and ln p of a token after level k, which has lists and this token."""
    if k == 0:
        return contexts.p[token], contexts.log_p[token]
    value = _listed_value(token, context[k, 0], lists, directory)
    return np.exp(value), value


@inner
def _listed_value(token: int, slot: int, lists: Any, directory: Any) -> Any:
    """Return ln p of a token in the list of a level; NaN if it is not there."""
    first, size = directory.places[slot].first, directory.places[slot].added
    at = rank_of(lists.ids_by_id, first, first + size, token)
    if at < first + size and lists.ids_by_id[at] == token:
        return lists.values[first + lists.place_by_id[at]]
    return np.nan


@inner
def _value_after(
    token: int, listed: int, contexts: Any, lists: Any, directory: Any, context: Any, backoff: Any
) -> Any:
    """Return ln p of any token after the longest level with lists."""
    for k in range(listed, 0, -1):
        value = _listed_value(token, context[k, 0], lists, directory)
        if value == value:
            return effective(value, k, listed, backoff)
    return effective(contexts.log_p[token], ZERO, listed, backoff)


@inner
def _gather(
    levels: Any, listed: int, counted: int, many: int, contexts: Any, plan: Any, lists: Any, directory: Any,
    spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Stack two more lists: the words seen after the levels without lists, and their entries in the other lists.

    Forbidden tokens are among them, and those whose counts have changed in this edition.
    """
    ids, values, p, counts = lists.ids, lists.values, spare.values, spare.counts
    stamp, where, behind = scratch.stamp, scratch.where, scratch.gathered[0]
    context, backoff, text = scratch.context[0], scratch.backoff[0], scratch.text
    scratch.clock[0] += 1
    now, found, top = scratch.clock[0], ZERO, listed
    if counted > listed:
        top = listed + 1
        for r in range(levels[top, 0], levels[top, 1]):
            token = np.int64(contexts.follower[r])
            if stamp[token] != now:
                stamp[token], where[token], ids[found] = now, found, token
                p[found], values[behind + found] = _p_of(token, listed, contexts, lists, directory, context)
                found += 1
        backoff[top] = 0.0
        for k in range(top, counted + 1):
            backoff[top] += _lengthen(p, found, levels[k], contexts, where, counts)
        for i in range(found):
            values[i] = np.log(p[i])
            values[behind + i] += backoff[top]
            scratch.chances[ids[i]] = values[i]
    changed = text.numbers[CHANGED] if plan.looks_back else ZERO
    for i in range(len(plan.forbidden) + changed):
        token = plan.forbidden[i] if i < len(plan.forbidden) else text.changed[i - len(plan.forbidden)]
        if stamp[token] != now:
            stamp[token], where[token], ids[found] = now, found, token
            value = _value_after(token, listed, contexts, lists, directory, context, backoff)
            values[found] = values[behind + found] = effective(value, listed, top, backoff)
            scratch.chances[token] = values[found]
            found += 1
    return push_gathered(found, top, many, contexts.words, plan, lists, spare, scratch)


@inner
def _lengthen(p: Any, found: int, level: Any, contexts: Any, where: Any, counts: Any) -> Any:
    """Turn p_{k-1} of the gathered tokens into p_k; returns ln A_k."""
    n, words, total = min(level[2], LONGEST), ZERO, ZERO
    for i in range(found):
        counts[i] = 0
    for r in range(level[0], level[1]):
        words += contexts.fresh[r] <= n
        if contexts.fresh[r] <= n + 1:
            counts[where[contexts.follower[r]]] += 1
            total += 1
    d, whole = contexts.discount[n], total + contexts.strength[n]
    share = (contexts.strength[n] + d * words) / whole
    for i in range(found):
        p[i] *= share
        if counts[i] > 0:
            p[i] += (counts[i] - d) / whole
    return np.log(share)
