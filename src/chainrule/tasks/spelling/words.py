"""The words of a line, with case and punctuation apart from letters, and the words of a vocabulary near them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.system.parallel import cores
from chainrule.tokens.base import decoded, utf8
from chainrule.tokens.words.splitting import Splitting, split_words

_CORE = re.compile(r"[^\W\d_](?:.*[^\W\d_])?", re.DOTALL)  # from the first letter to the last
_INNER = "'’-"
MOST_EDITS = 2
_TYPED_AT_ONCE = 256


@dataclass(frozen=True)
class TypedWord:
    """A word of a line, and its core: from its first letter to its last."""

    text: str
    start: int
    core: str
    """The word without punctuation around it; empty for a number, a sign or one letter, which are left alone."""
    core_start: int

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


def find_near(
    typed: Sequence[str], vocabulary: Sequence[str], most: int = MOST_EDITS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each typed word the numbers of the words within `most` edits, ascending, and their distances.

    An edit inserts, deletes or substitutes a letter, or swaps two neighbours; none changes a letter twice.

    >>> (numbers, distances), = find_near(["teh"], ["ten", "dog", "the"])
    >>> numbers.tolist(), distances.tolist()
    ([0, 2], [1, 1])
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    for first in range(0, len(typed), _TYPED_AT_ONCE):
        some = typed[first : first + _TYPED_AT_ONCE]
        for row in cdist(some, vocabulary, scorer=OSA.distance, score_cutoff=most, dtype=np.uint8, workers=cores()):
            numbers = np.flatnonzero(row <= most)
            yield numbers, row[numbers].astype(np.int64)
