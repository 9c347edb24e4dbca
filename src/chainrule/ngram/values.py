"""What is known of each node: logarithms, as they are or in few bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array
from chainrule.ngram.packed import pack, read_bits
from chainrule.ngram.trie import move
from chainrule.parallel import in_order

_SAMPLE = 1 << 20
_ROUNDS = 30
_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Values:
    """A number for every node from the first on; each length has a codebook of its own if they are quantised.

    The words' own numbers are never quantised: there are few of them, and a coarse p(<unk>) would be paid for with
    every unknown word.
    """

    plain: Array
    """The numbers, or, if they are quantised, those of the words."""
    codes: Array
    """A stream of bits: the place of each longer n-gram's number in its length's codebook."""
    books: Array
    """[lengths, 2^bits]; the first row is of the n-grams of two words."""
    bits: int = 0
    """How many bits each takes; 0 for plain ones."""

    @classmethod
    def of(cls, plain: Array) -> Values:
        """Numbers as they are."""
        return cls(plain, np.zeros(0, np.uint32), np.zeros((1, 1), np.float32))

    def at(self, place: Array, length: int) -> Array:
        """The numbers at some places, all of n-grams of so many words less one."""
        if self.bits == 0 or length == 0:
            return self.plain[place]
        longer = place - self.plain.shape[0]
        return self.books[length - 1, read_bits(self.codes, longer * self.bits, self.bits)]

    def to(self, where: Any) -> Values:
        """The same as torch tensors on a device, or, for None, as NumPy arrays."""
        return Values(move(self.plain, where), move(self.codes, where), move(self.books, where), self.bits)


def quantise(plain: NDArray[np.float32], bounds: NDArray[np.int64], bits: int) -> Values:
    """Each number replaced by the nearest of 2^bits for its length, but for those of the first length.

    `bounds` says where lengths begin, and where the last one ends.
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
    """So many numbers, ascending, that lie near the values: Lloyd's algorithm, from bins half of which are
    filled alike and half are wide alike.

    -inf, where it occurs, is one of them. A sample of a million values stands for more.
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
