"""Randomness as a value: what is drawn depends on the seed and the prompt, not on the batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BELOW_ONE = 1 - 2**-40  # so that u · total stays below the total, whatever is rounded


class Uniforms:
    """A stream of numbers in [0, 1) for each prompt.

    A stream is the same wherever its prompt stands in a batch; copies of a prompt get streams of their own.
    """

    def __init__(self, seed: int, prompts: Sequence[Sequence[int]]) -> None:
        copies: Counter[bytes] = Counter()
        self._streams = []
        for prompt in prompts:
            digest = hashlib.blake2b(np.asarray(prompt, dtype=np.int64).tobytes(), digest_size=8).digest()
            key = [seed % 2**64, int.from_bytes(digest, "little"), copies[digest]]
            copies[digest] += 1
            self._streams.append(np.random.default_rng(key))

    def draw(self, rows: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """The next few numbers of each of these rows."""
        return np.stack([self._streams[row].random(steps) for row in rows]) * _BELOW_ONE
