"""The words of a line as a tokenizer splits it, each with its place; case and punctuation apart from letters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chainrule.tokens.words.splitting import WORD, Splitting, character_classes

_CORE = re.compile(r"[^\W\d_](?:.*[^\W\d_])?", re.DOTALL)  # from the first letter to the last
_INNER = "'’-"


@dataclass(frozen=True)
class TypedWord:
    """A word of a line, and its core: the letters, and what is between them."""

    text: str
    start: int
    core: str
    """Without punctuation around it; empty if it is none that could be misspelled: a number, a sign, a letter."""
    core_start: int

    @property
    def around(self) -> tuple[str, str]:
        """The punctuation before and after the core."""
        before = self.core_start - self.start
        return self.text[:before], self.text[before + len(self.core) :]


def words_of(line: str, splitting: Splitting) -> list[TypedWord]:
    """The words of a line, exactly those that the tokenizer makes of it.

    >>> [(word.text, word.core) for word in words_of("Teh cat, 3 x.", "whitespace")]
    [('Teh', 'Teh'), ('cat,', 'cat'), ('3', ''), ('x.', '')]
    """
    return [_word(text, start) for text, start in _pieces(line, splitting)]


def _pieces(line: str, splitting: Splitting) -> list[tuple[str, int]]:
    if splitting == "whitespace":
        return [(found[0], found.start()) for found in re.finditer(r"[^ \t\r\v\f\n]+", line)]
    classes, pieces, start = character_classes(splitting), list[tuple[str, int]](), None
    for place, character in enumerate([*line, "\n"]):
        is_word = character != "\n" and classes[ord(character)] == WORD
        if is_word and start is None:
            start = place
        if not is_word and start is not None:
            pieces.append((line[start:place], start))
            start = None
        if not is_word and not character.isspace():
            pieces.append((character, place))
    return pieces


def _word(text: str, start: int) -> TypedWord:
    core = core_of(text)
    return TypedWord(text, start, core, start + (text.index(core) if core else 0))


def core_of(text: str) -> str:
    """A word without the punctuation around it; empty if it is a single letter, or has digits in it."""
    found = _CORE.search(text)
    core = found[0] if found else ""
    return core if len(core) > 1 and all(letter.isalpha() or letter in _INNER for letter in core) else ""


def in_case_of(word: str, typed: str) -> str:
    """A word in the case of another: small, Capitalised or ALL CAPITALS; of any other mixture it stays as it is.

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
