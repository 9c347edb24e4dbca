"""ARPA files in other encodings than UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path

from chainrule.errors import ArpaError


def recoding(encoding: str, path: Path) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """A function that turns bytes of an encoding into UTF-8; words are UTF-8 here, whatever they are in a file."""
    try:
        found = codecs.lookup(encoding)
    except LookupError:
        raise ArpaError(f"there is no encoding {encoding!r}: latin-1, cp1252, koi8-r, ... are some") from None
    if found.name == "utf-8":
        return lambda pieces: pieces

    def recoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(found.name)()
        try:
            for piece in pieces:
                yield decoder.decode(piece).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise ArpaError(f"{path}: not {encoding}: {error}") from None

    return recoded
