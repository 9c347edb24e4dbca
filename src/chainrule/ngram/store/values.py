"""Log-probabilities and log-backoffs of the nodes of a trie, as plain floats or quantised to a few bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array
from chainrule.ngram.store.bitstream import pack, read_bits
from chainrule.ngram.store.trie import move
from chainrule.parallel import in_order

_SAMPLE = 1 << 20
_ROUNDS = 30
_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Values:
    """A number for every node from node 1 on; if quantised, each length of n-grams has a codebook of its own.

    The numbers of single words are never quantised: there are few of them, and a coarse p(<unk>) would cost at
    every unknown word.
    """

    plain: Array
    """The numbers of all nodes; if quantised, those of the single words only."""
    codes: Array
    """A bit stream: for each longer n-gram, the index of its number in the codebook of its length."""
    books: Array
    """The codebooks, [lengths, 2^bits]; the first row is for n-grams of two words."""
    bits: int = 0
    """The number of bits of an index into a codebook; 0 if the numbers are plain."""

    @classmethod
    def of(cls, plain: Array) -> Values:
        """Plain values, not quantised."""
        return cls(plain, np.zeros(0, np.uint32), np.zeros((1, 1), np.float32))

    def at(self, place: Array, length: int) -> Array:
        """The numbers at the indices `place` (node - 1); the nodes all have `length` + 1 words."""
        if self.bits == 0 or length == 0:
            return self.plain[place]
        # an index that no node has, as callers give for what was not found, must stay inside the stream too
        longer = (place - self.plain.shape[0]) * (place >= self.plain.shape[0])
        if self.codes.shape[0] < 2:  # there are no n-grams but single words
            return self.books[length - 1, longer]
        return self.books[length - 1, read_bits(self.codes, longer * self.bits, self.bits)]

    def to(self, where: Any) -> Values:
        """These values as torch tensors on a device, or, for None, as NumPy arrays."""
        return Values(move(self.plain, where), move(self.codes, where), move(self.books, where), self.bits)


def quantise(plain: NDArray[np.float32], bounds: NDArray[np.int64], bits: int) -> Values:
    """Quantise each number to the nearest of 2^bits for its length of n-grams; those of single words stay plain.

    `bounds` holds the index at which each length begins, and the end of the last one.
    """
    narrow = np.uint8 if bits <= 8 else np.uint16
    places: list[NDArray[Any]] = []
    books = []
    for first, last in pairwise(bounds[1:].tolist()):
        book = codebook(plain[first:last], 1 << bits)
        middles = (book[1:] + book[:-1]) / 2
        parts = (plain[at : min(at + _AT_ONCE, last)] for at in range(first, last, _AT_ONCE))
        for _, nearest in in_order(partial(np.searchsorted, middles), parts):
            places.append(np.asarray(nearest, dtype=narrow))
        books.append(book)
    codes = pack(np.concatenate([np.zeros(0, narrow), *places]), bits)
    table = np.asarray(books, dtype=np.float32).reshape(len(books), 1 << bits)
    return Values(plain[: bounds[1] if len(bounds) > 1 else 0].copy(), codes, table, bits)


def codebook(values: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """A codebook: `size` ascending numbers that lie near the values, found by Lloyd's algorithm.

    Half of the initial bins are equally full, half are equally wide. -inf, where it occurs, is one of the numbers.
    Where there are millions of values, a sample of them is used.
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
    return book.astype(np.float32)
