"""Numba kernels that do the beam search of one text, as `chainrule.decode.beam` does for any model.

Axes: W hypotheses, T steps, R results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.cut_kernels import effective, find_near_cut, keep_ties, values_of
from chainrule.ngram.sampling.sample_kernels import DONE, HELP, NO_ROOM
from chainrule.ngram.sampling.stack_kernels import stack_up
from chainrule.ngram.sampling.walk_kernels import locate, value_after, walk
from chainrule.ngram.store.compiled import inner, kernel

STEP, COUNT, IS_OVER, NUMBERS = range(4)
"""The items of `Hypotheses.numbers`: steps taken, hypotheses finished, and 1 if the search is over."""

RANK, LOG_PROB, AT_STEP, PLACE, IS_ENDED, COLUMNS = range(6)
"""The columns of `finished_RC`, which holds the best finished hypotheses, best first: the rank and ln p of each,
its number of steps, its place after these, and 1 if the end token follows (0 if no token could)."""

_NEARLY = 1e-9  # smaller differences of ln p may vanish when ln p of a hypothesis is added


class Rule(NamedTuple):
    """The conditions under which hypotheses and the search end."""

    end: int
    """The token that ends a hypothesis; -1 if none does."""
    is_usual: bool
    """True if a hypothesis ends only where its end is among the W best continuations of all."""
    limit: int
    """The most steps."""
    last_divisor: float
    """The divisor of the greatest length. It is the largest, so it gives ln p <= 0 the best rank."""
    divisors: Any
    """For each length: the number that divides ln p to rank hypotheses."""


class Hypotheses(NamedTuple):
    """The hypotheses of a search, and the steps that led to them."""

    live: Any
    """ln p of each, falling; -inf where there is none."""
    lengths: Any
    """The number of tokens of each after its prompt."""
    ends_WN: Any
    """The nodes of the last words of each, as `find_ends` writes them."""
    next_ends_WN: Any
    """Room for the same after a step."""
    tokens_TW: Any
    """The last token of each hypothesis after each step."""
    parents_TW: Any
    """The place, one step before, of the hypothesis that each continues."""
    next_WW: Any
    """The most likely next tokens of each hypothesis."""
    values_WW: Any
    """ln p of these tokens."""
    at_end_W: Any
    """ln p of the end token after each hypothesis."""
    best_W: Any
    """Room for ln p of the continuations."""
    counts_W: Any
    """Room for an integer of each hypothesis."""
    numbers: Any


@kernel
def search_text(
    rows: Any, until: int, rule: Any, hypotheses: Any, finished_RC: Any, done_B: Any, trie: Any, prob: Any,
    back: Any, words: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Take steps of a beam search, up to the step `until` or until it is over.

    `done_B` counts the steps at which each hypothesis was ranked, so that a call continues where one before, that
    did not return DONE, stopped.
    """
    live, numbers = hypotheses.live, hypotheses.numbers
    while numbers[STEP] < until and numbers[IS_OVER] == 0:
        step = numbers[STEP]
        for row in range(rows[0], rows[1]):
            if done_B[row] > step:
                continue
            tokens, values = hypotheses.next_WW[row], hypotheses.values_WW[row]
            at_end = hypotheses.at_end_W[row : row + 1]
            if live[row] == -np.inf:
                tokens[:], values[:], at_end[:] = 0, -np.inf, -np.inf
            else:
                status = _rank(
                    hypotheses.ends_WN[row], rule.end, tokens, values, at_end, trie, prob, back, words, plan, lists,
                    directory, spare, scratch,
                )  # fmt: skip
                if status != DONE:
                    return status, row
            done_B[row] = step + 1
        _take_step(rule, hypotheses, finished_RC)
        _move(hypotheses, trie, prob, back, plan.log_alpha, scratch.context[0], scratch.backoff[0])
        if len(finished_RC) == 1:
            _recombine(hypotheses)
    return DONE, rows[1]


@inner
def _rank(
    ends: Any, end: int, tokens: Any, values: Any, at_end: Any, trie: Any, prob: Any, back: Any, words: Any,
    plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Write the most likely next tokens, best first, the lowest id among equals; and to `at_end` ln p of `end`.

    `ends` are the nodes of the last words. Where fewer tokens are possible, the last are 0 with ln p -inf.
    Returns HELP if there is a NaN, or if the first token left out is nearly as likely as the last one.
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
    _collect(many, top, backoff, lists, scratch, tokens, values)
    if end >= 0:
        at_end[0] = value_after(np.int64(trie.code[end]), top, context, backoff, trie, prob)
    return DONE


@inner
def _collect(many: int, top: int, backoff: Any, lists: Any, scratch: Any, tokens: Any, values: Any) -> None:
    """Write the kept tokens of the stack and their ln p, best first; 0 and -inf after them."""
    scratch.clock[0] += 1
    now, seen, found = scratch.clock[0], 0, 0
    stamp, times, stack = scratch.stamp, scratch.times, scratch.stack
    for j in range(many):  # from short contexts to long ones, so that the longest context gives ln p
        for k in range(stack[j].start, stack[j].start + stack[j].kept):
            token = lists.ids[k]
            if stamp[token] != now:
                stamp[token], times[token] = now, 0
                scratch.ranked[seen] = token
                seen += 1
            times[token] += stack[j].sign
            if stack[j].sign > 0:
                scratch.chances[token] = effective(lists.values[k], stack[j].level, top, backoff)
    tokens[:] = 0
    values[:] = -np.inf
    for k in range(seen):
        token = scratch.ranked[k]
        if times[token] > 0 and found < len(tokens):
            value, b = scratch.chances[token], found
            while b > 0 and (values[b - 1] < value or (values[b - 1] == value and tokens[b - 1] > token)):
                tokens[b], values[b] = tokens[b - 1], values[b - 1]
                b -= 1
            tokens[b], values[b] = token, value
            found += 1


@inner
def _take_step(rule: Any, hypotheses: Any, finished_RC: Any) -> None:
    """Finish hypotheses, and continue the best ones."""
    live, lengths, numbers, at_end = hypotheses.live, hypotheses.lengths, hypotheses.numbers, hypotheses.at_end_W
    step, width, best = numbers[STEP], len(live), hypotheses.best_W
    tokens, parents = hypotheses.tokens_TW[step], hypotheses.parents_TW[step]
    _continue(live, hypotheses.next_WW, hypotheses.values_WW, hypotheses.counts_W, tokens, parents, best)
    for w in range(width if rule.end >= 0 else 0):
        value = live[w] + at_end[w]
        if value > -np.inf and (
            not rule.is_usual or _is_among_best(w, rule.end, live, at_end, tokens, parents, best)
        ):
            _finish(value, lengths[w] + 1, step, w, 1.0, rule, finished_RC, numbers)
    if best[0] == -np.inf and numbers[COUNT] == 0:
        # no token can follow, and nothing is finished: the best live hypothesis is the result
        first = 0
        for w in range(1, width):
            if live[w] / rule.divisors[lengths[w]] > live[first] / rule.divisors[lengths[first]]:
                first = w
        if live[first] > -np.inf:
            _finish(live[first], lengths[first], step, first, 0.0, rule, finished_RC, numbers)
    for w in range(width):
        hypotheses.counts_W[w] = lengths[parents[w]] + 1
    for w in range(width):
        lengths[w], live[w] = hypotheses.counts_W[w], best[w]
    numbers[STEP] = step + 1
    bound = live[0] / rule.last_divisor
    is_over = bound == -np.inf or (numbers[COUNT] >= len(finished_RC) and bound <= finished_RC[-1, RANK])
    is_behind = live[0] / rule.divisors[lengths[0]] <= finished_RC[0, RANK]
    is_over |= rule.is_usual and numbers[COUNT] >= width and is_behind
    numbers[IS_OVER] = is_over or step + 1 == rule.limit


@inner
def _continue(live: Any, next_WW: Any, values_WW: Any, taken: Any, tokens: Any, parents: Any, best: Any) -> None:
    """Write the best continuations of all, from the sorted ones of each hypothesis; the first among equals."""
    width = len(live)
    taken[:] = 0
    for k in range(width):
        chosen, value = 0, live[0] + values_WW[0, taken[0]]
        for w in range(1, width):
            other = live[w] + values_WW[w, taken[w]]
            if other > value:
                chosen, value = w, other
        best[k], parents[k], tokens[k] = value, chosen, next_WW[chosen, taken[chosen]]
        taken[chosen] += 1


@inner
def _is_among_best(w: int, end: int, live: Any, at_end: Any, tokens: Any, parents: Any, best: Any) -> Any:
    """Return True if the end of a hypothesis is among the W best ends and continuations.

    Among equals the first hypothesis comes first, and of one hypothesis the lowest token.
    """
    width, value, before = len(live), live[w] + at_end[w], 0
    for other in range(width):
        ended = live[other] + at_end[other]
        before += ended > value or (ended == value and other < w)
        before += best[other] > value or (
            best[other] == value and (parents[other] < w or (parents[other] == w and tokens[other] < end))
        )
    return before < width


@inner
def _finish(
    log_prob: float, length: int, step: int, place: int, is_ended: float, rule: Any, finished_RC: Any, numbers: Any
) -> None:
    """Count a finished hypothesis, and keep it if it is among the best; the first finished among equals."""
    numbers[COUNT] += 1
    rank, k = log_prob / rule.divisors[length], len(finished_RC)
    while k > 0 and rank > finished_RC[k - 1, RANK]:
        k -= 1
    if k == len(finished_RC):
        return
    for r in range(len(finished_RC) - 1, k, -1):
        for c in range(COLUMNS):
            finished_RC[r, c] = finished_RC[r - 1, c]
    kept = finished_RC[k]
    kept[RANK], kept[LOG_PROB], kept[AT_STEP], kept[PLACE], kept[IS_ENDED] = rank, log_prob, step, place, is_ended


@inner
def _move(hypotheses: Any, trie: Any, prob: Any, back: Any, log_alpha: float, context: Any, backoff: Any) -> None:
    """After a step: write the nodes of each hypothesis' last words, those of its parent moved on by its token."""
    step = hypotheses.numbers[STEP] - 1
    now, after = hypotheses.ends_WN, hypotheses.next_ends_WN
    for w in range(len(now)):
        if hypotheses.live[w] > -np.inf:
            parent = hypotheses.parents_TW[step, w]
            for n in range(now.shape[1]):
                after[w, n] = now[parent, n]
            top = locate(after[w], context, backoff, trie, prob, back, log_alpha)
            code = np.int64(trie.code[hypotheses.tokens_TW[step, w]])
            walk(after[w], top, code, context, backoff, trie, prob, back)
    for w in range(len(now)):
        for n in range(now.shape[1]):
            now[w, n] = after[w, n]


@inner
def _recombine(hypotheses: Any) -> None:
    """Drop a hypothesis if a better one of its length has the same context: the model cannot tell them apart."""
    live, lengths, ends_WN = hypotheses.live, hypotheses.lengths, hypotheses.ends_WN
    for w in range(1, len(live)):
        for better in range(w):
            if live[better] == -np.inf or live[w] == -np.inf or lengths[better] != lengths[w]:
                continue
            is_same = True
            for n in range(ends_WN.shape[1]):
                is_same &= ends_WN[better, n] == ends_WN[w, n]
            if is_same:
                live[w] = -np.inf
