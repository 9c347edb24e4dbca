"""Where words begin and end: at white space, or by Unicode's classes of characters.

whitespace   at the six ASCII white-space characters, as in KenLM and most corpora
unicode      runs of letters, digits, accents and underscores are words; any other visible character is
             one by itself: "don't!" is don ' t !
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from itertools import groupby
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Splitting: TypeAlias = Literal["whitespace", "unicode"]

SPACE, WORD, SINGLE, LINE_END = 0, 1, 2, 3
"""Classes of characters: separators; what words are made of; words by themselves; the end of a line."""


def split_words(line: bytes, splitting: Splitting) -> list[bytes]:
    """Return the words of one line, in plain Python: the reference for kernels.py.

    >>> split_words(b"don't!", "whitespace"), split_words(b"don't!", "unicode")
    ([b"don't!"], [b'don', b"'", b't', b'!'])
    """
    if splitting == "whitespace":
        return line.split()
    classes = character_classes(splitting)
    words = []
    for character_class, run in groupby(line.decode(), key=lambda character: classes[ord(character)]):
        if character_class == WORD:
            words.append("".join(run))
        elif character_class == SINGLE:
            words.extend(run)
    return [word.encode() for word in words]


@cache
def character_classes(splitting: Splitting) -> NDArray[np.uint8]:
    """Return the class of every code point; for `whitespace` of every byte, as only ASCII bytes matter there."""
    if splitting == "unicode":
        classes = np.array([_unicode_class(chr(code)) for code in range(sys.maxunicode + 1)], dtype=np.uint8)
    else:
        classes = np.full(256, WORD, dtype=np.uint8)
        classes[list(b" \t\r\v\f")] = SPACE
    classes[ord("\n")] = LINE_END
    return classes


def _unicode_class(character: str) -> int:
    if character.isalnum() or character == "_" or unicodedata.category(character).startswith("M"):
        return WORD
    return SPACE if character.isspace() else SINGLE
