"""The bytes that each token spells: which tokens can spell a text, and where the tokens of a text stand in it.

A text that is still being written ends anywhere, also inside a token. The tokens that can come next are then those
that start with the rest of the text, and, where tokens join without a space, those that the rest starts with.

Models with different tokenizers are compared on the bytes of a text, which they share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from chainrule.tokens.words.splitting import split_words

if TYPE_CHECKING:
    from chainrule.tokens.base import Tokenizer

_MOST_KNOWN = 4096
_SPACES = b" \t\r\v\f\n"


class Spelling:
    """The bytes of every token of a vocabulary; b"" for special tokens, which spell nothing."""

    def __init__(self, pieces: Sequence[bytes], *, joins: bool) -> None:
        """`joins` is True if tokens follow each other in a text without anything between them."""
        self.pieces = pieces
        self.joins = joins
        self._known: dict[bytes, tuple[NDArray[np.int64], int]] = {}

    def choices(self, text: bytes) -> tuple[NDArray[np.int64], int]:
        """Return the tokens that can spell a text or its beginning, and how many of them spell it to its end.

        Those come first. Prompts often end alike, so the choices for the last few thousand texts are kept.
        """
        found = self._known.get(text)
        if found is None:
            last = self.starting_with(text)
            found = np.concatenate([last, self.beginning(text)]), len(last)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The tokens that spell something, in the order of their bytes."""
        pieces = self.pieces
        return np.asarray(sorted((i for i, p in enumerate(pieces) if p), key=pieces.__getitem__), dtype=np.int64)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return [self.pieces[i] for i in self._order]

    def starting_with(self, text: bytes) -> NDArray[np.int64]:
        """Return the tokens whose bytes start with the text, in the order of their bytes."""
        last, kept = len(self._sorted), text.rstrip(b"\xff")
        if kept:  # the first bytes, in order, after all those that start with the text
            last = bisect_left(self._sorted, kept[:-1] + bytes([kept[-1] + 1]))
        return self._order[bisect_left(self._sorted, text) : last]

    def beginning(self, text: bytes) -> NDArray[np.int64]:
        """Return the tokens that the text starts with, if it goes on after them; none where tokens do not join."""
        found: list[int] = []
        for length in range(1, len(text) if self.joins else 0):
            place = bisect_left(self._sorted, text[:length])
            while place < len(self._sorted) and self._sorted[place] == text[:length]:
                found.append(int(self._order[place]))
                place += 1
        return np.asarray(found, dtype=np.int64)

    @cached_property
    def is_solid(self) -> NDArray[np.bool_]:
        """Which tokens spell something without white space."""
        return np.asarray([bool(p) and not any(byte in _SPACES for byte in p) for p in self.pieces])

    @cached_property
    def is_spaced(self) -> NDArray[np.bool_]:
        """Which tokens begin with white space."""
        return np.asarray([p[:1] in _SPACES if p else False for p in self.pieces])


def text_spans(tokenizer: Tokenizer, text: bytes, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bytes (first, one past the last) of each token of a text, whose line ends are `eos`.

    A last line without an end has no `eos`; if there is one nevertheless, it stands at the end and has no bytes.
    """
    place, first = 0, 0
    for line in text.split(b"\n"):
        last = next((i for i in range(first, len(ids)) if ids[i] == tokenizer.eos), len(ids))
        for a, b in byte_spans(tokenizer, line, ids[first:last]):
            yield place + a, place + b
        place += len(line)
        if last < len(ids):
            yield place, min(place + 1, len(text))
        place, first = place + 1, last + 1


def byte_spans(tokenizer: Tokenizer, line: bytes, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bytes (first, one past the last) of each token of a line; white space between words has none.

    >>> from chainrule.tokens.words.tokenizer import WordTokenizer
    >>> list(byte_spans(WordTokenizer([b"the", b"cat"]), b"the cat", [3, 4]))
    [(0, 3), (4, 7)]
    """
    words: Iterable[bytes | None]
    if tokenizer.splitting is not None:
        words = split_words(line, tokenizer.splitting)
    else:
        spelling = tokenizer.spelling
        words = (None if spelling is None else spelling.pieces[token] or None for token in ids)
    place, waiting = 0, 0  # tokens that wait have no place yet: <unk> has no spelling
    for word in words:
        found = -1 if word is None else line.find(word, place)
        if found < 0 and word is not None:  # some vocabularies put a space before the first word
            found = line.find(word := word.strip(), place)
        if found < 0 or word is None:
            waiting += 1
            continue
        yield from _shares(waiting, place, found, line)
        place, waiting = found + len(word), 0
        yield found, place
    yield from _shares(waiting, place, len(line), line)


def _shares(count: int, start: int, end: int, text: bytes) -> Iterator[tuple[int, int]]:
    """Divide the bytes from start to end among some tokens: a character each, the rest to the last."""
    for number in range(count):
        stop = start + 1
        while stop < end and text[stop] & 0xC0 == 0x80:
            stop += 1
        stop = end if number == count - 1 else min(stop, end)
        yield start, stop
        start = stop
