"""A tokenizer: words at white space, each in two halves, so that "reading" shares a half with "reader"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from chainrule.tokens.base import Ids, Tokenizer, encode_lines_slowly, lines_of
from chainrule.tokens.vocabulary import Limit, choose

_MORE = "+ "


class HalfWordTokenizer(Tokenizer):
    """Ids 0, 1, 2 are <unk>, <s>, </s>; then come the halves, most frequent first. A first half ends in "+ ",
    which no half of a word can: words have no space in them."""

    kind: ClassVar[str] = "half-word"
    lossless: ClassVar[bool] = False
    name = "half-word"
    unk, bos, eos = 0, 1, 2

    def __init__(self, halves: list[str]) -> None:
        self.halves = halves
        self.vocab_size = 3 + len(halves)
        self._ids = {half: number for number, half in enumerate(halves, start=3)}

    @classmethod
    def train(cls, blocks: Iterator[bytes], limit: Limit) -> HalfWordTokenizer:
        """Return a tokenizer of the halves of a text's words, at most as many as the limit."""
        counts = Counter(half for block in blocks for line in lines_of(block) for half in _halves(line.decode()))
        return cls(choose(counts, limit))

    def encode_lines(self, block: bytes) -> Ids:
        return encode_lines_slowly(self, block)

    def encode_line(self, line: bytes) -> list[int]:
        return [self._ids.get(half, self.unk) for half in _halves(line.decode())]

    def decode(self, ids: Iterable[int]) -> str:
        text, before = "", "\n"
        for token in (self.token(i) for i in map(int, ids) if i != self.bos):
            if token == "</s>":
                token = "\n"
            elif before != "\n" and not before.endswith(_MORE):
                text += " "
            text += token.removesuffix(_MORE)  # the second half follows without a space
            before = token
        return text

    def token(self, token_id: int) -> str:
        return self.special(token_id) or self.halves[token_id - 3]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "halves": self.halves}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> HalfWordTokenizer:
        """Return the tokenizer that `to_json` describes."""
        return cls(list(data["halves"]))


def _halves(line: str) -> list[str]:
    """Split every word of two letters or more into two halves."""
    halves: list[str] = []
    for word in line.split():
        middle = (len(word) + 1) // 2
        halves += [word[:middle] + _MORE, word[middle:]] if len(word) > 1 else [word]
    return halves
