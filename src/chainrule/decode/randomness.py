"""Randomness as a value: what is drawn depends on the seed and the prompt, not on the batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BELOW_ONE = 1 - 2**-40  # so that u · total stays below the total, whatever is rounded


def uniforms(seed: int, prompts: Sequence[Sequence[int]], steps: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), a row per prompt and a column per step.

    A row is the same wherever its prompt stands in a batch; copies of a prompt get rows of their own.
    """
    copies: Counter[bytes] = Counter()
    rows = []
    for prompt in prompts:
        digest = hashlib.blake2b(np.asarray(prompt, dtype=np.int64).tobytes(), digest_size=8).digest()
        key = [seed & (1 << 63) - 1, int.from_bytes(digest, "little"), copies[digest]]
        copies[digest] += 1
        rows.append(np.random.default_rng(key).random(steps) * _BELOW_ONE)
    return np.stack(rows)
