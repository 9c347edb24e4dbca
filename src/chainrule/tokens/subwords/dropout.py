"""BPE dropout: words split anew at random, so that a network sees many splits of each (Provilkov and others 2020).

BPE begins with the bytes of a word and, again and again, merges the pair of neighbours that was learned first. Here
each pair that could be merged is left out of that choice with a probability p, drawn anew before every merge; the
word is finished when all that is left was left out:

    p = 0     "unrelated" -> unrelated                  as the tokenizer splits it
    p = 0.1   un related, unrelat ed, u n related, ...  mostly common tokens, now and then rarer and shorter ones
    p = 1     u n r e l a t e d

The random numbers of a word depend on the seed and on the place of the word in the text alone: not on threads, nor
on what was split before. `split_slowly` is the formula; dropout_kernel.py does the same for all words of a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import TokenizerError
from chainrule.system.parallel import at_once, cores, stretches
from chainrule.tokens.base import Ids, Tokenizer
from chainrule.tokens.subwords.library import byte_level
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer

_WORDS_A_THREAD = 1 << 16
_LAST_64_BITS = (1 << 64) - 1


class SplitDropout:
    """The lines of a text, to be split at random as often as one likes."""

    def __init__(self, tokenizer: Tokenizer, lines: Iterable[bytes]) -> None:
        """`lines` are those of the text, without their ends; words that occur often are stored once."""
        if not isinstance(tokenizer, SubwordTokenizer) or tokenizer.algorithm != "bpe":
            raise TokenizerError(f"merges can be left out of bpe tokens, not of {tokenizer.name} tokens: take bpe")
        self.eos, self.id_dtype = tokenizer.eos, tokenizer.id_dtype
        self.merges = merges_of(tokenizer)
        self._table = _hashed(self.merges)
        numbers: dict[str, int] = {}
        words: list[int] = []
        ends = []
        split = byte_level().pre_tokenize_str
        for line in lines:
            for section in tokenizer.sections(line):
                words += [numbers.setdefault(word, len(numbers)) for word, _ in split(section)]
            ends.append(len(words))
        id_of = tokenizer.reference.get_vocab()
        spelled = [[id_of[character] for character in word] for word in numbers]
        self.words, self.line_ends = np.asarray(words, np.int64), np.asarray(ends, np.int64)
        """The number of each word of the text, and where each line ends among them."""
        self.symbols = np.asarray([symbol for word in spelled for symbol in word], np.int64)
        """The ids of the bytes of each word, one after the other."""
        self.starts = np.cumsum([0, *map(len, spelled)])

    def ids(self, share: float, seed: int, most: int | None = None) -> Ids:
        """Return the ids of the lines, each ended by </s>, where each merge is left out with probability `share`.

        A line that would have more than `most` ids is split as the tokenizer splits it.
        """
        from chainrule.tokens.subwords import dropout_kernel

        def part(bounds: tuple[int, int]) -> NDArray[np.int64]:
            first, last = bounds
            limit = np.iinfo(np.int64).max if most is None else most
            found: NDArray[np.int64] = dropout_kernel.split_lines(
                self.words, self.line_ends, self.starts, self.symbols, *self._table,
                *(float(share), np.uint64(seed & _LAST_64_BITS), self.eos, limit, first, last),
            )  # fmt: skip
            return found

        threads = min(cores(), len(self.words) // _WORDS_A_THREAD)
        parts = at_once(part, stretches(len(self.line_ends), threads))
        return np.concatenate(parts).astype(np.uint32)

    def ids_slowly(self, share: float, seed: int) -> Ids:
        """Return the same as `ids`, word by word with `split_slowly`: the reference."""
        found: list[int] = []
        for first, last in pairwise([0, *self.line_ends.tolist()]):
            for place in range(first, last):
                word = self.words[place]
                symbols = self.symbols[self.starts[word] : self.starts[word + 1]].tolist()
                found += split_slowly(symbols, self.merges, share, draws(seed, place).__next__)
            found.append(self.eos)
        return np.asarray(found, np.uint32)


Merges = dict[tuple[int, int], tuple[int, int]]
"""The rank of each pair of ids, 0 for the pair that was learned first, and the id that it becomes."""


def merges_of(tokenizer: SubwordTokenizer) -> Merges:
    """Return the merges of a BPE tokenizer."""
    id_of, merges = tokenizer.reference.get_vocab(), {}
    for rank, pair in enumerate(json.loads(tokenizer.definition)["model"]["merges"]):
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        merges[id_of[left], id_of[right]] = rank, id_of[left + right]
    return merges


def split_slowly(symbols: list[int], merges: Merges, share: float, draw: Callable[[], float]) -> list[int]:
    """Return the tokens of a word that begins as these symbols; `draw` returns the next number from 0 to 1.

    >>> merges = {(1, 2): (0, 4), (4, 3): (1, 5)}
    >>> split_slowly([1, 2, 3], merges, 0.5, iter([0.7, 0.9]).__next__)
    [5]
    >>> split_slowly([1, 2, 3], merges, 0.5, iter([0.7, 0.2]).__next__)
    [4, 3]
    """
    while True:
        pairs = [pair for pair in enumerate(pairwise(symbols)) if pair[1] in merges]
        kept = [(merges[pair], place) for place, pair in pairs if draw() >= share]
        if not kept:
            return symbols
        (_, merged), place = min(kept)  # the pair that was learned first, and of equal ones the first
        symbols = [*symbols[:place], merged, *symbols[place + 2 :]]


def draws(seed: int, place: int) -> Iterator[float]:
    """Yield the random numbers of the word at this place of a text (SplitMix64, Steele and others 2014)."""
    state = _mixed(((seed & _LAST_64_BITS) + (place + 1) * 0xD1B54A32D192ED03) & _LAST_64_BITS)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _LAST_64_BITS
        yield (_mixed(state) >> 11) * 2.0**-53


def _mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _LAST_64_BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _LAST_64_BITS
    return z ^ (z >> 31)


def _hashed(merges: Merges) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return merges as a hash table with open addressing: keys, ranks (-1: the slot is empty), new ids."""
    slots = 1 << (4 * len(merges) + 1).bit_length()
    keys, ranks = np.zeros(slots, np.uint64), np.full(slots, -1, np.int64)
    made = np.zeros(slots, np.int64)
    for (left, right), (rank, new) in merges.items():
        key = left << 32 | right
        slot = _mixed(key) & (slots - 1)
        while ranks[slot] >= 0:
            slot = (slot + 1) & (slots - 1)
        keys[slot], ranks[slot], made[slot] = key, rank, new
    return keys, ranks, made
