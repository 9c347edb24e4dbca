"""Keys that are guessed by time: a wrong key that shares more letters with the right one takes no longer."""

from __future__ import annotations

import time
from typing import Any

from chainrule.serve.guard import MOST_HEADER, Guard, Rules

from .frame import Trial

GUESSES = "wrong keys of the same length"
_SIZE = MOST_HEADER - 5000
"""Letters of the key: so many that the time of a comparison of all differs from that of a comparison of some."""
_ALIKE = 1.1
"""The least times of two guesses differ by this factor at most."""
_TIMES, _ROUNDS, _CALLS = 3, 40, 6


def guess(trial: Trial) -> None:
    """Time the check of wrong keys that share 0 to all but one of the first letters with the right one.

    The times of answers over a network differ by more than those of a comparison, so the check itself is timed, and
    the least of many times is taken: another program can only add to it. What differs is timed twice more.
    """
    key = "k" * _SIZE
    unused: Any = None
    guard = Guard(unused, Rules(key=key), unused)
    shares = [_SIZE * share // 4 for share in range(4)] + [_SIZE - 1]
    given = {share: f"Bearer {key[:share]}x{key[share + 1 :]}" for share in shares}
    slowest = float("inf")
    for _ in range(_TIMES):
        least = dict.fromkeys(shares, float("inf"))
        for _ in range(_ROUNDS):
            for share, guessed in given.items():
                began = time.perf_counter()
                is_taken = sum(guard._has_key(guessed) for _ in range(_CALLS))
                least[share] = min(least[share], time.perf_counter() - began)
                trial.note(GUESSES, "it was taken for the right one" if is_taken else None)
        slowest = min(slowest, max(least.values()) / min(least.values()))
        if slowest <= _ALIKE:
            break
    trial.note(GUESSES, f"one takes {slowest:.2f} times as long as another" if slowest > _ALIKE else None)
