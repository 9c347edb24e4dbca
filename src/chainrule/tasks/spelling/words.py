"""The words of a line, with case and punctuation apart from letters, and the words of a vocabulary near them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chainrule.tasks.spelling.channel import START, Channel, encoded
from chainrule.tokens.base import decoded, utf8
from chainrule.tokens.words.splitting import Splitting, split_words

_CORE = re.compile(r"[^\W\d_](?:.*[^\W\d_])?", re.DOTALL)  # from the first letter to the last
_INNER = "'’-"
MOST_EDITS = 2


@dataclass(frozen=True)
class TypedWord:
    """A word of a line, and its core: from its first letter to its last."""

    text: str
    start: int
    core: str
    """The word without punctuation around it; empty for a number, a sign or one letter, which are left alone."""
    core_start: int
    is_alone: bool = False
    """True if no other word of the line has a core: a word by itself is often one that someone asks about."""

    @property
    def core_end(self) -> int:
        """The place after its core."""
        return self.core_start + len(self.core)

    @property
    def around(self) -> tuple[str, str]:
        """The punctuation before and after the core."""
        before = self.core_start - self.start
        return self.text[:before], self.text[before + len(self.core) :]


def words_of(line: str, splitting: Splitting) -> list[TypedWord]:
    """Return the words of a line, exactly those that the tokenizer makes of it.

    >>> [(word.text, word.core) for word in words_of("Teh cat, 3 x.", "whitespace")]
    [('Teh', 'Teh'), ('cat,', 'cat'), ('3', ''), ('x.', '')]
    """
    words, place = [], 0
    for text in decoded(split_words(utf8(line), splitting)):
        start, core = line.index(text, place), core_of(text)
        words.append(TypedWord(text, start, core, start + text.index(core)))
        place = start + len(text)
    with_core = [number for number, word in enumerate(words) if word.core]
    if len(with_core) == 1:
        words[with_core[0]] = replace(words[with_core[0]], is_alone=True)
    return words


def core_of(text: str) -> str:
    """Return a word without the punctuation around it; empty for a single letter or a word with digits."""
    found = _CORE.search(text)
    core = found[0] if found else ""
    return core if len(core) > 1 and all(letter.isalpha() or letter in _INNER for letter in core) else ""


def in_case_of(word: str, typed: str) -> str:
    """Return a word in the case of another: lower, Capitalised or ALL CAPITALS; unchanged for any other mixture.

    >>> in_case_of("the", "Teh"), in_case_of("London", "londn"), in_case_of("iPod", "iPdo")
    ('The', 'london', 'iPod')
    """
    if typed.islower():
        return word.lower()
    if typed.isupper():
        return word.upper()
    if typed[:1].isupper() and typed[1:].islower():
        return word[:1].upper() + word[1:].lower()
    return word


def replaced(text: str, parts: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with some of its parts, from a start to an end, replaced by a text each."""
    pieces, done = [], 0
    for start, end, new in parts:
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


class Lexicon:
    """The words of a vocabulary, in lower case, laid out so that those near a typed word are found fast."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        lengths_N = np.asarray([len(word) for word in vocabulary], dtype=np.int64)
        self._numbers_N = np.argsort(lengths_N, kind="stable")
        words = [vocabulary[number] for number in self._numbers_N.tolist()]
        self._starts_N = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N[self._numbers_N])])
        self._letters, self._classes = _code_points("".join(words)), np.asarray(encoded("".join(words)), np.int64)
        self._sets_N = np.asarray([_letter_set(word) for word in words], dtype=np.uint64)
        self._lengths_N = lengths_N[self._numbers_N]

    def near(self, typed: str, most: int = MOST_EDITS) -> NearWords:
        """Return the words within `most` edits of the typed one.

        An edit inserts, deletes or substitutes a letter, or swaps two neighbours; none changes a letter twice.

        >>> found = Lexicon(["ten", "dog", "the"]).near("teh")
        >>> found.numbers.tolist(), found.distances.tolist()
        ([0, 2], [1, 1])
        """
        from chainrule.tasks.spelling.kernels import near

        first, last = np.searchsorted(self._lengths_N, [len(typed) - most, len(typed) + most + 1]).tolist()
        letters, letter_set = _code_points(typed), np.uint64(_letter_set(typed))
        places, distances = near(
            letters, letter_set, self._letters, self._starts_N, self._sets_N, first, last, most
        )
        return NearWords(places, self._numbers_N[places], distances)

    def costs(self, typed: str, found: NearWords, channel: Channel, most: int = MOST_EDITS) -> np.ndarray:
        """Return -ln p(typed | word) of the words that were found near the typed one, `most` edits away."""
        from chainrule.tasks.spelling.kernels import costs

        word, codes = _code_points(typed), np.asarray(encoded(typed), np.int64)
        tables = channel.delete, channel.insert, channel.substitute, channel.transpose
        words = self._letters, self._classes, self._starts_N
        costs_N: np.ndarray = costs(word, codes, *words, found.places, most, START, tables)
        return costs_N


@dataclass(frozen=True)
class NearWords:
    """Words of a lexicon: their places in it, their numbers in the vocabulary, and their distances in edits."""

    places: np.ndarray
    numbers: np.ndarray
    distances: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> NearWords:
        """Return some of the words."""
        return NearWords(self.places[chosen], self.numbers[chosen], self.distances[chosen])


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _letter_set(word: str) -> int:
    """Return the letters of a word as bits: a letter from a to z, its second time in the word, groups of others."""
    bits = 0
    for code in map(ord, word):
        bit = 1 << (code - 97 if 97 <= code < 123 else 52 + code % 12)
        bits |= bit << 26 if bits & bit and bit < 1 << 26 else bit
    return bits
