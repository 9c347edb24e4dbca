"""Numba kernels of the hash index: filling it, and finding n-grams by it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.kernels import TOGETHER, begin_of, bits_at

_MOST_LOOKS = 1 << 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_AGAIN = np.uint64(0xD6E8FEB86659FD93)
_NODE = np.uint64(0x00000000FFFFFFFF)


@njit(cache=True, nogil=True, error_model="numpy")
def hash_of(node: int, code: int) -> Any:
    mixed = (np.uint64(node) << np.uint64(32) | np.uint64(code)) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX_AGAIN
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_index(
    first: int, last: int, n: int, trie: Any, from_slot: int, to_slot: int, index: Any, left_over: Any
) -> Any:
    """Insert the children of the nodes first to last - 1, of n words, whose slot lies in [from_slot, to_slot).

    Entries that find no free slot in this range go to `left_over`; returns their number.
    """
    table, words, base, offset, rest = trie.table, trie.words, trie.base, trie.offset, trie.rest
    word_bits = trie.word_bits
    size, skipped, above = np.uint64(len(index)), table[2, 0], table[n + 1, 0]
    slots, entries = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.uint64)
    many, over = 0, 0
    begin = begin_of(first - table[n, 0], table[n, 1], base, offset, rest)
    for node in range(first, last):
        end = begin_of(node + 1 - table[n, 0], table[n, 1], base, offset, rest)
        for child in range(begin + above, end + above):
            value = hash_of(node, bits_at(words, (child - skipped) * word_bits, word_bits))
            slots[many] = np.int64(((value >> np.uint64(32)) * size) >> np.uint64(32))
            entries[many] = (value << np.uint64(32)) | np.uint64(child)
            many += (slots[many] >= from_slot) & (slots[many] < to_slot)
            if many == TOGETHER:
                over = _enter(many, slots, entries, to_slot, index, left_over, over)
                many = 0
        begin = end
    return _enter(many, slots, entries, to_slot, index, left_over, over)


@njit(cache=True, nogil=True, error_model="numpy")
def _enter(many: int, slots: Any, entries: Any, to_slot: int, index: Any, left_over: Any, over: int) -> Any:
    """Insert entries into their slots, or the next free slots before `to_slot`; the others go to `left_over`.

    `over` is the number of entries in `left_over`; returns the new number.
    """
    for k in range(many):
        # entries whose slot is taken are left for the loop below, so that loads here do not depend on each other
        taken = index[slots[k]] != 0
        index[slots[k]] = index[slots[k]] if taken else entries[k]
        slots[k] = slots[k] if taken else -1
    for k in range(many):
        slot = slots[k]
        if slot < 0:
            continue
        while slot < to_slot and index[slot] != 0:
            slot += 1
        if slot < to_slot:
            index[slot] = entries[k]
        else:
            left_over[over] = entries[k]
            over += 1
    return over


@njit(cache=True, nogil=True, error_model="numpy")
def find_by_index(many: int, n: int, begins: Any, codes: Any, here: Any, found: Any, at: Any, tag: Any, size: int,
                  end: int, index: Any) -> Any:  # fmt: skip
    """Extend the n-grams that begin at the positions `begins` by a word; `found` gets the nodes, or 0.

    Returns how many there are whose next word is in the vocabulary: they move to the front of `begins`. Bounded, so
    that a damaged index leads neither out of bounds nor into an endless loop.
    """
    slots = np.uint64(len(index))
    live = 0
    for k in range(many):
        begin = np.uint64(begins[k])
        code = codes[begin + np.uint64(n)]
        value = hash_of(here[begin], code)
        at[live] = np.int64(((value >> np.uint64(32)) * slots) >> np.uint64(32))
        tag[live] = np.int64(value & _NODE)
        begins[live] = begins[k]
        live += code < size
    for k in range(live):
        found[k] = np.int64(index[np.uint64(at[k])])
    for k in range(live):
        entry, place, looks = np.uint64(found[k]), at[k], 0
        while entry != 0 and np.int64(entry >> np.uint64(32)) != tag[k]:
            place = place + 1 if place + 1 < len(index) else 0
            looks += 1
            entry = index[place] if looks < _MOST_LOOKS else np.uint64(0)
        child = np.int64(entry & _NODE)
        found[k] = child if child < end else 0
    return live
