"""The n-grams of each length, as flat arrays that hang together.

Level n holds the n-grams of n words. They are sorted by their context (the n-gram without its last word, a place
in level n-1) and then by the code of their last word, so those that share a context are neighbours:

    level n-1      a b           a c      ...
    begin          0             2        3
    level n        a b x  a b y  a c x    ...

Level 1 holds every word of the vocabulary, seen or not; a word's place there is its code. The functions here are
written against the Array API: the same lines run on NumPy and, on a GPU, on torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from array_api_compat import array_namespace, device

from chainrule.arrays import Array
from chainrule.lm import Context
from chainrule.ngram.codes import codes_of_words


@dataclass
class Level:
    """The n-grams of one length."""

    word: Array
    """The code of each one's last word."""
    count: Array
    """How often each occurred as an event; for Kneser-Ney, after how many different words."""
    begin: Array
    """The first n-gram behind each context, and one past the last: a number more than there are contexts."""
    suffix: Array
    """The place in the level below of each one without its first word."""

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

    def behind_bos(self, n: int) -> slice:
        """The n-grams of n words that begin with <s>; they are neighbours."""
        first = int(codes_of_words(self.vocab_size)[self.bos])
        last = first + 1
        for level in self.levels[1:n]:
            first, last = int(level.begin[first]), int(level.begin[last])
        return slice(first, last)


def find(word: Array, first: Array, last: Array, codes: Array) -> Array:
    """The place of each code within its stretch [first, last) of the sorted `word`, or -1: halving, all at once."""
    xp = array_namespace(first)
    low, high = first, last
    if word.shape[0] == 0 or first.shape[0] == 0:
        return xp.full_like(first, -1)
    for _ in range(int(xp.max(last - first)).bit_length()):
        middle = (low + high) // 2
        open_ = low < high
        below = open_ & (xp.astype(word[xp.where(open_, middle, 0)], xp.int64) < codes)
        low = xp.where(below, middle + 1, low)
        high = xp.where(below | ~open_, high, middle)
    inside = low < last
    found = inside & (xp.astype(word[xp.where(inside, low, 0)], xp.int64) == codes)
    return xp.where(found, low, -1)


def parents(begin: Array) -> Array:
    """The context of each n-gram of a level, from where each context's n-grams begin."""
    xp = array_namespace(begin)
    contexts = xp.arange(begin.shape[0] - 1, dtype=xp.int64, device=device(begin))
    return xp.repeat(contexts, begin[1:] - begin[:-1])


def link_suffixes(levels: list[Level]) -> None:
    """Give the n-grams of the last level their suffixes: (h w)' = h' w, found behind h'."""
    above = levels[-1]
    xp = array_namespace(above.word)
    codes = xp.astype(above.word, xp.int64)
    if len(levels) == 2:
        above.suffix = codes
        return
    context = parents(xp.astype(above.begin, xp.int64))
    shorter = xp.astype(levels[-2].suffix, xp.int64)[context]
    begin = xp.astype(levels[-2].begin, xp.int64)
    above.suffix = find(levels[-2].word, begin[shorter], begin[shorter + 1], codes)


def count_by_unique(ids: Array, order: int, vocab_size: int, bos: int, eos: int, context: Context) -> Counts:
    """Every n-gram up to `order` of a text whose lines each end in `eos`: a sort for each length.

    The slow, obvious way on a CPU (`count.py` is the fast one); on a GPU, where sorts are quick, the way.
    """
    xp = array_namespace(ids)
    where = device(ids)
    code = xp.asarray(np.asarray(codes_of_words(vocab_size), dtype=np.int64), device=where)
    text, goes_on = _with_starts(xp.astype(ids, xp.int64), bos, eos, context)
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
    """The distinct keys in order, where each key is among them, and how often each occurs."""
    if keys.shape[0] == 0:
        return keys, keys, keys
    found = xp.unique_all(keys) if "torch" not in xp.__name__ else None
    if found is not None:
        return found.values, xp.reshape(found.inverse_indices, keys.shape), found.counts
    import torch

    values, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return values, inverse, counts


def _with_starts(ids: Array, bos: int, eos: int, context: Context) -> tuple[Array, Array]:
    """The text with <s> before each line, or once where context flows on; and where an n-gram may go on."""
    xp = array_namespace(ids)
    starts = xp.zeros(ids.shape[0], dtype=xp.bool, device=device(ids))
    starts[0] = True
    if context == "line":
        starts[1:] = ids[:-1] == eos
    shift = xp.cumulative_sum(xp.astype(starts, xp.int64))
    text = xp.full(ids.shape[0] + int(shift[-1]), bos, dtype=xp.int64, device=device(ids))
    places = xp.arange(ids.shape[0], dtype=xp.int64, device=device(ids)) + shift
    text[places] = ids
    goes_on = text != eos if context == "line" else xp.ones_like(text, dtype=xp.bool)
    goes_on[-1] = False
    return text, goes_on
