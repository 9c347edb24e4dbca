"""Words as tokens (splitting.py says what a word is).

White space is not kept, so decoding joins words with single spaces: word tokens are not lossless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule.errors import TokenizerError
from chainrule.tokens.base import Ids, Tokenizer, encode_lines_slowly, lines_of
from chainrule.tokens.splitting import Splitting, character_classes, split_words
from chainrule.tokens.vocabulary import Limit, choose

if TYPE_CHECKING:
    from chainrule.tokens.kernels import WordTable

_WORTH_A_KERNEL = 1 << 20  # bytes; below, Python is done before Numba is imported


class WordTokenizer(Tokenizer):
    """Ids 0, 1, 2 are <unk>, <s>, </s>; then come the words, most frequent first."""

    kind: ClassVar[str] = "word"
    lossless: ClassVar[bool] = False
    unk, bos, eos = 0, 1, 2

    def __init__(self, words: list[bytes], splitting: Splitting = "whitespace") -> None:
        self.words = words
        self.splitting = splitting
        self.name = "word" if splitting == "whitespace" else f"word:{splitting}"
        self.vocab_size = 3 + len(words)

    @classmethod
    def train(cls, blocks: Iterator[bytes], limit: Limit, splitting: Splitting = "whitespace") -> WordTokenizer:
        """Every word of the text within the limit."""
        return cls(choose(count_words(blocks, splitting), limit), splitting)

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {word: number for number, word in enumerate(self.words, start=3)}

    @cached_property
    def _table(self) -> WordTable:
        from chainrule.tokens.kernels import WordTable

        return WordTable(character_classes(self.splitting), self.words)

    def encode_lines(self, block: bytes) -> Ids:
        if len(block) < _WORTH_A_KERNEL and "_table" not in self.__dict__:
            return encode_lines_slowly(self, block)
        return self._table.number(block if block.endswith(b"\n") else block + b"\n", 3, self.unk, self.eos)

    def encode_line(self, line: bytes) -> list[int]:
        return [self._ids.get(word, self.unk) for word in split_words(line, self.splitting)]

    def decode(self, ids: Iterable[int]) -> str:
        pieces: list[str] = []
        for i in map(int, ids):
            if i == self.eos:
                pieces.append("\n")
            elif i != self.bos:
                if pieces and pieces[-1] != "\n":
                    pieces.append(" ")
                pieces.append(self.token(i))
        return "".join(pieces)

    def token(self, token_id: int) -> str:
        return self.special(token_id) or self.words[token_id - 3].decode()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "splitting": self.splitting,
            "words": [word.decode() for word in self.words],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WordTokenizer:
        words = [word.encode() for word in data["words"]]
        if len(set(words)) != len(words):
            raise TokenizerError("the vocabulary lists a word twice")
        if data["splitting"] not in ("whitespace", "unicode"):
            raise TokenizerError(f"there is no splitting {data['splitting']!r}")
        return cls(words, data["splitting"])


def count_words(blocks: Iterable[bytes], splitting: Splitting) -> dict[bytes, int]:
    """How often each word occurs."""
    counts: Counter[bytes] = Counter()
    table = None
    for block in blocks:
        if table is None and len(block) < _WORTH_A_KERNEL:
            for line in lines_of(block):
                counts.update(split_words(line, splitting))
        else:
            if table is None:
                from chainrule.tokens.kernels import WordTable

                table = WordTable(character_classes(splitting))
            table.count(block)
    if table is not None:
        counts.update(table.words())
    return counts
