"""Lower-cased text: any tokenizer, which reads "Henry" as "henry"."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar, Self

from chainrule.tokens.base import Ids, Tokenizer


@cache
def _lower_cases() -> dict[int, str]:
    """Return the lower case of each character whose lower case is one character with the same number of bytes.

    The few others, such as İ, stay as they are: so each byte of a text keeps its place, and the lower case of a
    text does not depend on what follows it.
    """
    pairs = ((code, chr(code).lower()) for code in range(sys.maxunicode + 1) if chr(code).isupper())
    return {code: low for code, low in pairs if len(low) == 1 and len(low.encode()) == len(chr(code).encode())}


def lowered(block: bytes) -> bytes:
    """Return UTF-8 text in lower case; the number of bytes stays the same.

    >>> lowered("Élan VITAL, İ".encode()).decode()
    'élan vital, İ'
    """
    return block.lower() if block.isascii() else block.decode().translate(_lower_cases()).encode()


class LowercaseTokenizer(Tokenizer):
    """A tokenizer of lower-cased text, with the ids of the tokenizer `of`.

    >>> from chainrule.tokens.words.tokenizer import WordTokenizer
    >>> LowercaseTokenizer(WordTokenizer([b"henry"])).encode("Henry HENRY Jim").tolist()
    [3, 3, 0]
    """

    kind: ClassVar[str] = "lowercase"
    lossless: ClassVar[bool] = False
    ignores_case: ClassVar[bool] = True

    def __init__(self, of: Tokenizer) -> None:
        self.of = of
        self.name = f"lower-case {of.name}"
        self.vocab_size, self.bos, self.eos, self.unk = of.vocab_size, of.bos, of.eos, of.unk
        self.splitting = of.splitting
        if self.splitting is not None:
            self.spellings = of.spellings

    def encode_lines(self, block: bytes) -> Ids:
        return self.of.encode_lines(lowered(block))

    def encode_text(self, block: bytes) -> Ids:
        return self.of.encode_text(lowered(block))

    def encode_line(self, line: bytes) -> list[int]:
        return self.of.encode_line(lowered(line))

    def decode(self, ids: Iterable[int]) -> str:
        return self.of.decode(ids)

    def token(self, token_id: int) -> str:
        return self.of.token(token_id)

    def stable_ids(self, prompt: str) -> tuple[list[int], bytes]:
        return self.of.stable_ids(lowered(prompt.encode()).decode())

    def pieces(self) -> list[bytes] | None:
        return self.of.pieces()

    @property
    def keeps_spaces(self) -> bool:
        return self.of.keeps_spaces

    def with_words(self, words: Iterable[bytes]) -> Self:
        return type(self)(self.of.with_words(map(lowered, words)))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "of": self.of.to_json()}
