"""Random numbers for sampling that depend on the seed and the prompt, not on the batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BELOW_ONE = 1 - 2**-40  # so that u · total stays below the total, however it is rounded


class Uniforms:
    """A stream of random numbers in [0, 1) for each row of a batch.

    A stream depends on the seed, on the prompt of its row, and on the row's number among the copies of that prompt.
    """

    def __init__(self, seed: int, prompts: Sequence[Sequence[int]], copies: Sequence[int] | None = None) -> None:
        """`copies` is the number of each row among those of its prompt; if not given, equal prompts are counted."""
        counted: Counter[bytes] = Counter()
        self._streams = []
        for row, prompt in enumerate(prompts):
            digest = hashlib.blake2b(np.asarray(prompt, dtype=np.int64).tobytes(), digest_size=8).digest()
            copy = counted[digest] if copies is None else copies[row]
            counted[digest] += 1
            self._streams.append(np.random.default_rng([seed % 2**64, int.from_bytes(digest, "little"), copy]))

    def draw(self, rows: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """The next `steps` numbers of each of these rows."""
        numbers = [self._streams[row].random(steps) for row in rows]
        return np.asarray(numbers).reshape(len(rows), steps) * _BELOW_ONE
