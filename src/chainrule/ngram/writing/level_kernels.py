"""Numba kernels that make sorted lists (list_kernels.py) of the words seen after a context, and keep them.

The distribution after a text is a stack of levels: all words without context, then the words seen after the last
word, after the last two, and so on. Each level adds a list of its words, with their stored log-probabilities, and
takes out a list of the same words as the shorter contexts have them. Both lists depend on the context alone, so
they are made once, at its first visit, and kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chainrule.ngram.store.kernels import bits_at, children_of, find_code, value_at
from chainrule.ngram.writing.compiled import kernel
from chainrule.ngram.writing.list_kernels import BLOCK, BUCKETS, effective

_MERGED = 32  # up to so many times as many children of the shorter context are walked through; among more, searched
_INSERTION = 48  # lists up to this size are sorted by insertion
_DIGIT = 8
_HASH = np.uint64(0x9E3779B97F4A7C15)

FIRST, ADDED, TAKEN, FIRST_ROW, COLUMNS = range(5)
"""The columns of `Directory.places`: the first pair of a context, the sizes of its two lists, its first row."""


class Directory(NamedTuple):
    """Where the lists of each context are: a hash table with linear probing."""

    nodes: Any
    """The node of the context in each slot; 0 if the slot is empty."""
    places: Any
    """[slots, COLUMNS]"""
    tops: Any
    """The largest value of each of the two lists, [slots, 2]; the first is NaN if the level has a NaN."""
    used: Any
    """The number of pairs, of rows and of slots in use."""


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


@kernel
def child_of(node: int, n: int, code: int, trie: Any) -> Any:
    """The child of a node of n words by the code of its last word; 0 if there is none."""
    if n == 0:
        return np.int64(code) + 1
    skipped = trie.table[2, 0]
    first, last = children_of(node, n, trie.table, trie.base, trie.offset, trie.rest)
    place = find_code(trie.words, trie.word_bits, first - skipped, last - skipped, np.int64(-1), trie.size, code)
    return place + skipped if place >= 0 else np.int64(0)


@kernel
def code_of(child: int, trie: Any) -> Any:
    """The code of the last word of a node of two or more words; clamped, so that no damaged file leads astray."""
    code = bits_at(trie.words, (child - trie.table[2, 0]) * trie.word_bits, trie.word_bits)
    return min(code, np.int64(trie.size) - 1)


@kernel
def value_after(code: int, n: int, context: Any, backoff: Any, trie: Any, prob: Any) -> Any:
    """ln p of a word after the last n words; `context` has the children of the nodes of their suffixes."""
    skipped = trie.table[2, 0]
    for m in range(n, 0, -1):
        first, last = context[m, 1] - skipped, context[m, 2] - skipped
        place = find_code(trie.words, trie.word_bits, first, last, np.int64(-1), trie.size, code)
        if place >= 0:
            own = value_at(place + skipped - 1, m, prob.plain, prob.codes, prob.books, prob.bits)
            return effective(np.float64(own), m, n, backoff)
    return effective(np.float64(prob.plain[code]), 0, n, backoff)


@kernel
def find_slot(node: int, nodes: Any) -> Any:
    """The slot of a context, or the empty slot where it belongs."""
    mask = np.uint64(len(nodes) - 1)
    slot = ((np.uint64(node) * _HASH) >> np.uint64(32)) & mask
    while nodes[slot] != 0 and nodes[slot] != node:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@kernel
def make_level(
    slot: int, n: int, context: Any, backoff: Any, trie: Any, prob: Any, words: Any, lists: Any, directory: Any,
    spare: Any, betas: Any, by_value: bool,
) -> None:  # fmt: skip
    """Make the two lists of the last n words of a context, and enter them at a slot."""
    ids, values, begin, skipped = lists.ids, lists.values, directory.used[0], trie.table[2, 0]
    first, last = context[n, 1], context[n, 2]
    at, end = context[n - 1, 1], context[n - 1, 2]  # the children of the shorter context, which are sorted alike
    is_merged = end - at < _MERGED * (last - first)
    added, taken, behind = 0, 0, begin + last - first  # the second list is behind the room for the first
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


@kernel
def enter(
    slot: int, node: int, begin: int, added: int, taken: int, lists: Any, directory: Any, spare: Any, betas: Any,
    by_value: bool,
) -> None:  # fmt: skip
    """Sort the pairs of two lists that lie from `begin` on, one after the other, and enter them at a slot."""
    used, row = directory.used, directory.used[1]
    tops, place, at = directory.tops[slot], directory.places[slot], begin
    place[FIRST], place[ADDED], place[TAKEN], place[FIRST_ROW] = begin, added, taken, row
    for which in range(2):
        size = added if which == 0 else taken
        sort_pairs(at, size, lists, spare, by_value)
        tops[which] = add_up(at, size, lists, betas)
        row += _fill_rows(at, size, row, len(betas) - 1, trailing_bits(len(spare.ids)), lists)
        at += size
    directory.nodes[slot] = node
    used[0], used[1] = at, row
    used[2] += 1


@kernel
def trailing_bits(vocab_size: int) -> Any:
    """By how many bits an id is shifted to give its bucket."""
    shift = 0
    while (vocab_size - 1) >> shift >= BUCKETS:
        shift += 1
    return shift


@kernel
def sort_pairs(start: int, size: int, lists: Any, spare: Any, by_value: bool) -> None:
    """Sort pairs by falling value, equal ones by rising id, or, if not `by_value`, by id; and fill in `rank`."""
    ids, values, rank = lists.ids, lists.values, lists.rank
    if size > _INSERTION:
        _sort_by_id(start, size, ids, values, spare)
        for k in range(size):
            rank[start + k] = k
        if by_value:
            _sort_by_value(start, size, ids, values, rank, spare)
        return
    for a in range(1, size):
        token, value, b = ids[start + a], values[start + a], a
        while b > 0 and (
            _precedes(value, token, values[start + b - 1], ids[start + b - 1])
            if by_value
            else token < ids[start + b - 1]
        ):
            ids[start + b], values[start + b] = ids[start + b - 1], values[start + b - 1]
            b -= 1
        ids[start + b], values[start + b] = token, value
    for a in range(size):
        token, b = ids[start + a], a
        while b > 0 and token < ids[start + rank[start + b - 1]]:
            rank[start + b] = rank[start + b - 1]
            b -= 1
        rank[start + b] = a


@kernel
def _precedes(value: float, token: int, other: float, other_token: int) -> Any:
    return value > other or (value == other and token < other_token)


@kernel
def _sort_by_id(start: int, size: int, ids: Any, values: Any, spare: Any) -> None:
    keys, items = spare.keys, spare.items
    for k in range(size):
        keys[0, k], items[0, k] = ids[start + k], k
        spare.values[k] = values[start + k]
    bits = 0
    while len(spare.ids) - 1 >> bits:
        bits += 1
    at = _radix_sort(keys, items, spare.counts, size, bits)
    for k in range(size):
        ids[start + k], values[start + k] = keys[at, k], spare.values[items[at, k]]


@kernel
def _sort_by_value(start: int, size: int, ids: Any, values: Any, rank: Any, spare: Any) -> None:
    """Sort pairs, which are in the order of their ids, by falling value, and fill in `rank`."""
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
    at = _radix_sort(keys, items, spare.counts, size, np.int64(32))
    order = items[at]
    for a in range(1, size):  # values that are equal as float32 are put right
        item, b = order[a], a
        while b > 0 and _precedes(spare.values[item], item, spare.values[order[b - 1]], order[b - 1]):
            order[b] = order[b - 1]
            b -= 1
        order[b] = item
    for k in range(size):
        ids[start + k], values[start + k] = spare.ids[order[k]], spare.values[order[k]]
        rank[start + order[k]] = k


@kernel
def _radix_sort(keys: Any, items: Any, counts: Any, size: int, bits: int) -> Any:
    """Sort keys and their items, stably, digit by digit; returns which of the two rows has the result."""
    at = 0
    for shift in range(0, bits, _DIGIT):
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


@kernel
def add_up(start: int, size: int, lists: Any, betas: Any) -> Any:
    """Fill in the mass of a list's pairs for each power; returns the largest value."""
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


@kernel
def rows_for(size: int) -> Any:
    """The number of rows of a list: after every block and the last pair; none for a list of less than a block."""
    return (size + BLOCK - 1) // BLOCK if size >= BLOCK else 0


@kernel
def _fill_rows(start: int, size: int, row: int, power: int, shift: int, lists: Any) -> Any:
    """Write the mass by bucket of ids of all pairs up to the end of each block; returns the number of rows."""
    ids, mass, rows = lists.ids, lists.mass, lists.rows
    blocks = rows_for(size)
    before = 0.0
    for block in range(blocks):
        for b in range(BUCKETS):
            rows[row + block, b] = rows[row + block - 1, b] if block > 0 else 0.0
        for k in range(start + block * BLOCK, start + min((block + 1) * BLOCK, size)):
            here = mass[power, k]
            rows[row + block, ids[k] >> shift] += here - before
            before = here
    return blocks
