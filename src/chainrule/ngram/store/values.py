"""Log-probabilities and log-backoffs of the nodes of a trie: as plain floats, in a few bits, or in 24 bits.

Few bits are indices into a codebook of numbers that lie near the values. 24 bits are places on a grid of equal
steps, fine enough to lose no more than single precision does.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace
from chainrule.ngram.store.bitstream import pack, read_bits
from chainrule.ngram.store.trie import move
from chainrule.system.parallel import in_order

GRID_BITS = 24
"""The bits of a place on a grid; codebooks have fewer."""

_SAMPLE = 1 << 20
_ROUNDS = 30
_AT_ONCE = 1 << 18
_LEAST_STEP = 2.0**-40  # of a grid whose values are all the same


class Values(NamedTuple):
    """A number for every node from node 1 on; if quantised, each length of n-grams has its own codebook or grid.

    The numbers of single words are never quantised: there are few of them, and a coarse p(<unk>) would cost at
    every unknown word.
    """

    plain: Array
    """The numbers of all nodes; if quantised, those of the single words only."""
    codes: Array
    """A bit stream: for each longer n-gram, the index of its number in the codebook, or the grid, of its length."""
    books: Array
    """The codebooks, [lengths, 2^bits], or the grids, [lengths, 2]: number i is grid[0] + i · grid[1], but number 0
    is -inf. The first row is for n-grams of two words."""
    bits: int = 0
    """The number of bits of an index; 0 if the numbers are plain."""

    @classmethod
    def of(cls, plain: Array) -> Values:
        """Make plain values, not quantised."""
        return cls(plain, np.zeros(0, np.uint32), np.zeros((1, 1), np.float32))

    def at(self, place: Array, length: int) -> Array:
        """Return the numbers at the indices `place` (node - 1); the nodes all have `length` + 1 words."""
        if self.bits == 0 or length == 0:
            return self.plain[place]
        # where a caller found no node, it passes any index, which must stay inside the stream too
        longer = (place - self.plain.shape[0]) * (place >= self.plain.shape[0])
        if self.codes.shape[0] < 2:  # there are no n-grams but single words
            return self.books[length - 1, longer]
        index = read_bits(self.codes, longer * self.bits, self.bits)
        if self.bits < GRID_BITS:
            return self.books[length - 1, index]
        xp = array_namespace(index)
        low, step = xp.astype(self.books[length - 1], xp.float64)  # double precision is exact here
        return xp.astype(xp.where(index > 0, low + step * xp.astype(index, xp.float64), -xp.inf), xp.float32)

    def to(self, where: Any) -> Values:
        """Return these values as torch tensors on a device, or, for None, as NumPy arrays."""
        return Values(move(self.plain, where), move(self.codes, where), move(self.books, where), self.bits)


def on_grids(plain: NDArray[np.float32], bounds: NDArray[np.int64]) -> Values:
    """Move each number to the nearest place on the grid of its length of n-grams; single words keep theirs.

    `bounds` holds the index at which each length begins, and the end of the last one.
    """
    indices, books = [], []
    for first, last in pairwise(bounds[1:].tolist()):
        books.append(grid_of(plain[first:last]))
        parts = (plain[at : min(at + _AT_ONCE, last)] for at in range(first, last, _AT_ONCE))
        indices += [index for _, index in in_order(partial(grid_indices, books[-1]), parts)]
    return packed(plain[: bounds[1] if len(bounds) > 1 else 0], indices, books, GRID_BITS)


def packed(
    words: NDArray[np.float32], indices: list[NDArray[Any]], books: list[NDArray[np.float32]], bits: int
) -> Values:
    """Make quantised values: plain ones for single words, for others indices into the books of their lengths."""
    codes = pack(np.concatenate([np.zeros(0, np.uint8), *indices]), bits)
    width = 2 if bits == GRID_BITS else 1 << bits
    return Values(words.copy(), codes, np.asarray(books, dtype=np.float32).reshape(len(books), width), bits)


def nearest(book: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[Any]:
    """Return the index of the nearest number of a codebook, for each value."""
    return np.searchsorted((book[1:] + book[:-1]) / 2, values).astype(np.uint8 if len(book) <= 256 else np.uint16)


def grid_of(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the grid from the smallest finite value to the largest: what index 0 would be, and the step."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    step = np.float32(max((high - low) / ((1 << GRID_BITS) - 3), _LEAST_STEP))  # 3: room for rounding
    return np.asarray([low - step, step], dtype=np.float32)


def grid_indices(grid: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return the index of the nearest number of a grid, for each value; 0 for -inf."""
    low, step = grid.astype(np.float64)
    finite = np.where(np.isfinite(values), values, low).astype(np.float64)
    indices = np.clip(np.rint((finite - low) / step), 1, (1 << GRID_BITS) - 1)
    return np.where(np.isfinite(values), indices, 0).astype(np.uint32)


def codebook(values: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return a codebook: `size` ascending numbers that lie near the values, found by Lloyd's algorithm.

    Half of the initial bins are equally full, half are equally wide. -inf, where it occurs, is one of the numbers,
    and so is the smallest finite value: each value can be rounded down. Where there are millions of values, a
    sample of them is used.
    """
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)]).astype(np.float64)
    finite = sample[np.isfinite(sample)]
    book = np.full(size, finite[-1] if len(finite) else 0.0)
    infinite = int(bool(np.isinf(values).any()))
    book[:infinite] = -np.inf
    distinct = np.unique(finite)
    if len(distinct) <= size - infinite:
        book[infinite : infinite + len(distinct)] = distinct
        return book.astype(np.float32)
    sums = np.concatenate([[0.0], np.cumsum(finite)])
    bins = size - infinite
    filled_alike = np.linspace(0, len(finite), bins - bins // 2 + 1).astype(np.int64)
    wide_alike = np.searchsorted(finite, np.linspace(finite[0], finite[-1], bins // 2 + 2)[1:-1])  # for the tails
    edges = np.sort(np.concatenate([filled_alike, wide_alike]))
    centers = np.zeros(bins)
    for _ in range(_ROUNDS):
        filled = np.diff(edges)
        means = np.diff(sums[edges]) / np.maximum(filled, 1)
        centers = np.maximum.accumulate(
            np.where(filled > 0, means, finite[np.minimum(edges[:-1], len(finite) - 1)])
        )
        edges[1:-1] = np.searchsorted(finite, (centers[1:] + centers[:-1]) / 2)
    book[infinite:] = centers
    book[infinite] = values.min(where=np.isfinite(values), initial=np.inf)
    return book.astype(np.float32)
