"""Numba kernels that find the most likely next tokens after a context, for beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.compiled import inner
from chainrule.ngram.sampling.cut_kernels import (
    KEPT,
    LEVEL,
    SIGN,
    START,
    effective,
    find_near_cut,
    keep_ties,
    values_of,
)
from chainrule.ngram.sampling.stack_kernels import stack_up
from chainrule.ngram.sampling.step_kernels import DONE, HELP, NO_ROOM
from chainrule.ngram.sampling.walk_kernels import locate, value_after

_NEARLY = 1e-9  # ln p that differ by less may be equal once ln p of a hypothesis is added to both


@inner
def rank(
    ends: Any, end: int, tokens: Any, values: Any, at_end: Any, trie: Any, prob: Any, back: Any, words: Any,
    plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Write the most likely next tokens, best first, the lowest id among equals; and to `at_end` ln p of `end`.

    `ends` are the nodes of the last words. Where fewer tokens are possible, the last are 0 with ln p -inf.
    Returns HELP if there is a NaN, or where the next token is nearly as likely as the last.
    """
    wanted, size = len(tokens), np.int64(len(words) - 1)
    context, backoff, stack = scratch.context[0], scratch.backoff[0], scratch.stack
    heads = scratch.work[1]
    top = locate(ends, context, backoff, trie, prob, back, plan.log_alpha)
    many = stack_up(top, context, backoff, trie, prob, words, plan, lists, directory, spare, scratch)
    if many < 0:
        return NO_ROOM
    for j in range(many):
        many = many if scratch.tops[j] == scratch.tops[j] else 0
    if many == 0:
        return HELP
    cut, above = find_near_cut(stack, many, values_of(lists, plan), top, backoff, np.float64(wanted), heads)
    if cut > -np.inf:
        for j in range(many):
            if cut > heads[j] > cut - _NEARLY:
                return HELP
        keep_ties(stack, many, lists.ids, wanted - above, size)
    found = _collect(many, top, backoff, lists, scratch)
    _sort(found, scratch, tokens, values)
    if end >= 0:
        at_end[0] = value_after(np.int64(trie.code[end]), top, context, backoff, trie, prob)
    return DONE


@inner
def _collect(many: int, top: int, backoff: Any, lists: Any, scratch: Any) -> Any:
    """Put the kept tokens in front of `ranked`, their ln p in `chances`; returns their number."""
    scratch.clock[0] += 1
    now, seen = scratch.clock[0], 0
    stamp, times, stack = scratch.stamp, scratch.times, scratch.stack
    for j in range(many):  # from short contexts to long ones: what is added last holds
        for k in range(stack[j, START], stack[j, START] + stack[j, KEPT]):
            token = lists.ids[k]
            if stamp[token] != now:
                stamp[token], times[token] = now, 0
                scratch.ranked[seen] = token
                seen += 1
            times[token] += stack[j, SIGN]
            if stack[j, SIGN] > 0:
                scratch.chances[token] = effective(lists.values[k], stack[j, LEVEL], top, backoff)
    found = 0
    for k in range(seen):
        token = scratch.ranked[k]
        if times[token] > 0:
            scratch.ranked[found] = token
            found += 1
    return found


@inner
def _sort(found: int, scratch: Any, tokens: Any, values: Any) -> None:
    """Write the collected tokens and their ln p, sorted, by insertion; 0 and -inf behind them."""
    tokens[:] = 0
    values[:] = -np.inf
    for a in range(min(found, len(tokens))):
        token, b = scratch.ranked[a], a
        value = scratch.chances[token]
        while b > 0 and (values[b - 1] < value or (values[b - 1] == value and tokens[b - 1] > token)):
            tokens[b], values[b] = tokens[b - 1], values[b - 1]
            b -= 1
        tokens[b], values[b] = token, value
