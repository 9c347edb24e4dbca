"""Numba kernels that find the most likely next tokens of many rows, for beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.writing.compiled import inner, kernel
from chainrule.ngram.writing.cut_kernels import (
    KEPT,
    LEVEL,
    SIGN,
    START,
    effective,
    find_near_cut,
    keep_ties,
    values_of,
)
from chainrule.ngram.writing.stack_kernels import stack_up
from chainrule.ngram.writing.step_kernels import DONE, HELP, NO_ROOM
from chainrule.ngram.writing.walk_kernels import locate, value_after

_NEARLY = 1e-9  # ln p that differ by less may be equal once ln p of a hypothesis is added to both


@kernel
def rank_rows(
    rows: Any, ends_BN: Any, end: int, tokens_BK: Any, values_BK: Any, ends_B: Any, done_B: Any, trie: Any,
    prob: Any, back: Any, words: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Write the K most likely tokens of each row, best first, the lowest id among equals, and ln p of `end`.

    Rows that `done_B` marks are done already. Where fewer tokens are possible, the last are 0 with ln p -inf.
    Returns HELP for a row with a NaN, or where the next token is nearly as likely as the last.
    """
    many_wanted, size = tokens_BK.shape[1], np.int64(len(words) - 1)
    context, backoff, stack = scratch.context[0], scratch.backoff[0], scratch.stack
    values, heads = values_of(lists, plan), scratch.work[1]
    for row in range(rows[0], rows[1]):
        if done_B[row] > 0:
            continue
        top = locate(ends_BN[row], context, backoff, trie, prob, back, plan.log_alpha)
        many = stack_up(top, context, backoff, trie, prob, words, plan, lists, directory, spare, scratch)
        if many < 0:
            return NO_ROOM, row
        for j in range(many):
            many = many if scratch.tops[j] == scratch.tops[j] else 0
        if many == 0:
            return HELP, row
        cut, above = find_near_cut(stack, many, values, top, backoff, np.float64(many_wanted), heads)
        if cut > -np.inf:
            for j in range(many):
                if cut > heads[j] > cut - _NEARLY:
                    return HELP, row
            keep_ties(stack, many, lists.ids, many_wanted - above, size)
        found = _collect(many, top, backoff, lists, scratch)
        _sort(found, scratch, tokens_BK[row], values_BK[row])
        if end >= 0:
            ends_B[row] = value_after(np.int64(trie.code[end]), top, context, backoff, trie, prob)
        done_B[row] = 1
    return DONE, rows[1]


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
