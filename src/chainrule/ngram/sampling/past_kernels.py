"""Numba kernels that keep count of the tokens of a text, for penalties on those that occurred.

A penalty changes ln p of each token that occurred. To look all of them up at each step would take longer the longer
the text is. So tokens are entered in a log, some at a time, and the lists of a context catch up with the log when
the context comes up (occurred_kernels.py). The few tokens that are not in the log yet are looked up at each step
(stack_kernels.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.compiled import ZERO, inner

RECENT = 48
"""The most tokens that are not in the log."""

_HASH = np.uint64(0x9E3779B97F4A7C15)

LENGTH, DISTINCT, NEW, LOGGED, EDITION, USED, NUMBERS = range(7)
"""The items of `Past.numbers`: the tokens of the text; different ones; those not in the log; the size of the log;
the number of the text and log that lists are made of; and the number of pairs in use for lists."""


class Past(NamedTuple):
    """What a text consists of."""

    times: Any
    """How often each token occurred."""
    logged_times: Any
    """How often it had when it was last entered in the log; 0 if it was not."""
    first_logged: Any
    """Its first place in the log,"""
    last_logged: Any
    """and its last one; -1 if it has none."""
    log: Any
    distinct: Any
    """The tokens of the text, each once."""
    new: Any
    """Those that have changed since they were entered in the log."""
    numbers: Any
    hash: Any
    """A hash of the text, by which the same text is known when it goes on."""
    entries: Any
    """Which list of occurred tokens each stored list has (see occurred_kernels.py), [2 * slots, ...]"""
    tops: Any
    """The ln p, without backoffs, that their masses are relative to."""
    value: Any
    """ln p of each token that is being entered in a list, without penalties."""
    region: Any
    """The first and one past the last pair that they may use."""


@inner
def penalised(value: float, times: int, plan: Any) -> Any:
    """What the strategies of decode/strategies.py make of ln p <= 0 of a token that occurred so many times."""
    return plan.slope * value - plan.per_time * times - plan.offset


@inner
def begin_text(read: Any, written: Any, plan: Any, past: Any) -> None:
    """Take note of a text; at once if it begins with the one before."""
    noted = past.numbers[LENGTH]
    seed, count = _hash_of(read, np.uint64(0), ZERO, noted)
    seed, count = _hash_of(written, seed, count, noted)
    if count < noted or seed != past.hash[0]:
        _forget(past)
        noted = ZERO
    count = ZERO
    for token in read:
        if token >= 0:
            if count >= noted:
                note(token, plan, past)
            count += 1
    for token in written:
        if count >= noted:
            note(token, plan, past)
        count += 1


@inner
def _hash_of(tokens: Any, seed: Any, count: int, most: int) -> Any:
    """The hash of a text that goes on with tokens, and how many those are, `most` in all."""
    for token in tokens:
        if token >= 0 and count < most:
            seed = _hashed(seed, token)
            count += 1
    return seed, count


@inner
def _hashed(seed: Any, token: int) -> Any:
    seed = (seed ^ np.uint64(token + 1)) * _HASH
    return seed ^ (seed >> np.uint64(29))


@inner
def _forget(past: Any) -> None:
    """Begin with an empty text."""
    for k in range(past.numbers[DISTINCT]):
        token = past.distinct[k]
        past.times[token] = past.logged_times[token] = 0
        past.last_logged[token] = -1
    past.hash[0] = 0
    past.numbers[LENGTH] = past.numbers[DISTINCT] = past.numbers[NEW] = past.numbers[LOGGED] = 0
    forget_lists(past)


@inner
def forget_lists(past: Any) -> None:
    """Begin without lists of tokens that occurred."""
    past.numbers[EDITION] += 1
    past.numbers[USED] = past.region[0]


@inner
def note(token: int, plan: Any, past: Any) -> None:
    """Add a token to the text."""
    numbers = past.numbers
    past.hash[0] = _hashed(past.hash[0], token)
    numbers[LENGTH] += 1
    if past.times[token] == 0:
        past.distinct[numbers[DISTINCT]] = token
        numbers[DISTINCT] += 1
    if past.times[token] == 0 or (plan.per_time != 0.0 and past.times[token] == past.logged_times[token]):
        past.new[numbers[NEW]] = token
        numbers[NEW] += 1
    past.times[token] += 1
    if numbers[NEW] == RECENT:
        if numbers[LOGGED] + RECENT > len(past.log):
            numbers[LOGGED] = 0
            forget_lists(past)
            for k in range(numbers[DISTINCT]):
                if past.logged_times[past.distinct[k]] > 0:
                    past.last_logged[past.distinct[k]] = -1
                    _enter(past.distinct[k], past)
        for k in range(RECENT):
            _enter(past.new[k], past)
        numbers[NEW] = 0


@inner
def _enter(token: int, past: Any) -> None:
    """Enter a token in the log."""
    at = past.numbers[LOGGED]
    past.log[at] = token
    past.logged_times[token] = past.times[token]
    if past.last_logged[token] < 0:
        past.first_logged[token] = at
    past.last_logged[token] = at
    past.numbers[LOGGED] += 1
