"""Drafting on a GPU by Triton kernels: one guesses the next tokens, another keeps those that were right.

`tests/inference/slow_drafting.py` has the same in torch. Each kernel is one program: a guess depends on the one
before it, and there is little to do. The status is [length, column, active, limit, steps, drafted].
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _hashed(total, MIXER: tl.constexpr):
    mixed = (total ^ (total >> 32)) * MIXER
    return mixed ^ (mixed >> 29)


@triton.jit
def _place_of_match(text_ptr, n, BLOCK_W: tl.constexpr, SHORTEST: tl.constexpr, LONGEST: tl.constexpr):
    """Where the last tokens of a text, up to index n, stood before: the place after them; -1 if nowhere.

    The longest match is best, and the latest of those.
    """
    p = tl.arange(0, BLOCK_W)
    alive = (p >= 1) & (p <= n)
    matched = tl.zeros([BLOCK_W], tl.int64)  # how many tokens before each place p
    for k in tl.static_range(LONGEST):
        own = tl.load(text_ptr + tl.maximum(n - k, 0))
        alive = alive & (p > k) & (n >= k)
        alive = alive & (tl.load(text_ptr + p - 1 - k, mask=alive, other=-1) == own)
        matched += alive.to(tl.int64)
    best = tl.max(tl.where(matched >= SHORTEST, matched * (2 * BLOCK_W) + p, -1), 0)
    return tl.where(best >= 0, best % (2 * BLOCK_W), -1)


@triton.jit
def _looked_up(
    t1, t2, t3, t4, count, table_ptr, mask, SLOTS: tl.constexpr, F1: tl.constexpr, F2: tl.constexpr,
    F3: tl.constexpr, SEED: tl.constexpr, MIXER: tl.constexpr, PRINT: tl.constexpr,
):  # fmt: skip
    """Return the token after the longest known context of a text of `count` tokens; else its last token, t1."""
    lane = tl.arange(0, 4 * SLOTS)
    length, slot = (lane // SLOTS + 1).to(tl.int64), lane % SLOTS
    # Σ (token + 1) · factor over the last one, two, three and four tokens
    h1 = t1 + 1
    h2 = h1 + (t2 + 1) * F1
    h3 = h2 + (t3 + 1) * F2
    h4 = h3 + (t4 + 1) * F3
    total = tl.where(length == 1, h1, tl.where(length == 2, h2, tl.where(length == 3, h3, h4)))
    hashed = _hashed(total + length * SEED, MIXER)
    entry = tl.load(table_ptr + ((hashed >> 32) & mask) * SLOTS + slot)
    is_known = (entry >> 32 == (hashed & PRINT) + 1) & (length <= count)
    top = tl.max(tl.where(is_known, (length << 32) | (entry & 0xFFFFFFFF), -1), 0)
    return tl.where(top >= 0, top & 0xFFFFFFFF, t1)


@triton.jit
def guess(
    text_ptr, status_ptr, table_ptr, uniforms_ptr, ids_ptr, places_ptr, numbers_ptr, active_ptr, mask,
    K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_W: tl.constexpr, COPIES: tl.constexpr, LOOKS_UP: tl.constexpr,
    SHORTEST: tl.constexpr, LONGEST: tl.constexpr, SLOTS: tl.constexpr, F1: tl.constexpr, F2: tl.constexpr,
    F3: tl.constexpr, SEED: tl.constexpr, MIXER: tl.constexpr, PRINT: tl.constexpr,
):  # fmt: skip
    """Write K guesses after the text, K + 1 tokens to read, and as many random numbers to choose by."""
    n, column, active = tl.load(status_ptr), tl.load(status_ptr + 1), tl.load(status_ptr + 2)
    t = tl.arange(0, BLOCK_T)
    tl.store(places_ptr + t, n + t, mask=t <= K)
    tl.store(active_ptr + t, t >= 0, mask=t <= K)
    tl.store(numbers_ptr + t, tl.load(uniforms_ptr + column + t, mask=t <= K, other=0.0), mask=t <= K)
    last = tl.load(text_ptr + n)
    tl.store(ids_ptr, last)
    begin = n * 0 - 1
    if COPIES:
        begin = _place_of_match(text_ptr, n, BLOCK_W, SHORTEST, LONGEST)
    if begin >= 0:
        is_guess = (t >= 1) & (t <= K)
        copied = tl.load(text_ptr + begin + (t - 1) % (n + 1 - begin), mask=is_guess, other=0)
        tl.store(ids_ptr + t, copied, mask=is_guess)
        tl.store(text_ptr + n + t, copied, mask=is_guess)
    else:
        t1, t2 = last, tl.load(text_ptr + tl.maximum(n - 1, 0))
        t3, t4 = tl.load(text_ptr + tl.maximum(n - 2, 0)), tl.load(text_ptr + tl.maximum(n - 3, 0))
        for i in range(K):
            token = t1
            if LOOKS_UP:
                token = _looked_up(
                    t1, t2, t3, t4, n + 1 + i, table_ptr, mask, SLOTS, F1, F2, F3, SEED, MIXER, PRINT
                )  # fmt: skip
            tl.store(ids_ptr + 1 + i, token)
            tl.store(text_ptr + n + 1 + i, token)
            t4 = t3
            t3 = t2
            t2 = t1
            t1 = token
    if LOOKS_UP or begin >= 0:
        tl.store(status_ptr + 5, tl.load(status_ptr + 5) + active * K)


@triton.jit
def keep(
    text_ptr, status_ptr, ids_ptr, chosen_ptr, scores_ptr, active_ptr, features_ptr, tokens_ptr, written_ptr,
    last_ptr, K: tl.constexpr, BLOCK_T: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Keep the guesses up to the first that was not chosen, and the token that was chosen there."""
    n, column, active = tl.load(status_ptr), tl.load(status_ptr + 1), tl.load(status_ptr + 2)
    t = tl.arange(0, BLOCK_T)
    there = t <= K
    token = tl.load(chosen_ptr + t, mask=there, other=0)
    goes = tl.load(active_ptr + t, mask=there, other=0).to(tl.int64)
    guessed = tl.load(ids_ptr + 1 + t, mask=t < K, other=-2)
    kept = tl.min(tl.where((token == guessed) & (goes != 0) & (t < K), BLOCK_T, t), 0)
    new = (kept + 1) * active
    # the next step overwrites the tokens after those that are kept
    tl.store(text_ptr + n + 1 + t, tl.maximum(token, 0), mask=there)
    tl.store(tokens_ptr + column + t, token, mask=there)
    tl.store(written_ptr + column + t, tl.load(scores_ptr + t, mask=there, other=0.0), mask=there)
    d = tl.arange(0, BLOCK_D)
    features = tl.load(features_ptr + kept * D + d, mask=d < D, other=0.0)
    tl.store(last_ptr + d, features, mask=(d < D) & (active != 0))
    goes_on = tl.sum(tl.where(t == kept, goes, 0), 0)
    within = (column + new < tl.load(status_ptr + 3)).to(tl.int64)
    steps = tl.load(status_ptr + 4)
    tl.store(status_ptr, n + new)
    tl.store(status_ptr + 1, column + new)
    tl.store(status_ptr + 2, active * goes_on * within)
    tl.store(status_ptr + 4, steps + active)
