"""Characters (Unicode code points) as tokens, and bytes as tokens.

Bytes leave nothing to learn and nothing unknown. The byte 10, a line end, is </s> itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from chainrule.errors import TokenizerError
from chainrule.tokens.base import Ids, Tokenizer
from chainrule.tokens.vocabulary import Limit, choose

_CODE_POINTS = 0x110000


class CharTokenizer(Tokenizer):
    """Ids 0, 1, 2 are <unk>, <s>, </s>; then come the characters, most frequent first.

    >>> CharTokenizer("eat").encode("tea!").tolist()
    [5, 3, 4, 0]
    """

    kind: ClassVar[str] = "char"
    lossless: ClassVar[bool] = True
    name = "char"
    unk, bos, eos = 0, 1, 2

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.vocab_size = 3 + len(characters)

    @classmethod
    def train(cls, blocks: Iterator[bytes], limit: Limit) -> CharTokenizer:
        """Return a tokenizer that knows every character of the text within the limit."""
        totals = np.zeros(_CODE_POINTS, dtype=np.int64)
        for block in blocks:
            codes = _code_points(block)
            counts = np.bincount(codes)
            totals[: len(counts)] += counts
        totals[ord("\n")] = 0
        return cls("".join(choose({chr(code): int(totals[code]) for code in np.flatnonzero(totals)}, limit)))

    @cached_property
    def _id_of_code(self) -> Ids:
        table = np.full(_CODE_POINTS, self.unk, dtype=np.uint32)
        table[[ord(character) for character in self.characters]] = np.arange(3, self.vocab_size)
        table[ord("\n")] = self.eos
        return table

    def encode_lines(self, block: bytes) -> Ids:
        if not block.endswith(b"\n"):
            block += b"\n"
        return self._id_of_code[_code_points(block)]

    def encode_line(self, line: bytes) -> list[int]:
        places = {character: place for place, character in enumerate(self.characters, start=3)}
        return [places.get(character, self.unk) for character in line.decode()]

    def decode(self, ids: Iterable[int]) -> str:
        special = {self.eos: "\n", self.bos: "", self.unk: "<unk>"}
        return "".join(special[i] if i in special else self.characters[i - 3] for i in map(int, ids))

    def token(self, token_id: int) -> str:
        return self.special(token_id) or self.characters[token_id - 3]

    def pieces(self) -> list[bytes]:
        return [b"", b"", b"", *(character.encode(errors="replace") for character in self.characters)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": self.characters}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CharTokenizer:
        characters = data["characters"]
        if not isinstance(characters, str) or len(set(characters)) != len(characters):
            raise TokenizerError("the characters should be one string, each of them once")
        return cls(characters)


def _code_points(block: bytes) -> Ids:
    return np.frombuffer(block.decode().encode("utf-32-le"), dtype=np.uint32)


class ByteTokenizer(Tokenizer):
    """An id is the byte's value; 256 is <s>.

    >>> ByteTokenizer().encode("né").tolist()
    [110, 195, 169]
    """

    kind: ClassVar[str] = "byte"
    lossless: ClassVar[bool] = True
    name = "byte"
    vocab_size = 257
    bos = 256
    eos = ord("\n")
    unk = None

    def encode_lines(self, block: bytes) -> Ids:
        if not block.endswith(b"\n"):
            block += b"\n"
        return np.frombuffer(block, dtype=np.uint8).astype(np.uint32)

    def encode_line(self, line: bytes) -> list[int]:
        return list(line)

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in map(int, ids) if i != self.bos).decode(errors="replace")

    def token(self, token_id: int) -> str:
        character = chr(token_id)
        return self.special(token_id) or (character if " " <= character <= "~" else f"<0x{token_id:02X}>")

    def pieces(self) -> list[bytes]:
        return [bytes([i]) if i != self.eos else b"" for i in range(256)] + [b""]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ByteTokenizer:
        return cls()
