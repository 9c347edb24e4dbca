"""The n-grams of a model as a compact trie, whose arrays are the same in memory as on disk.

A node is an n-gram: node 0 is the empty one, nodes 1 to V are the words in the order of their codes, and the nodes
of each further length follow, sorted as estimate/levels.py says. A node stores the code of its last word, in as few
bits as the vocabulary needs, and, if it is a context, where its children begin. These beginnings ascend from node
to node, so the 32 contexts of a group share one integer (`base`), to which each adds a rest of as few bits as the
group needs.

The methods are written against the Array API, for NumPy and torch; kernels.py has Numba kernels that do the same
faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from chainrule.arrays import Array, array_namespace, to_numpy
from chainrule.ngram.store.bitstream import bits_for, pack, read_bits
from chainrule.ngram.store.codes import find
from chainrule.ngram.workspace import IN_MEMORY, Workspace
from chainrule.system.parallel import worth_a_kernel

Ints = NDArray[np.int64]

_GROUP_BITS = 5
GROUP = 1 << _GROUP_BITS
"""The number of contexts of a group, which share a base."""
_GROUPS_AT_ONCE = 1 << 15
_NANOSECONDS = 64  # to pack where the children of one context begin, with NumPy


class TrieArrays(NamedTuple):
    """The structure of the trie (`Trie` explains each array), and its hash index."""

    code: NDArray[Any]
    """The code of each word; V, which means "no word", is its own code."""
    size: int
    """V, the number of words."""
    table: NDArray[Any]
    words: Array
    base: Array
    offset: Array
    rest: Array
    word_bits: int
    slots: NDArray[Any]
    """The slots of the hash index; empty if there is none."""
    bos: int
    """The code of <s>, over which no context reaches."""


@dataclass(frozen=True)
class Trie:
    """The structure of a set of n-grams, which contains every word and the context of each of its n-grams."""

    vocab_size: int
    first_of_length: Ints
    """The first node of each length, and one past the last node: N + 2 numbers, starting 0, 1, V + 1."""
    words: Array
    """A bit stream: the codes of the last words of the nodes of two and more words."""
    base: Array
    """For the first context of each group, the index of its first child within the next length; length after
    length."""
    offset: Array
    """The index of the 32-bit word of `rest` at which the rests of each group begin, and one past the last: 32
    rests of b bits fill b words, so b is the difference to the next offset."""
    rest: Array
    """A bit stream for each group, one after the other: the first child of each context, less the group's base."""

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.first_of_length) - 2

    @property
    def nodes(self) -> int:
        """The number of nodes, including the empty one."""
        return int(self.first_of_length[-1])

    @cached_property
    def word_bits(self) -> int:
        """The number of bits of a code."""
        return bits_for(self.vocab_size - 1)

    @cached_property
    def table(self) -> Ints:
        """For each length 0 to N: first node, first group of contexts, one past the last node."""
        table = np.zeros((self.order + 1, 3), dtype=np.int64)
        sizes = np.diff(self.first_of_length)
        table[:, 0], table[:, 2] = self.first_of_length[:-1], self.first_of_length[1:]
        table[2:, 1] = np.cumsum(groups_for(sizes[1:-1]))
        return table

    def to(self, where: Any) -> Trie:
        """Return this trie with its arrays as torch tensors on a device, or, for None, as NumPy arrays."""
        base, offset = (to_numpy(array).astype(np.int64) for array in (self.base, self.offset))
        if where is None:
            base, offset = _narrow(base), _narrow(offset)
        streams = (move(array, where) for array in (self.words, base, offset, self.rest))
        return Trie(self.vocab_size, self.first_of_length, *streams)

    def begin(self, nodes: Array, n: int) -> Array:
        """Return the first child of each node of n words, as its index among the nodes of n + 1 words."""
        xp = array_namespace(nodes)
        context = nodes - int(self.table[n, 0])
        group = (context >> _GROUP_BITS) + int(self.table[n, 1])
        word = xp.astype(self.offset[group], xp.int64)
        bits = xp.astype(self.offset[group + 1], xp.int64) - word
        rest = read_bits(self.rest, (word << 5) + (context & (GROUP - 1)) * bits, bits)
        return xp.astype(self.base[group], xp.int64) + rest

    def children(self, nodes: Array, n: int) -> tuple[Array, Array]:
        """Return the first child of each node of n words, and one past its last."""
        above = int(self.first_of_length[n + 1])
        if n == 0:
            xp = array_namespace(nodes)
            return xp.ones_like(nodes), xp.full_like(nodes, self.vocab_size + 1)
        return self.begin(nodes, n) + above, self.begin(nodes + 1, n) + above

    def word(self, nodes: Array) -> Array:
        """Return the code of the last word of each node."""
        xp = array_namespace(nodes)
        longer = nodes - int(self.first_of_length[2])
        is_longer = longer >= 0
        if self.nodes == self.first_of_length[2]:  # no n-gram is longer than one word
            return nodes - 1
        codes = read_bits(self.words, xp.where(is_longer, longer, 0) * self.word_bits, self.word_bits)
        return xp.where(is_longer, codes, nodes - 1)

    def child(self, nodes: Array, n: int, codes: Array) -> Array:
        """Return the child of each node of n words with this last word; 0 where there is none, as for code V."""
        xp = array_namespace(nodes)
        known = codes < self.vocab_size
        if n == 0:
            return xp.where(known, codes + 1, 0)
        first, last = self.children(nodes, n)
        found = find(self.word, xp.where(known, first, 0), xp.where(known, last, 0), codes)
        return xp.where(found >= 0, found, 0)

    def parent(self, nodes: Array, n: int) -> Array:
        """Return the parent of each node of n words: the n-gram without its last word."""
        xp = array_namespace(nodes)
        if n == 1:
            return xp.zeros_like(nodes)
        first = int(self.first_of_length[n - 1])
        contexts = int(self.first_of_length[n]) - first
        place = nodes - int(self.first_of_length[n])
        bases = self.base[int(self.table[n - 1, 1]) :][: (contexts >> _GROUP_BITS) + 1]
        group = xp.searchsorted(bases, xp.astype(place, bases.dtype), side="right") - 1
        low = xp.astype(group, xp.int64) << _GROUP_BITS
        high = xp.clip(low + GROUP, None, contexts)
        for _ in range(_GROUP_BITS):  # find the last context whose children begin at `place` or before
            middle = (low + high) // 2
            before = self.begin(middle + first, n - 1) <= place
            low, high = xp.where(before, middle, low), xp.where(before, high, middle)
        return low + first

    def ngrams(self, first: int, last: int, n: int) -> Ints:
        """Return the codes of the words of nodes first to last - 1, of n words each, as [K, n]; NumPy only."""
        nodes = np.arange(first, last)
        if n == 1 or first == last:
            return (nodes - 1)[:, None] if n == 1 else np.zeros((0, n), dtype=np.int64)
        contexts = self.parent(nodes[[0, -1]], n)
        begin, end = self.children(np.arange(contexts[0], contexts[1] + 1), n - 1)
        sizes = np.minimum(end, last) - np.maximum(begin, first)
        rows = np.repeat(self.ngrams(int(contexts[0]), int(contexts[1]) + 1, n - 1), sizes, axis=0)
        return np.concatenate([rows, self.word(nodes)[:, None]], axis=1)

    def blocks(self, n: int, size: int = 1 << 18) -> Iterator[tuple[int, int]]:
        """Yield the nodes of n words in blocks of at most `size`, each as (first, one past the last)."""
        for first in range(int(self.first_of_length[n]), int(self.first_of_length[n + 1]), size):
            yield first, min(first + size, int(self.first_of_length[n + 1]))

    def length(self, nodes: Array) -> Array:
        """Return the number of words of each node."""
        xp = array_namespace(nodes)
        # copied, since a memory-mapped array is read-only
        firsts = xp.asarray(np.array(self.first_of_length[1:-1]), device=device(nodes))
        return xp.astype(xp.searchsorted(firsts, nodes, side="right"), xp.int64)


def move(array: Array, where: Any) -> Array:
    """Return the array as a torch tensor on a device, or, for None, as a NumPy array.

    Torch has no arithmetic for uint32 and uint64: bit streams become int32 with the same bits, which `read_bits`
    takes too.
    """
    array = to_numpy(array)
    if where is None:
        return array.view(np.uint32) if array.dtype == np.int32 else array
    import torch

    same_bits = {np.dtype(np.uint32): np.int32, np.dtype(np.uint64): np.int64}
    return torch.from_numpy(np.array(array.view(same_bits.get(array.dtype, array.dtype)))).to(where)


def read_only(array: Array) -> NDArray[Any]:
    """Return a read-only view of an array: trained arrays and memory-mapped ones then have one type for Numba."""
    view: NDArray[Any] = np.asarray(array).view()
    view.flags.writeable = False
    return view


def groups_for(contexts: Any) -> Any:
    """Return how many groups of 32 hold the beginnings of `contexts` contexts and the end of the last one."""
    return (contexts >> _GROUP_BITS) + 1


def pack_begins(begins: Sequence[Array], workspace: Workspace = IN_MEMORY) -> tuple[Array, Array, Array]:
    """Return the arrays `base`, `offset` and `rest` of a trie.

    `begins` holds, for each length from 1 on, where the children of each context begin, and one past the last.
    """
    if not begins:
        nothing = np.zeros(0, dtype=np.uint32)
        return nothing, np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint32)
    amount = sum(begin.shape[0] for begin in begins)
    if isinstance(begins[0], np.ndarray) and (workspace.executor.is_remote or worth_a_kernel(amount, _NANOSECONDS)):
        return _pack_begins_fast(begins, workspace)
    xp, where = array_namespace(begins[0]), device(begins[0])
    base, width, rests = map(list, zip(*map(_pack_groups, begins), strict=True))
    offset = xp.concat([xp.zeros(1, dtype=xp.int64, device=where), xp.cumulative_sum(xp.concat(width))])
    # one word of padding, since `read_bits` reads two words at once
    rest = xp.concat([*rests, xp.zeros(1, dtype=rests[0].dtype, device=where)])
    return _narrow(xp.concat(base)), _narrow(offset), rest


def _pack_begins_fast(begins: Sequence[Array], workspace: Workspace) -> tuple[Array, Array, Array]:
    """Do the same by kernels: find the widths of all groups, then pack the rests, some groups at a time."""
    from chainrule.ngram.store.kernels import group_widths, pack_groups

    groups = [groups_for(len(begin) - 1) for begin in begins]
    firsts = [0, *accumulate(groups)]
    base, width = (workspace.empty(firsts[-1], np.int64) for _ in range(2))

    def measure(piece: tuple[int, int, int]) -> None:
        level, first, last = piece
        to = slice(firsts[level] + first, firsts[level] + last)
        group_widths(begins[level][first * GROUP : last * GROUP], base[to], width[to])

    pieces = [
        (level, first, min(first + _GROUPS_AT_ONCE, size))
        for level, size in enumerate(groups)
        for first in range(0, size, _GROUPS_AT_ONCE)
    ]
    for _ in workspace.in_order(measure, pieces):
        pass
    offset = workspace.empty(firsts[-1] + 1, np.int64)
    offset[0] = 0
    np.cumsum(width, out=offset[1:])
    size = int(offset[-1]) + 1
    rest = workspace.empty(size, np.uint32) if workspace.spills else np.zeros(size, np.uint32)

    def pack_some(piece: tuple[int, int, int]) -> None:
        level, first, last = piece
        starts = offset[firsts[level] + first : firsts[level] + last + 1]
        pack_groups(begins[level][first * GROUP : last * GROUP], starts, rest)

    for _ in workspace.in_order(pack_some, pieces):
        pass
    return _narrow(base), _narrow(offset), rest


def _pack_groups(begin: Array) -> tuple[Array, Array, Array]:
    """Return the base, the bit width and the packed rests of each group of 32 contexts of one length."""
    xp = array_namespace(begin)
    groups = groups_for(begin.shape[0] - 1)
    rows = xp.zeros(groups * GROUP, dtype=xp.int64, device=device(begin))
    rows[: begin.shape[0]] = xp.astype(begin, xp.int64)
    rows[begin.shape[0] :] = rows[begin.shape[0] - 1]
    rows = xp.reshape(rows, (groups, GROUP))
    base = rows[:, 0]
    width = bit_lengths(rows[:, -1] - base)
    return base, width, _pack_rows(rows - base[:, None], width)


def _narrow(values: Array) -> Array:
    """Convert a NumPy array to uint32 if its values fit, else to uint64; torch tensors stay int64."""
    if not isinstance(values, np.ndarray):
        return values
    return values.astype(np.uint32 if int(values.max(initial=0)) < 1 << 32 else np.uint64)


def bit_lengths(values: Array) -> Array:
    """Return the number of bits that each number takes; at least one."""
    xp = array_namespace(values)
    bits = xp.ones_like(values)
    for k in range(1, int(xp.max(values)).bit_length()):
        bits = bits + xp.astype(values >= 1 << k, xp.int64)
    return bits


def _pack_rows(rows: Array, width: Array) -> Array:
    """Pack each row of 32 numbers of `width` bits into `width` words; all rows of one width are packed at once."""
    xp, where = array_namespace(rows), device(rows)
    first = xp.cumulative_sum(width) - width
    stream = xp.zeros(int(xp.sum(width)), dtype=pack(rows[0], 32).dtype, device=where)
    for bits in range(1, int(xp.max(width)) + 1):
        which = xp.nonzero(width == bits)[0]
        if which.shape[0]:
            packed = xp.reshape(pack(xp.reshape(rows[which], (-1,)), bits)[:-1], (which.shape[0], bits))
            stream[first[which][:, None] + xp.arange(bits, dtype=xp.int64, device=where)] = packed
    return stream
