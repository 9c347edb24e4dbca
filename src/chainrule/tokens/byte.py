"""Bytes as tokens: nothing to learn, nothing unknown. The byte 10, a line end, is </s> itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from chainrule.tokens.base import Ids, Tokenizer


class ByteTokenizer(Tokenizer):
    """An id is the byte's value; 256 is <s>."""

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
