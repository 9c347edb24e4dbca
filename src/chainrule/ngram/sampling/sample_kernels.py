"""Numba kernels that sample: locate the contexts, stack the lists, apply the strategy, draw, and move on."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.ngram.sampling.cut_kernels import (
    COUNT,
    OCCURRED,
    PENALISED,
    effective,
    find_cut,
    find_near_cut,
    keep_above_share,
    keep_ties,
    sum_to,
    values_of,
)
from chainrule.ngram.sampling.draw_kernels import draw, trailing_bits
from chainrule.ngram.sampling.penalty_kernels import begin_text, count
from chainrule.ngram.sampling.stack_kernels import TOGETHER, stack_up
from chainrule.ngram.sampling.walk_kernels import locate, walk
from chainrule.ngram.store.compiled import inner, kernel

DONE, NO_ROOM, HELP = 0, 1, 2
"""The results of a kernel: all is done; there is no room for more lists; a row needs the plain way."""

TOP_K, TOP_P, MIN_P = 0, 1, 2
"""The kinds of operations that keep the most likely tokens."""

_ENOUGH = 1 - 1e-9  # as decode.strategies.TopP has it
_NEAR = 64  # up to this many tokens are counted from the fronts of the lists; for more, the place is searched
_MOST_OFF = 12.0  # the largest logarithm of removed mass over remaining mass for which sums are exact


@kernel
def sample_rows(
    rows: Any, position: Any, uniforms_BT: Any, read_BT: Any, end: int, tokens_BT: Any, scores_BT: Any, done_B: Any,
    trie: Any, prob: Any, back: Any, words: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Sample a token for each column of `uniforms_BT` in the rows from rows[0] to rows[1] - 1.

    `done_B` counts the tokens that each row has, and `position` holds `ends_BN`, the nodes of its contexts. Both
    change with each token, so that a call continues where one before, that did not return DONE, stopped.
    """
    ends_BN, steps, looks_back = position[0], uniforms_BT.shape[1], plan.looks_back
    together = 1 if looks_back else TOGETHER  # the tokens of one text are counted at a time
    for first in range(rows[0], rows[1], together):
        last = min(first + together, rows[1])
        if looks_back and done_B[first] < steps:
            begin_text(read_BT[first], tokens_BT[first, : done_B[first]], plan, scratch.text)
        is_active = True
        while is_active:
            is_active = False
            for row in range(first, last):
                if done_B[row] < steps:
                    context, backoff = scratch.context[row - first], scratch.backoff[row - first]
                    scratch.longest[row - first] = locate(
                        ends_BN[row], context, backoff, trie, prob, back, plan.log_alpha
                    )
            for row in range(first, last):
                t = done_B[row]
                if t == steps:
                    continue
                context, backoff = scratch.context[row - first], scratch.backoff[row - first]
                top = scratch.longest[row - first]
                many = stack_up(top, context, backoff, trie, prob, words, plan, lists, directory, spare, scratch)
                if many < 0:
                    return NO_ROOM, row
                token = np.int64(-1)
                if many > 0:
                    size = np.int64(len(words) - 1)
                    token = choose(many, top, uniforms_BT[row, t], size, backoff, plan, lists, scratch)
                if token < 0:
                    return HELP, row
                code = np.int64(trie.code[token])
                tokens_BT[row, t] = token
                scores_BT[row, t] = walk(ends_BN[row], top, code, context, backoff, trie, prob, back)
                done_B[row] = steps if token == end else t + 1
                is_active |= done_B[row] < steps
                if looks_back:
                    count(token, plan, scratch.text)
    return DONE, rows[1]


@inner
def choose(
    many: int, top: int, uniform: float, size: int, backoff: Any, plan: Any, lists: Any, scratch: Any
) -> Any:
    """Draw a token by the strategy; -1 if none is possible, if there is a NaN, or if sums would not be exact."""
    stack, factor, heads = scratch.stack, scratch.factor, scratch.work[1]
    values = values_of(lists, plan)
    best = -np.inf
    for j in range(many):
        if stack[j].kind == PENALISED:
            scratch.tops[j] += plan.slope * effective(0.0, stack[j].level, top, backoff)
        else:
            scratch.tops[j] = effective(scratch.tops[j], stack[j].level, top, backoff)
        if scratch.tops[j] != scratch.tops[j] or (scratch.tops[j] > 0 and stack[j].kind == OCCURRED):
            return np.int64(-1)
        best = max(best, scratch.tops[j])
    if plan.by_value:
        largest = best
        best, _ = find_near_cut(stack, many, values, top, backoff, 1.0, heads)
        if best == -np.inf or (largest - best) * plan.steepest > _MOST_OFF:
            return np.int64(-1)
    for j in range(many):
        for power in range(len(plan.betas)):
            factor[j, power] = np.exp(plan.betas[power] * (scratch.tops[j] - best))
    for k in range(len(plan.kinds)):
        number, power = plan.numbers[k], plan.powers[k]
        if plan.kinds[k] == TOP_K:
            if number <= _NEAR and not plan.looks_back:  # with penalties, the fronts may hold removed tokens only
                cut, above = find_near_cut(stack, many, values, top, backoff, number, heads)
            else:
                cut, above = find_cut(stack, many, lists.mass, factor, values, top, backoff, COUNT, number)
            if cut > -np.inf:
                keep_ties(stack, many, lists.ids, number - above, size)
        elif plan.kinds[k] == TOP_P:
            target = number * _ENOUGH * sum_to(stack, many, stack.kept, power, lists.mass, factor)
            cut, above = find_cut(stack, many, lists.mass, factor, values, top, backoff, power, target)
            if cut > -np.inf:
                own = np.exp(plan.betas[power] * (cut - best))
                keep_ties(stack, many, lists.ids, np.ceil((target - above) / own), size)
        else:
            before = plan.temperatures[: plan.cooled[k]]
            keep_above_share(stack, many, values, top, backoff, best, before, number)
    shift, text, work = trailing_bits(size), scratch.text, scratch.work
    return draw(stack, many, lists, factor, uniform, shift, best, top, backoff, plan, values, text, work)
