"""Numba kernels that build sorted lists (cut_kernels.py) of the words seen after a context, and keep them.

The distribution after a text is a stack of levels: all words without context, then the words seen after the last
word, after the last two, and so on. Each level adds a list of its words, with their stored log-probabilities, and
removes a list of the same words, with their log-probabilities after the shorter context. Both lists depend on the
context alone, so they are built once, at its first visit, and kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.sampling.draw_kernels import BLOCK, BUCKETS, rows_for, trailing_bits
from chainrule.ngram.sampling.walk_kernels import code_of, value_after
from chainrule.ngram.store.compiled import ZERO, inner, integers
from chainrule.ngram.store.kernels import bits_at, value_at

_MERGED = 32  # a shorter context with fewer than 32 times as many children is merged, another one is searched
_INSERTION = 48  # lists up to this size are sorted by insertion
_DIGIT = 8
_HASH = np.uint64(0x9E3779B97F4A7C15)

PLACE = integers("first added taken first_row")
"""An item of `Directory.places`: the first pair of a context, the sizes of its two lists, its first row."""


class Directory(NamedTuple):
    """The places of the lists of each context: a hash table with linear probing."""

    nodes: Any
    """The node of the context in each slot; 0 if the slot is empty."""
    places: Any
    """Of type `PLACE`."""
    tops: Any
    """The largest value of each of the two lists, the first NaN if the level has a NaN; and the level's backoff,
    unless it is stored elsewhere. [slots, 3]"""
    used: Any
    """The number of pairs, of histograms and of slots in use."""


class Spare(NamedTuple):
    """Arrays to sort in."""

    keys: Any
    """[2, size], uint32"""
    items: Any
    """[2, size], int32"""
    ids: Any
    values: Any
    narrow: Any
    """float32"""
    counts: Any
    """The number of keys with each digit."""


@inner
def find_slot(node: int, nodes: Any) -> Any:
    """Return the slot of a context, or the empty slot where it belongs."""
    mask = np.uint64(len(nodes) - 1)
    slot = ((np.uint64(node) * _HASH) >> np.uint64(32)) & mask
    while nodes[slot] != 0 and nodes[slot] != node:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@inner
def make_level(
    slot: int, n: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, lists: Any, directory: Any,
    spare: Any, betas: Any, by_value: bool,
) -> None:  # fmt: skip
    """Build the two lists of the last n words of a context, and enter them at a slot."""
    ids, values, begin, skipped = lists.ids, lists.values, directory.used[0], trie.table[2, 0]
    first, last = context[n, 1], context[n, 2]
    at, end = context[n - 1, 1], context[n - 1, 2]  # the children of the shorter context, which are sorted alike
    is_merged = end - at < _MERGED * (last - first)
    added, taken, behind = ZERO, ZERO, begin + last - first  # the second list is behind the room for the first
    has_nan = False
    for child in range(first, last):
        code = code_of(child, trie)
        own = np.float64(value_at(child - 1, n, prob.plain, prob.codes, prob.books, prob.bits))
        if own > -np.inf:
            ids[begin + added], values[begin + added] = words[code], own
            added += 1
        if n == 1:
            below = np.float64(prob.plain[code])
        elif is_merged:
            while at < end and bits_at(trie.words, (at - skipped) * trie.word_bits, trie.word_bits) < code:
                at += 1
            if at < end and bits_at(trie.words, (at - skipped) * trie.word_bits, trie.word_bits) == code:
                below = np.float64(value_at(at - 1, n - 1, prob.plain, prob.codes, prob.books, prob.bits))
            else:
                below = value_after(code, n - 2, context, backoff, trie, prob) + backoff[n - 1]
        else:
            below = value_after(code, n - 1, context, backoff, trie, prob)
        if below > -np.inf:
            ids[behind + taken], values[behind + taken] = words[code], below
            taken += 1
        has_nan |= own != own or below != below
    for k in range(taken):
        ids[begin + added + k], values[begin + added + k] = ids[behind + k], values[behind + k]
    enter(slot, context[n, 0], begin, added, taken, lists, directory, spare, betas, by_value)
    if has_nan:
        directory.tops[slot, 0] = np.nan


@inner
def enter(
    slot: int, node: int, begin: int, added: int, taken: int, lists: Any, directory: Any, spare: Any, betas: Any,
    by_value: bool,
) -> None:  # fmt: skip
    """Sort the pairs of two lists, which follow each other from `begin` on, and enter them at a slot."""
    used, row = directory.used, directory.used[1]
    place, at, power = directory.places[slot], begin, len(betas) - 1
    place.first, place.added, place.taken, place.first_row = begin, added, taken, row
    for which in range(2):
        size = added if which == 0 else taken
        _sort_by_id(at, size, lists.ids, lists.values, spare)
        for k in range(size):
            lists.ids_by_id[at + k], lists.place_by_id[at + k] = lists.ids[at + k], k
        if by_value:
            order = spare.items[_sort_by_value(at, size, lists.ids, lists.values, spare)]
            for k in range(size):
                lists.place_by_id[at + order[k]] = k
        directory.tops[slot, which] = add_up(at, size, lists, betas)
        for k in range(at, at + size):
            own = at + lists.place_by_id[k]
            lists.mass_by_id[k] = lists.mass[power, own] - (lists.mass[power, own - 1] if own > at else 0.0)
        row += fill_rows(at, size, row, power, trailing_bits(len(spare.ids)), lists)
        at += size
    directory.nodes[slot] = node
    used[0], used[1] = at, row
    used[2] += 1


@inner
def sort_pairs(start: int, size: int, lists: Any, spare: Any) -> None:
    """Sort pairs by falling value, equal ones by rising id."""
    ids, values = lists.ids, lists.values
    if size > _INSERTION:
        _sort_by_id(start, size, ids, values, spare)
        _sort_by_value(start, size, ids, values, spare)
        return
    for a in range(start + 1, start + size):
        token, value, b = ids[a], values[a], a
        while b > start and _precedes(value, token, values[b - 1], ids[b - 1]):
            ids[b], values[b] = ids[b - 1], values[b - 1]
            b -= 1
        ids[b], values[b] = token, value


@inner
def _precedes(value: float, token: int, other: float, other_token: int) -> Any:
    return value > other or (value == other and token < other_token)


@inner
def _sort_by_id(start: int, size: int, ids: Any, values: Any, spare: Any) -> None:
    keys, items = spare.keys, spare.items
    for k in range(size):
        keys[0, k], items[0, k] = ids[start + k], k
        spare.values[k] = values[start + k]
    bits = 0
    while len(spare.ids) - 1 >> bits:
        bits += 1
    at = radix_sort(keys, items, spare.counts, size, bits)
    for k in range(size):
        ids[start + k], values[start + k] = keys[at, k], spare.values[items[at, k]]


@inner
def _sort_by_value(start: int, size: int, ids: Any, values: Any, spare: Any) -> Any:
    """Sort pairs, given in the order of ids, by falling value; returns the row of `items` with their old places."""
    keys, items, narrow = spare.keys, spare.items, spare.narrow
    for k in range(size):
        narrow[k] = values[start + k]
        spare.ids[k], spare.values[k] = ids[start + k], values[start + k]
    bits = narrow.view(np.uint32)
    for k in range(size):
        # the bits of a float as an integer that falls with the number
        keys[0, k] = (
            bits[k] if bits[k] >> np.uint32(31) else ~(bits[k] | np.uint32(0x80000000)) & np.uint32(0x7FFFFFFF)
        )
        items[0, k] = k
    at = radix_sort(keys, items, spare.counts, size, np.int64(32))
    order = items[at]
    for a in range(1, size):  # sort values that are equal as float32
        item, b = order[a], a
        while b > 0 and _precedes(spare.values[item], item, spare.values[order[b - 1]], order[b - 1]):
            order[b] = order[b - 1]
            b -= 1
        order[b] = item
    for k in range(size):
        ids[start + k], values[start + k] = spare.ids[order[k]], spare.values[order[k]]
    return at


@inner
def radix_sort(keys: Any, items: Any, counts: Any, size: int, bits: int) -> Any:
    """Sort keys and their items, stably, digit by digit; returns the row, of two, that has the result."""
    at = 0
    for shift in range(0, bits if size > 0 else 0, _DIGIT):
        counts[:] = 0
        for k in range(size):
            counts[(keys[at, k] >> np.uint32(shift)) & np.uint32(255)] += 1
        if counts[(keys[at, 0] >> np.uint32(shift)) & np.uint32(255)] == size:
            continue
        total = 0
        for d in range(1 << _DIGIT):
            counts[d], total = total, total + counts[d]
        for k in range(size):
            digit = (keys[at, k] >> np.uint32(shift)) & np.uint32(255)
            keys[1 - at, counts[digit]], items[1 - at, counts[digit]] = keys[at, k], items[at, k]
            counts[digit] += 1
        at = 1 - at
    return at


@inner
def add_up(start: int, size: int, lists: Any, betas: Any) -> Any:
    """Write the mass of a list's pairs for each power; returns the largest value."""
    values, mass = lists.values, lists.mass
    top = -np.inf
    for k in range(start, start + size):
        top = max(top, values[k])
    for power in range(len(betas)):
        running, beta = 0.0, betas[power]
        for k in range(start, start + size):
            running += np.exp(beta * (values[k] - top))
            mass[power, k] = running
    return top


@inner
def fill_rows(start: int, size: int, row: int, power: int, shift: int, lists: Any) -> Any:
    """Write the histograms of a list from a row on; returns their number."""
    ids, mass, rows = lists.ids, lists.mass, lists.rows
    blocks = rows_for(size)
    for block in range(blocks):
        begin = start + block * BLOCK
        before = mass[power, begin - 1] if block > 0 else 0.0
        for b in range(BUCKETS):
            rows[row + block, b] = rows[row + block - 1, b] if block > 0 else 0.0
        for k in range(begin, min(begin + BLOCK, start + size)):
            here = mass[power, k]
            rows[row + block, ids[k] >> shift] += here - before
            before = here
    return blocks
