"""Numba kernels over the n-grams of a trie: reading it, searching it, its hash index, and packing its bit streams.

Memory latency dominates, so each step is done for a block of n-grams at once, in loops whose loads do not depend on
each other. The kernels release the interpreter lock, so that threads run them in parallel. (Small functions are
left to LLVM to inline: Numba's own inlining counts references to every array on every call.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.compiled import ZERO, inner
from chainrule.ngram.store.values import GRID_BITS

BLOCK = 256
"""How many n-grams a block has."""
_NEAR = 24  # how far from a good guess n-grams are compared one by one
_SCAN = 6  # a range of at most this many n-grams is scanned one by one

_MOST_LOOKS = 1 << 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_AGAIN = np.uint64(0xD6E8FEB86659FD93)
_NODE = np.uint64(0x00000000FFFFFFFF)


@njit(cache=True, nogil=True, error_model="numpy")
def bits_at(stream: Any, place: int, bits: int) -> Any:
    """Return the number of `bits` bits that begins at the bit offset `place` of a stream."""
    word = np.uint64(place) >> np.uint64(5)  # unsigned, here and below: no check for negative indices
    both = np.uint64(stream[word]) | np.uint64(stream[word + np.uint64(1)]) << np.uint64(32)
    return np.int64((both >> np.uint64(place & 31)) & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)))


@njit(cache=True, nogil=True, error_model="numpy")
def begin_of(context: int, first_group: int, base: Any, offset: Any, rest: Any) -> Any:
    """Return the index of a context's first child within the next length (`Trie.begin`)."""
    group = np.uint64(first_group + (context >> 5))
    word = np.int64(offset[group])
    bits = np.int64(offset[group + np.uint64(1)]) - word
    return np.int64(base[group]) + bits_at(rest, (word << 5) + (context & 31) * bits, bits)


@njit(cache=True, nogil=True, error_model="numpy")
def code_at(codes: Any, bits: int, place: Any) -> Any:
    """Return the code at a position: of a bit stream, or of a plain array if `bits` is 0."""
    return np.int64(codes[np.uint64(place)]) if bits == 0 else bits_at(codes, place * bits, bits)


@njit(cache=True, nogil=True, error_model="numpy")
def find_code(codes: Any, bits: int, low: Any, high: Any, least: Any, most: Any, code: Any) -> Any:
    """Return the position of a code in the range [low, high) of ascending codes, or -1, by interpolation search.

    `least` and `most` are exclusive bounds of the codes in the range. Codes are spread evenly (codes.py), so a code
    lies about where linear interpolation puts it; after four guesses the search falls back to bisection.
    """
    looks = 0
    while high - low > _SCAN:
        looks += 1
        guess = (low + high) >> 1
        if looks <= 4:
            guess = low + np.int64(np.float64(code - least) * np.float64(high - low) / np.float64(most - least))
        guess = min(guess, high - 1)
        here = code_at(codes, bits, guess)
        if here == code:
            return guess
        if here < code:
            low, least = guess + 1, here
        else:
            high, most = guess, here
    while low < high:
        here = code_at(codes, bits, low)
        if here >= code:
            return low if here == code else -1
        low += 1
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def children_of(node: int, n: int, table: Any, base: Any, offset: Any, rest: Any) -> Any:
    """Return the first child of a node of n words, and one past its last; clamped to the nodes that exist."""
    context, end = node - table[n, 0], table[n + 1, 2]
    first = min(begin_of(context, table[n, 1], base, offset, rest) + table[n + 1, 0], end)
    return first, min(begin_of(context + 1, table[n, 1], base, offset, rest) + table[n + 1, 0], end)


@inner
def find_child(first: int, last: int, code: int, trie: Any) -> Any:
    """Return the child whose last word has this code, of the children first to last - 1 of a node; 0 for none."""
    skipped = trie.table[2, 0]
    place = find_code(trie.words, trie.word_bits, first - skipped, last - skipped, np.int64(-1), trie.size, code)
    return place + skipped if place >= 0 else ZERO


@njit(cache=True, nogil=True, error_model="numpy")
def search_children(many: int, nodes: Any, codes: Any, found: Any, n: int, table: Any, size: int, words: Any,
                     word_bits: int, base: Any, offset: Any, rest: Any, low: Any, high: Any) -> Any:  # fmt: skip
    """Search the child of each of `many` nodes of n words by the code of its last word; 0 where there is none.

    The children are written into `found`; `low` and `high` are scratch arrays. (The arrays of the trie come one by
    one: a named tuple passed on inside a loop makes the whole loop 3% slower.)
    """
    first, group, skipped = table[n, 0], table[n, 1], table[2, 0]
    above, end = table[n + 1, 0] - skipped, table[n + 1, 2] - skipped
    touched: Any = 0  # returned, so that the compiler keeps the loads that only warm the cache
    if above == end:  # there are no n-grams of n + 1 words
        found[:many] = 0
        return touched
    # `begin_of` of each node and of the next one, which nearly always is in the same group
    for k in range(many):
        context = nodes[k] - first
        at = np.uint64(group + (context >> 5))
        word = np.int64(offset[at])
        bits = np.int64(offset[at + np.uint64(1)]) - word
        low[k] = (word << 5) + (context & 31) * bits
        high[k] = bits
    for k in range(many):
        context = nodes[k] - first
        at = np.uint64(group + (context >> 5))
        start, place, bits = np.int64(base[at]), low[k], high[k]
        low[k] = start + bits_at(rest, place, bits)
        if (context & 31) < 31:
            high[k] = start + bits_at(rest, place + bits, bits)
        else:
            high[k] = np.int64(base[at + np.uint64(1)])
    # codes are spread evenly (codes.py): the difference of the codes tells how far a guess is off
    scale = 1.0 / np.float64(size)
    for k in range(many):
        # clamped, so that a damaged file does not lead out of bounds
        low[k] = min(max(low[k] + above, above), end)
        high[k] = min(max(high[k] + above, low[k]), end)
        guess = low[k] + np.int64(np.float64(codes[k]) * (np.float64(high[k] - low[k]) * scale))
        found[k] = min(guess, end - 1)
    for k in range(many):
        guess = found[k]
        here = bits_at(words, guess * word_bits, word_bits)
        guess += np.int64(np.float64(codes[k] - here) * (np.float64(high[k] - low[k]) * scale))
        found[k] = min(max(min(guess, high[k] - 1), low[k]), end - 1)
    for k in range(many):
        touched += np.int64(words[np.uint64((found[k] * word_bits) >> 5)])
    for k in range(many):
        guess, code = found[k], codes[k]
        here = bits_at(words, guess * word_bits, word_bits)
        if here < code:
            last = min(high[k] - 1, guess + _NEAR)
            while here < code and guess < last:
                guess += 1
                here = bits_at(words, guess * word_bits, word_bits)
            is_missed = here < code and guess < high[k] - 1
        else:
            last = max(low[k], guess - _NEAR)
            while here > code and guess > last:
                guess -= 1
                here = bits_at(words, guess * word_bits, word_bits)
            is_missed = here > code and guess > low[k]
        if is_missed:  # seldom
            place = find_code(words, word_bits, low[k], high[k], np.int64(-1), size, code)
            found[k] = place + skipped if place >= 0 else 0
        else:
            found[k] = guess + skipped if here == code and low[k] < high[k] else 0
    return touched


@njit(cache=True, nogil=True, error_model="numpy")
def value_at(place: int, row: int, plain: Any, codes: Any, books: Any, bits: int) -> Any:
    """Return the number at an index of `Values`, plain or of a codebook, of n-grams of `row` + 1 words."""
    if bits == 0 or row == 0:
        return plain[np.uint64(place)]
    return books[row - 1, bits_at(codes, (place - len(plain)) * bits, bits)]


@njit(cache=True, nogil=True, error_model="numpy")
def backoff_at(place: int, row: int, plain: Any, codes: Any, books: Any, bits: int) -> Any:
    """Return the same for log-backoffs, which may lie on a grid."""
    if bits < GRID_BITS or row == 0:
        return value_at(place, row, plain, codes, books, bits)
    index = bits_at(codes, (place - len(plain)) * bits, bits)
    on_grid = np.float32(np.float64(books[row - 1, 0]) + np.float64(books[row - 1, 1]) * np.float64(index))
    return on_grid if index > 0 else np.float32(-np.inf)


# -- the hash index ----------------------------------------------------------------------------------------


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
    slots, entries = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint64)
    many, over = 0, 0
    begin = begin_of(first - table[n, 0], table[n, 1], base, offset, rest)
    for node in range(first, last):
        end = begin_of(node + 1 - table[n, 0], table[n, 1], base, offset, rest)
        for child in range(begin + above, end + above):
            value = hash_of(node, bits_at(words, (child - skipped) * word_bits, word_bits))
            slots[many] = np.int64(((value >> np.uint64(32)) * size) >> np.uint64(32))
            entries[many] = (value << np.uint64(32)) | np.uint64(child)
            many += (slots[many] >= from_slot) & (slots[many] < to_slot)
            if many == BLOCK:
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


# -- bit streams (bitstream.py and trie.py define the formats) ---------------------------------------------


@njit(cache=True, nogil=True)
def pack_bits(values: Any, first: int, last: int, bits: int, stream: Any) -> None:
    """Write the numbers first to last - 1 into a bit stream that is 0 there.

    Thread-safe if `first` is a multiple of 32: 32 numbers fill whole words, so no two threads write the same word.
    """
    for k in range(first, last):
        place = k * bits
        moved = np.uint64(values[k]) << np.uint64(place & 31)
        stream[place >> 5] |= np.uint32(moved & np.uint64(0xFFFFFFFF))
        if (place & 31) + bits > 32:
            stream[(place >> 5) + 1] |= np.uint32(moved >> np.uint64(32))


@njit(cache=True, nogil=True, error_model="numpy")
def group_widths(begin: Any, base: Any, width: Any) -> None:
    """Compute for each group of 32 contexts where its first children begin, and the bits of its largest rest."""
    for group in range(len(base)):
        first, last = group * 32, min(group * 32 + 31, len(begin) - 1)
        base[group] = begin[first]
        rest, bits = np.int64(begin[last]) - np.int64(begin[first]), 1
        while rest >> bits:
            bits += 1
        width[group] = bits


@njit(cache=True, nogil=True, error_model="numpy")
def pack_groups(begin: Any, offset: Any, stream: Any) -> None:
    """Write the rests of each group of 32 contexts, in as few bits as the group needs, into a stream of zeros."""
    for group in range(len(offset) - 1):
        bits = np.int64(offset[group + 1]) - np.int64(offset[group])
        for k in range(32):
            context = min(group * 32 + k, len(begin) - 1)
            rest = np.uint64(np.int64(begin[context]) - np.int64(begin[group * 32]))
            place = k * bits
            word = np.int64(offset[group]) + (place >> 5)
            moved = rest << np.uint64(place & 31)
            stream[word] |= np.uint32(moved & np.uint64(0xFFFFFFFF))
            if (place & 31) + bits > 32:
                stream[word + 1] |= np.uint32(moved >> np.uint64(32))
