"""The n-grams of each length, as flat arrays that index into each other, and the slow, obvious way to count them.

Level n holds the n-grams of n words. They are sorted by their context (the n-gram without its last word, an index
into level n-1) and then by the code of their last word, so those that share a context are neighbours:

    level n-1      a b           a c      ...
    begin          0             2        3
    level n        a b x  a b y  a c x    ...

Level 1 holds every word of the vocabulary, seen or not; a word's index there is its code (see store/codes.py). The
functions here are written against the Array API: the same code runs on NumPy and, on a GPU, on torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from array_api_compat import device, is_numpy_array

from chainrule.arrays import Array, array_namespace
from chainrule.folder import Context
from chainrule.ngram.segments import insert_starts, sequence_starts
from chainrule.ngram.store.codes import codes_of_words, find


@dataclass
class Level:
    """The n-grams of one length."""

    word: Array
    """The code of each n-gram's last word."""
    count: Array
    """The count of each n-gram, 0 for the unigram <s>, which is never predicted. For Kneser-Ney: the number of
    different words before it."""
    begin: Array
    """The index of the first n-gram of each context, and one past the last: one number more than contexts."""
    suffix: Array
    """The index, in the level below, of each n-gram without its first word."""

    def __len__(self) -> int:
        return int(self.begin[-1])


@dataclass
class Counts:
    """Every n-gram of a text, with its count."""

    vocab_size: int
    bos: int
    levels: list[Level] = field(default_factory=list)

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.levels)

    def starting_with_bos(self, n: int) -> slice:
        """Return the slice of level n that holds the n-grams that begin with <s>."""
        first = int(codes_of_words(self.vocab_size)[self.bos])
        last = first + 1
        for level in self.levels[1:n]:
            first, last = int(level.begin[first]), int(level.begin[last])
        return slice(first, last)


def parents(begin: Array) -> Array:
    """Return the index of each n-gram's context, given `begin` of the level."""
    xp = array_namespace(begin)
    contexts = xp.arange(begin.shape[0] - 1, dtype=xp.int64, device=device(begin))
    return xp.repeat(contexts, begin[1:] - begin[:-1])


def link_suffixes(levels: list[Level]) -> None:
    """Fill in the suffixes of the last level: (h w)' = h' w, searched for among the n-grams with the context h'."""
    above = levels[-1]
    xp = array_namespace(above.word)
    codes = xp.astype(above.word, xp.int64)
    if len(levels) == 2:
        above.suffix = codes
        return
    context = parents(xp.astype(above.begin, xp.int64))
    shorter = xp.astype(levels[-2].suffix, xp.int64)[context]
    begin = xp.astype(levels[-2].begin, xp.int64)
    below = levels[-2].word
    above.suffix = find(lambda at: xp.astype(below[at], xp.int64), begin[shorter], begin[shorter + 1], codes)


def count_by_unique(ids: Array, order: int, vocab_size: int, bos: int, eos: int, context: Context) -> Counts:
    """Count every n-gram up to `order` in a text whose lines each end in `eos`, by a sort for each length.

    A GPU, where sorts are fast, counts this way; on a CPU it is the slow reference for `count.py`.
    """
    xp = array_namespace(ids)
    where = device(ids)
    code = xp.asarray(np.asarray(codes_of_words(vocab_size), dtype=np.int64), device=where)
    text, _ = insert_starts(xp.astype(ids, xp.int64), sequence_starts(ids, eos, context), bos)
    goes_on = text != eos if context == "line" else xp.ones_like(text, dtype=xp.bool)  # whether an n-gram may go on
    goes_on[-1] = False
    word = code[text]
    count = xp.zeros(vocab_size, dtype=xp.int64, device=where)
    values, counts = xp.unique_counts(code[xp.astype(ids, xp.int64)])
    count[values] = counts
    everything = xp.arange(vocab_size, dtype=xp.int64, device=where)
    begin = xp.asarray([0, vocab_size], dtype=xp.int64, device=where)
    result = Counts(vocab_size, bos, [Level(everything, count, begin, xp.zeros_like(everything))])
    node, places = word, xp.arange(text.shape[0], dtype=xp.int64, device=where)
    for n in range(2, order + 1):
        goes = goes_on[places + n - 2] if places.shape[0] else xp.zeros(0, dtype=xp.bool, device=where)
        places, node = places[goes], node[goes]
        keys = node * vocab_size + word[places + n - 1]
        values, inverse, counts = _unique(xp, keys)
        contexts = values // vocab_size
        begin = xp.searchsorted(contexts, xp.arange(len(result.levels[-1]) + 1, dtype=xp.int64, device=where))
        level = Level(values % vocab_size, counts, xp.astype(begin, xp.int64), values)
        result.levels.append(level)
        link_suffixes(result.levels)
        node = inverse
    return result


def _unique(xp: Array, keys: Array) -> tuple[Array, Array, Array]:
    """Return the distinct keys in order, the index of each key among them, and the count of each distinct key."""
    if keys.shape[0] == 0:
        return keys, keys, keys
    if is_numpy_array(keys):
        found = xp.unique_all(keys)
        return found.values, xp.reshape(found.inverse_indices, keys.shape), found.counts
    import torch  # it lacks the standard's `unique_all`, but its own `unique` can count

    values, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return values, inverse, counts
