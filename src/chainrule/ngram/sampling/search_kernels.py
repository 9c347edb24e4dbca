"""Numba kernels that do a beam search of one text: what `chainrule.decode.beam` does for any model.

Axes: W hypotheses, T steps, R results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.compiled import inner, kernel
from chainrule.ngram.sampling.rank_kernels import rank
from chainrule.ngram.sampling.step_kernels import DONE
from chainrule.ngram.sampling.walk_kernels import locate, walk

STEP, COUNT, IS_OVER, NUMBERS = range(4)
"""The places of `Hypotheses.numbers`: steps taken, hypotheses finished, whether the search is over."""


class Rule(NamedTuple):
    """What ends hypotheses, and the search."""

    end: int
    """The token that ends a hypothesis; -1 if none does."""
    is_usual: bool
    """Whether a hypothesis ends only if its end is among the W best continuations of all."""
    limit: int
    """The most steps."""
    last_divisor: float
    """That of the greatest length, of all divisors the largest: of ln p <= 0 it gives the best rank."""
    divisors: Any
    """For each length: by what ln p is divided to rank hypotheses."""


class Hypotheses(NamedTuple):
    """The hypotheses of a search, and how they came about."""

    live: Any
    """ln p of each, falling; -inf where there is none."""
    lengths: Any
    """By how many tokens each continues its prompt."""
    ends_WN: Any
    """The nodes of the last words of each, as `find_all_ends` writes them; and room for those after a step."""
    next_ends_WN: Any
    tokens_TW: Any
    """The last token of each hypothesis after each step,"""
    parents_TW: Any
    """and which hypothesis of the step before it continues."""
    next_WW: Any
    """The most likely next tokens of each hypothesis, their ln p, and ln p of the end."""
    values_WW: Any
    at_end_W1: Any
    scratch_W: Any
    """Room for a number of each hypothesis, and for an integer."""
    counts_W: Any
    numbers: Any


class Finished(NamedTuple):
    """The best finished hypotheses, best first."""

    ranks: Any
    log_probs: Any
    steps: Any
    """How many steps each had taken,"""
    places: Any
    """and which hypothesis it was then."""
    is_ended: Any
    """Whether the end token follows; not where no token could."""


@kernel
def search_text(
    rows: Any, until: int, rule: Any, hypotheses: Any, finished: Any, done_B: Any, trie: Any, prob: Any, back: Any,
    words: Any, plan: Any, lists: Any, directory: Any, spare: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Take steps of a beam search, up to the step `until` or until it is over.

    `done_B` counts at how many steps each hypothesis has been ranked, so that a call after one that has not
    returned DONE goes on with what is left.
    """
    live, numbers = hypotheses.live, hypotheses.numbers
    while numbers[STEP] < until and numbers[IS_OVER] == 0:
        step = numbers[STEP]
        for row in range(rows[0], rows[1]):
            if done_B[row] > step:
                continue
            tokens, values = hypotheses.next_WW[row], hypotheses.values_WW[row]
            at_end = hypotheses.at_end_W1[row]
            if live[row] == -np.inf:
                tokens[:], values[:], at_end[:] = 0, -np.inf, -np.inf
            else:
                status = rank(
                    hypotheses.ends_WN[row], rule.end, tokens, values, at_end, trie, prob, back, words, plan, lists,
                    directory, spare, scratch,
                )  # fmt: skip
                if status != DONE:
                    return status, row
            done_B[row] = step + 1
        _take_step(rule, hypotheses, finished)
        _move(hypotheses, trie, prob, back, plan.log_alpha, scratch.context[0], scratch.backoff[0])
        if len(finished.ranks) == 1:
            _recombine(hypotheses)
    return DONE, rows[1]


@inner
def _take_step(rule: Any, hypotheses: Any, finished: Any) -> None:
    """Finish hypotheses, and continue the best of those whose next tokens have been ranked."""
    live, lengths, numbers = hypotheses.live, hypotheses.lengths, hypotheses.numbers
    step, width, best = numbers[STEP], len(live), hypotheses.scratch_W
    tokens, parents = hypotheses.tokens_TW[step], hypotheses.parents_TW[step]
    _continue(live, hypotheses.next_WW, hypotheses.values_WW, hypotheses.counts_W, tokens, parents, best)
    if rule.end >= 0:
        at_end = hypotheses.at_end_W1[:, 0]
        for w in range(width):
            value = live[w] + at_end[w]
            if value == -np.inf:
                continue
            if not rule.is_usual or _is_among_best(w, rule.end, live, at_end, tokens, parents, best):
                _keep(value, lengths[w] + 1, step, w, True, rule, finished, numbers)
    if best[0] == -np.inf and numbers[COUNT] == 0:
        # no token can follow, and nothing is finished: the best live hypothesis is the result
        first = 0
        for w in range(1, width):
            if _rank_of(live[w], lengths[w], rule) > _rank_of(live[first], lengths[first], rule):
                first = w
        if live[first] > -np.inf:
            _keep(live[first], lengths[first], step, first, False, rule, finished, numbers)
    for w in range(width):
        hypotheses.counts_W[w] = lengths[parents[w]] + 1
    for w in range(width):
        lengths[w], live[w] = hypotheses.counts_W[w], best[w]
    numbers[STEP] = step + 1
    bound = live[0] / rule.last_divisor
    is_settled = bound == -np.inf or (numbers[COUNT] >= len(finished.ranks) and bound <= finished.ranks[-1])
    is_settled |= rule.is_usual and numbers[COUNT] >= width
    numbers[IS_OVER] = is_settled or step + 1 == rule.limit


@inner
def _continue(live: Any, next_WW: Any, values_WW: Any, taken: Any, tokens: Any, parents: Any, best: Any) -> None:
    """The best continuations of all, from the sorted ones of each hypothesis; the first hypothesis among equals."""
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
    """Whether the end of a hypothesis is among the W best ends and continuations.

    Among equals the first hypothesis, and of one hypothesis the lowest token comes first.
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
def _rank_of(log_prob: float, length: int, rule: Any) -> Any:
    return log_prob / rule.divisors[length]


@inner
def _keep(
    log_prob: float, length: int, step: int, place: int, is_ended: bool, rule: Any, finished: Any, numbers: Any
) -> None:
    """Count a finished hypothesis, and keep it if it is among the best; among equals what was finished first."""
    numbers[COUNT] += 1
    own, k = _rank_of(log_prob, length, rule), len(finished.ranks)
    while k > 0 and own > finished.ranks[k - 1]:
        k -= 1
    if k == len(finished.ranks):
        return
    ranks, log_probs, steps = finished.ranks, finished.log_probs, finished.steps
    places, ended = finished.places, finished.is_ended
    for r in range(len(ranks) - 1, k, -1):
        ranks[r], log_probs[r], steps[r] = ranks[r - 1], log_probs[r - 1], steps[r - 1]
        places[r], ended[r] = places[r - 1], ended[r - 1]
    ranks[k], log_probs[k], steps[k], places[k], ended[k] = own, log_prob, step, place, is_ended


@inner
def _move(hypotheses: Any, trie: Any, prob: Any, back: Any, log_alpha: float, context: Any, backoff: Any) -> None:
    """After a step: the nodes of a hypothesis' last words are those of its parent, moved on by its token."""
    step = hypotheses.numbers[STEP] - 1
    now, then = hypotheses.ends_WN, hypotheses.next_ends_WN
    for w in range(len(now)):
        if hypotheses.live[w] > -np.inf:
            parent = hypotheses.parents_TW[step, w]
            for n in range(now.shape[1]):
                then[w, n] = now[parent, n]
            top = locate(then[w], context, backoff, trie, prob, back, log_alpha)
            code = np.int64(trie.code[hypotheses.tokens_TW[step, w]])
            walk(then[w], top, code, context, backoff, trie, prob, back)
    for w in range(len(now)):
        for n in range(now.shape[1]):
            now[w, n] = then[w, n]


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
