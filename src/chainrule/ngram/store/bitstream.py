"""Bit streams: non-negative integers of b bits each, packed one after the other into 32-bit words.

Number i takes the bits [i·b, (i+1)·b) of the stream, lowest first. 32 numbers fill b words exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from array_api_compat import device

from chainrule.arrays import Array, array_namespace
from chainrule.system.parallel import EMBEDDED, Executor, worth_a_kernel

MOST_BITS = 32
_NANOSECONDS = 64  # to pack a number with NumPy
_NUMBERS_AT_ONCE = 1 << 20  # a multiple of 32: no two threads write the same word


def read_bits(words: Array, place: Array, bits: Array | int) -> Array:
    """Return the numbers of `bits` bits that begin at the bit offsets `place` of a stream, as int64."""
    xp = array_namespace(place)
    word = place >> 5
    low = xp.astype(words[word], xp.int64) & 0xFFFFFFFF
    high = xp.astype(words[word + 1], xp.int64) & 0x7FFFFFFF  # 32 + 31 bits suffice, and keep the sign bit 0
    return ((low | high << 32) >> (place & 31)) & ((1 << bits) - 1)


def bits_for(largest: int) -> int:
    """Return the number of bits that a number up to `largest` takes; at least one."""
    return max(1, int(largest).bit_length())


def words_for(numbers: int, bits: int) -> int:
    """Return the length of a stream in 32-bit words, one of them padding: `read_bits` reads two at once."""
    return -(-numbers * bits // 32) + 1


def pack(
    values: Array, bits: int, empty: Callable[[int], Array] | None = None, executor: Executor = EMBEDDED
) -> Array:
    """Pack numbers into a bit stream; ValueError if one does not fit into `bits` bits.

    The workers of the executor write large streams into the array that `empty(words)` returns, which must be all 0.
    The words are uint32; in torch, which has no uint32 arithmetic, they are int32 with the same bits.
    """
    xp = array_namespace(values)
    size = values.shape[0]
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"1 to {MOST_BITS} bits, not {bits}")
    if size and not 0 <= int(xp.min(values)) <= int(xp.max(values)) < 1 << bits:
        raise ValueError(f"a number does not fit into {bits} bits")
    if isinstance(values, np.ndarray) and worth_a_kernel(size, _NANOSECONDS):
        words = words_for(size, bits)
        stream: Array = np.zeros(words, dtype=np.uint32) if empty is None else empty(words)

        def pack_some(first: int) -> None:
            from chainrule.ngram.store.kernels import pack_bits

            pack_bits(values, first, min(first + _NUMBERS_AT_ONCE, size), bits, stream)

        for _ in executor.in_order(pack_some, range(0, size, _NUMBERS_AT_ONCE)):
            pass
        return stream
    groups = -(-size // 32)
    rows = xp.zeros(groups * 32, dtype=xp.int64, device=device(values))
    rows[:size] = values
    rows = xp.reshape(rows, (groups, 32))
    packed = xp.zeros((groups, bits + 1), dtype=xp.int64, device=device(values))
    for k in range(32):
        word, shift = divmod(k * bits, 32)
        moved = rows[:, k] << shift
        packed[:, word] |= moved & 0xFFFFFFFF
        packed[:, word + 1] |= moved >> 32
    stream = xp.zeros(groups * bits + 1, dtype=xp.int64, device=device(values))
    stream[:-1] = xp.reshape(packed[:, :-1], (-1,))
    stream = stream[: words_for(size, bits)]
    if isinstance(stream, np.ndarray):
        return stream.astype(np.uint32)
    return xp.astype(stream - ((stream >> 31) << 32), xp.int32)
