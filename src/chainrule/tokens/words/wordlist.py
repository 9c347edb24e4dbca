"""A given vocabulary, read from a text file with one word per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chainrule.errors import TokenizerError
from chainrule.text.files import Cleaning, clean_blocks, raw_pieces
from chainrule.tokens.base import lines_of
from chainrule.tokens.words.splitting import Splitting, split_words

_SPECIAL = frozenset([b"<unk>", b"<s>", b"</s>"])  # other tools list them; every word tokenizer has them anyway


def read_words(path: str | Path, splitting: Splitting) -> list[bytes]:
    """The words of a file in its order; one that the splitting could never find in a text is an error."""
    lines: dict[bytes, int] = {}
    for number, word in enumerate(_lines(Path(path)), start=1):
        if word in _SPECIAL:
            continue
        if fault := _fault(word, splitting) or (word in lines and f"is on line {lines[word]} already"):
            raise TokenizerError(f"{path}: line {number}: expected one new word, but {word.decode()!r} {fault}")
        lines[word] = number
    if not lines:
        raise TokenizerError(f"{path}: there is no word in it; a vocabulary has one on each line")
    return list(lines)


def _lines(path: Path) -> Iterator[bytes]:
    for block in clean_blocks(raw_pieces(path, str(path)), str(path), Cleaning()):
        yield from lines_of(block)


def _fault(word: bytes, splitting: Splitting) -> str | None:
    if not word:
        return "is empty"
    if splitting == "unicode" and word.decode().isalnum():  # most words are, and splitting is slow
        return None
    parts = split_words(word, splitting)
    if parts == [word]:
        return None
    if b"".join(parts) != word:
        return "has white space in it"
    return f"is never one word: word:{splitting} splits it into {b' '.join(parts).decode()!r}"
