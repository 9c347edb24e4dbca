"""Random numbers for sampling that depend on the seed and the prompt, not on the batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

_BELOW_ONE = 1 - 2**-40  # so that u · total stays below the total, however it is rounded


class _Hashed(ISeedSequence):
    """A seed from a hash; numpy's own way from numbers to a seed takes eight times as long."""

    def __init__(self, *parts: bytes) -> None:
        self._hash = hashlib.blake2b(b"".join(parts), digest_size=64)

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> NDArray[np.unsignedinteger]:
        return np.frombuffer(self._hash.digest(), dtype=dtype, count=n_words)


class Uniforms:
    """A stream of random numbers in [0, 1) for each row of a batch.

    A stream depends on the seed, on the prompt of its row, and on the row's number among the copies of that prompt.
    """

    def __init__(self, seed: int, prompts: Sequence[Sequence[int]], copies: Sequence[int] | None = None) -> None:
        """`copies` is the number of each row among those of its prompt; if not given, equal prompts are counted."""
        counted: Counter[bytes] = Counter()
        self._streams = []
        for row, prompt in enumerate(prompts):
            known = np.asarray(prompt, dtype=np.int64).tobytes()
            copy = counted[known] if copies is None else copies[row]
            counted[known] += 1
            numbers = np.asarray([seed % 2**64, copy], dtype=np.uint64)
            hashed = _Hashed(numbers.tobytes(), known)
            self._streams.append(np.random.Generator(np.random.PCG64(hashed)))  # type: ignore[arg-type]

    def draw(self, rows: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
        """The next `steps` numbers of each of these rows."""
        numbers = [self._streams[row].random(steps) for row in rows]
        return np.asarray(numbers).reshape(len(rows), steps) * _BELOW_ONE
