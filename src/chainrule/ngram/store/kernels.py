"""Numba kernels over n-grams: search, scoring, the hash index, and links to suffixes.

Memory latency dominates, so each step is done for a block of n-grams at once, in loops whose loads do not depend on
each other. The kernels release the interpreter lock, so that threads run them in parallel. (Small functions are
left to LLVM to inline: Numba's own inlining counts references to every array on every call.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.values import GRID_BITS

_TOGETHER = 256  # n-grams per block
_NEAR = 24  # so far from a good guess an n-gram is searched one by one
_SCAN = 6  # a range of at most this many n-grams is scanned one by one
_MOST_LOOKS = 1 << 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_AGAIN = np.uint64(0xD6E8FEB86659FD93)
_NODE = np.uint64(0x00000000FFFFFFFF)


@njit(cache=True, nogil=True, error_model="numpy")
def bits_at(stream: Any, place: int, bits: int) -> Any:
    """The number of `bits` bits that begins at the bit offset `place` of a stream."""
    word = np.uint64(place) >> np.uint64(5)  # unsigned, here and below: no check for negative indices
    both = np.uint64(stream[word]) | np.uint64(stream[word + np.uint64(1)]) << np.uint64(32)
    return np.int64((both >> np.uint64(place & 31)) & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)))


@njit(cache=True, nogil=True, error_model="numpy")
def _begin(context: int, first_group: int, base: Any, offset: Any, rest: Any) -> Any:
    """The index of a context's first child within the next length (`Trie.begin`)."""
    group = np.uint64(first_group + (context >> 5))
    word = np.int64(offset[group])
    bits = np.int64(offset[group + np.uint64(1)]) - word
    return np.int64(base[group]) + bits_at(rest, (word << 5) + (context & 31) * bits, bits)


@njit(cache=True, nogil=True, error_model="numpy")
def _code_at(codes: Any, bits: int, place: Any) -> Any:
    """The code at a position: of a bit stream, or of a plain array if `bits` is 0."""
    return np.int64(codes[np.uint64(place)]) if bits == 0 else bits_at(codes, place * bits, bits)


@njit(cache=True, nogil=True, error_model="numpy")
def find_code(codes: Any, bits: int, low: Any, high: Any, least: Any, most: Any, code: Any) -> Any:
    """The position of a code in the range [low, high) of ascending codes, or -1, by interpolation search.

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
        here = _code_at(codes, bits, guess)
        if here == code:
            return guess
        if here < code:
            low, least = guess + 1, here
        else:
            high, most = guess, here
    while low < high:
        here = _code_at(codes, bits, low)
        if here >= code:
            return low if here == code else -1
        low += 1
    return -1


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
    # `_begin` of each node and of the next one, which nearly always is in the same group
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
    # codes are spread evenly (codes.py): by how many a guess is off tells how far to go from there
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
def _hash(node: int, code: int) -> Any:
    mixed = (np.uint64(node) << np.uint64(32) | np.uint64(code)) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX_AGAIN
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True, error_model="numpy")
def _extend_by_index(many: int, n: int, begins: Any, codes: Any, here: Any, longer: Any, longest: Any,
                     node_of_longest: Any, found: Any, at: Any, tag: Any, size: int, end: int, index: Any
                     ) -> Any:  # fmt: skip
    """Extend the n-grams that begin at the positions `begins` by a word, by the hash index; returns how many exist.

    Bounded, so that a damaged index leads neither out of bounds nor into an endless loop.
    """
    slots = np.uint64(len(index))
    live = 0
    for k in range(many):
        begin = np.uint64(begins[k])
        code = codes[begin + np.uint64(n)]
        value = _hash(here[begin], code)
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
    return _note(live, n, begins, found, longer, longest, node_of_longest)


@njit(cache=True, nogil=True, error_model="numpy")
def _note(many: int, n: int, begins: Any, found: Any, longer: Any, longest: Any, node_of_longest: Any) -> Any:
    """Record the n-grams of n + 1 words that were found; their positions move to the front of `begins`.

    Returns the number of n-grams found.
    """
    still = 0
    for k in range(many):
        begin, child = np.uint64(begins[k]), found[k]
        longer[begin] = child
        last = begin + np.uint64(n)  # without a branch, which could not be predicted
        longest[last] = n + 1 if child > 0 else longest[last]
        node_of_longest[last] = child if child > 0 else node_of_longest[last]
        begins[still] = begins[k]
        still += child > 0
    return still


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
    slots, entries = np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.uint64)
    many, over = 0, 0
    begin = _begin(first - table[n, 0], table[n, 1], base, offset, rest)
    for node in range(first, last):
        end = _begin(node + 1 - table[n, 0], table[n, 1], base, offset, rest)
        for child in range(begin + above, end + above):
            value = _hash(node, bits_at(words, (child - skipped) * word_bits, word_bits))
            slots[many] = np.int64(((value >> np.uint64(32)) * size) >> np.uint64(32))
            entries[many] = (value << np.uint64(32)) | np.uint64(child)
            many += (slots[many] >= from_slot) & (slots[many] < to_slot)
            if many == _TOGETHER:
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
def value_at(place: int, row: int, plain: Any, codes: Any, books: Any, bits: int) -> Any:
    """The number at an index of `Values`, plain or of a codebook, of n-grams of `row` + 1 words."""
    if bits == 0 or row == 0:
        return plain[np.uint64(place)]
    return books[row - 1, bits_at(codes, (place - len(plain)) * bits, bits)]


@njit(cache=True, nogil=True, error_model="numpy")
def backoff_at(place: int, row: int, plain: Any, codes: Any, books: Any, bits: int) -> Any:
    """The same for log-backoffs, which may lie on a grid."""
    if bits < GRID_BITS or row == 0:
        return value_at(place, row, plain, codes, books, bits)
    index = bits_at(codes, (place - len(plain)) * bits, bits)
    on_grid = np.float32(np.float64(books[row - 1, 0]) + np.float64(books[row - 1, 1]) * np.float64(index))
    return on_grid if index > 0 else np.float32(-np.inf)


@njit(cache=True, nogil=True, error_model="numpy")
def score_text(text: Any, first: int, last: int, scores: Any, trie: Any, prob: Any, back: Any, log_alpha: Any,
               keeps_suffixes: Any) -> Any:  # fmt: skip
    """Write ln p of the words first to last - 1 of a text into `scores`, as `Automaton.score` defines it.

    `trie` is a TrieArrays; `prob` and `back` are the ValueArrays of log-probabilities and log-backoffs; `log_alpha`
    is that of the automaton, and None instead of 0: the kernel is then compiled without what only charges need.
    `keeps_suffixes` says that an n-gram is in the trie only if it is there without its first word too: then many
    need not be searched for.
    """
    code, size, table, words, base, offset, rest, word_bits, index, bos = trie
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    order = table.shape[0] - 1
    most = _TOGETHER + order
    nodes = np.zeros((order + 1, most), np.int64)  # [n, s]: of the n words from position s on
    codes, longest = np.empty(most + order, np.int64), np.empty(most + order, np.int64)
    node_of_longest = np.empty(most + order, np.int64)
    begins, contexts, wanted = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    found, low, high = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    paid = np.empty((3, most * order), np.int64)  # backoffs to add: context node, position, context length
    touched: Any = 0
    for block in range(first, last, _TOGETHER):
        start = max(block - order + 1, 0)
        width = min(block + _TOGETHER, last) - start
        for s in range(width):
            codes[s] = code[np.uint64(text[start + s])]
        codes[width : width + order] = size  # "no word" after the end
        m = 0
        for s in range(width):
            known = codes[s] < size
            nodes[1, s] = codes[s] + 1 if known else 0
            longest[s], node_of_longest[s] = 1, nodes[1, s]
            begins[m] = s
            m += known
        for n in range(1, order):
            nodes[n + 1, :width] = 0
            here, longer = nodes[n], nodes[n + 1]
            if len(index) > 0:
                m = _extend_by_index(m, n, begins, codes, here, longer, longest, node_of_longest, found, low, high,
                                     size, table[n + 1, 2], index)  # fmt: skip
                continue
            live = 0
            for k in range(m):
                begins[live] = begins[k]
                contexts[live] = here[np.uint64(begins[k])]
                wanted[live] = codes[np.uint64(begins[k] + n)]
                has_suffix = (not keeps_suffixes) | (here[np.uint64(begins[k] + 1)] > 0)
                live += (wanted[live] < size) & has_suffix
            touched += search_children(live, contexts, wanted, found, n, table, size, words, word_bits, base,
                                        offset, rest, low, high)  # fmt: skip
            m = _note(live, n, begins, found, longer, longest, node_of_longest)
        due = 0
        if log_alpha is None:
            for t in range(block - start, width):
                for n in range(longest[t], min(longest[t - 1] + 1, order) if t > 0 else 0):
                    node = nodes[n, np.uint64(t - n)]
                    paid[0, due], paid[1, due], paid[2, due] = node, t, n
                    due += node > 0
        for t in range(block - start, width):
            node = max(node_of_longest[t], 1)
            value = value_at(node - 1, longest[t] - 1, prob_plain, prob_codes, prob_books, prob_bits)
            scores[start + t] = value if node_of_longest[t] > 0 else -np.inf
        for k in range(due if back_bits < GRID_BITS else 0):
            n = paid[2, k]
            scores[np.uint64(start + paid[1, k])] += value_at(
                paid[0, k] - 1, n - 1, back_plain, back_codes, back_books, back_bits
            )
        for k in range(due if back_bits == GRID_BITS else 0):
            n = paid[2, k]
            scores[np.uint64(start + paid[1, k])] += backoff_at(
                paid[0, k] - 1, n - 1, back_plain, back_codes, back_books, back_bits
            )
        if log_alpha is not None:
            _charge_alpha(block - start, width, codes, size, bos, longest, order, log_alpha, scores[start:])
    return touched


@njit(cache=True, nogil=True, error_model="numpy")
def _charge_alpha(first: int, last: int, codes: Any, size: int, bos: int, longest: Any, order: int, log_alpha: Any,
                  scores: Any) -> None:  # fmt: skip
    """Add ln α to the scores of first to last - 1 for each context from `longest` words on that the text has."""
    context = 0  # the number of words before, back to <s> or a gap
    for t in range(last):
        if t >= first:
            for _ in range(longest[t], min(context + 1, order)):
                scores[t] += log_alpha
        context = 0 if codes[t] >= size else (1 if codes[t] == bos else context + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def put_starts(ids: Any, bos: int, eos: int, text: Any) -> Any:
    """Write the ids into `text` with <s> before each line; returns the length of the text."""
    n, starts = 0, True
    for k in range(len(ids)):
        text[n] = bos
        n += starts
        text[n] = ids[k]
        n += 1
        starts = ids[k] == eos
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def leave_starts(text: Any, bos: int, scores: Any) -> Any:
    """Move the scores of all tokens but <s> to the front, in place; returns their number."""
    n = 0
    for k in range(len(text)):
        scores[n] = scores[k]
        n += text[k] != bos
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def lay_out(ids: Any, starts: Any, ends: Any, bos: int, text: Any) -> None:
    """Write the sequences of ids, each from a start to its end, into `text` with <s> before each."""
    n = 0
    for k in range(len(starts)):
        text[n] = bos
        n += 1
        for i in range(starts[k], ends[k]):
            text[n] = ids[i]
            n += 1


@njit(cache=True, nogil=True, error_model="numpy")
def take_back(starts: Any, ends: Any, scores: Any) -> Any:
    """Move the scores of all tokens but the <s> of `lay_out` to the front, in place; returns their number."""
    n = 0
    for k in range(len(starts)):
        for i in range(ends[k] - starts[k]):
            scores[n + i] = scores[n + k + 1 + i]
        n += ends[k] - starts[k]
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def children_of(node: int, n: int, table: Any, base: Any, offset: Any, rest: Any) -> Any:
    """The first child of a node of n words, and one past its last; clamped to the nodes that exist."""
    context, end = node - table[n, 0], table[n + 1, 2]
    first = min(_begin(context, table[n, 1], base, offset, rest) + table[n + 1, 0], end)
    return first, min(_begin(context + 1, table[n, 1], base, offset, rest) + table[n + 1, 0], end)


@njit(cache=True, nogil=True, error_model="numpy")
def link_suffixes(first: int, last: int, begin: Any, word: Any, context_suffix: Any, begin_below: Any,
                  word_below: Any, size: int, suffix: Any) -> Any:  # fmt: skip
    """Write the index of h' w into `suffix` for each n-gram h w of the contexts h from first to last - 1.

    h' is h without its first word. The arrays `..._below` are of the n-grams that are a word shorter.
    """
    lows, highs = np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.int64)
    differ = np.empty(_TOGETHER, np.int64)
    touched: Any = 0  # returned, so that the compiler keeps the loads that only warm the cache
    scale = 1.0 / np.float64(size)
    for block in range(first, last, _TOGETHER):
        many = min(_TOGETHER, last - block)
        for k in range(many):
            shorter = np.int64(context_suffix[block + k])
            lows[k], highs[k] = begin_below[shorter], begin_below[shorter + 1]
        m = 0
        for k in range(many):
            at = np.int64(begin[block + k])
            children: Any = np.int64(begin[block + k + 1]) - at
            differ[m] = k
            if highs[k] - lows[k] == children:  # words seen after h were seen after h': equally many are the same
                for j in range(children):
                    suffix[at + j] = lows[k] + j
            else:
                m += children > 0
        for j in range(m):
            k = differ[j]
            code = np.float64(word[np.int64(begin[block + k])])
            touched += np.int64(word_below[lows[k] + np.int64(code * np.float64(highs[k] - lows[k]) * scale)])
        for j in range(m):
            k = differ[j]
            low, least = lows[k], np.int64(-1)
            for child in range(np.int64(begin[block + k]), np.int64(begin[block + k + 1])):
                code_of_word = np.int64(word[child])
                low = find_code(word_below, 0, low, highs[k], least, size, code_of_word)
                suffix[child] = low
                low, least = low + 1, code_of_word
    return touched
