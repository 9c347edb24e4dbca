"""Words as tokens (splitting.py says what a word is).

White space is not kept, so decoding joins words with single spaces: word tokens are not lossless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from chainrule.errors import TokenizerError
from chainrule.system.parallel import Patience, in_order
from chainrule.text.files import Cleaning, clean_blocks, raw_pieces
from chainrule.tokens.base import Ids, Tokenizer, decoded, encode_lines_slowly, lines_of, utf8
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.learning import NANOSECONDS, WordLearner
from chainrule.tokens.words.splitting import Splitting, split_words
from chainrule.tokens.words.table import WordTable

_SPECIAL = frozenset([b"<unk>", b"<s>", b"</s>"])  # other tools list them; every word tokenizer has them anyway


class WordTokenizer(Tokenizer):
    """Ids 0, 1, 2 are <unk>, <s>, </s>; then come the words, most frequent first or in the order of a list.

    >>> tokenizer = WordTokenizer([b"the", b"cat"])
    >>> tokenizer.encode_lines(b"the cat\\nthe dog\\n").tolist()
    [3, 4, 2, 3, 0, 2]
    >>> tokenizer.decode([3, 4])
    'the cat'
    """

    kind: ClassVar[str] = "word"
    lossless: ClassVar[bool] = False
    unk, bos, eos = 0, 1, 2

    splitting: Splitting

    def __init__(self, words: list[bytes], splitting: Splitting = "whitespace") -> None:
        self.spellings = words
        self.splitting = splitting
        self.name = "word" if splitting == "whitespace" else f"word:{splitting}"
        self.vocab_size = 3 + len(words)
        self._patience = Patience(NANOSECONDS)

    @classmethod
    def train(cls, blocks: Iterator[bytes], limit: Limit, splitting: Splitting = "whitespace") -> WordTokenizer:
        """Return a tokenizer that knows every word of the text within the limit."""
        learner = WordLearner(splitting)
        for _ in in_order(learner.learn, blocks):
            pass
        return cls(learner.vocabulary(limit).spell(), splitting)

    @classmethod
    def from_file(cls, path: str | Path, splitting: Splitting = "whitespace") -> WordTokenizer:
        """Make a tokenizer of exactly the words of a file, one per line, in its order; any other is <unk>."""
        return cls(read_words(path, splitting), splitting)

    def with_words(self, words: Iterable[bytes]) -> WordTokenizer:
        """Return a tokenizer with these words after its own; words that it knows already are skipped."""
        known = set(self.spellings)
        return WordTokenizer(
            [*self.spellings, *(word for word in dict.fromkeys(words) if word not in known)], self.splitting
        )

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {word: number for number, word in enumerate(self.spellings, start=3)}

    @cached_property
    def _table(self) -> WordTable:
        return WordTable(self.splitting, self.spellings)

    def encode_lines(self, block: bytes) -> Ids:
        if not self._patience.count(len(block)):
            return encode_lines_slowly(self, block)
        numbers = self._table.look_up(block)  # 0 unknown, 1 the line end, 2 the first word
        numbers += numbers > 0
        return numbers

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
        return self.special(token_id) or self.spellings[token_id - 3].decode()

    def stable_ids(self, prompt: str) -> tuple[list[int], bytes]:
        """Return the ids without that of the last word, which may go on; after white space, all ids."""
        ids: list[int] = self.encode(prompt).tolist()
        words = split_words(utf8(prompt.rpartition("\n")[2]), self.splitting)
        return (ids[:-1], words[-1]) if words and utf8(prompt).endswith(words[-1]) else (ids, b"")

    def pieces(self) -> list[bytes]:
        return [b"", b"", b"", *self.spellings]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "splitting": self.splitting,
            "words": decoded(self.spellings),  # not `words`, which would be kept
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WordTokenizer:
        # joined and split again: no word has a line end in it, and a call per word takes four times as long
        words = "\n".join(data["words"]).encode().split(b"\n") if data["words"] else []
        if len(words) != len(data["words"]):
            raise TokenizerError("the vocabulary has a word with a line end in it")
        if len(set(words)) != len(words):
            raise TokenizerError("the vocabulary lists a word twice")
        if data["splitting"] not in ("whitespace", "unicode"):
            raise TokenizerError(f"there is no splitting {data['splitting']!r}")
        return cls(words, data["splitting"])


def read_words(path: str | Path, splitting: Splitting) -> list[bytes]:
    """Return the words of a file in its order; one that the splitting could never find in a text is an error."""
    blocks = clean_blocks(raw_pieces(Path(path), str(path)), str(path), Cleaning())
    lines: dict[bytes, int] = {}
    for number, word in enumerate((word for block in blocks for word in lines_of(block)), start=1):
        if word in _SPECIAL:
            continue
        if fault := _fault(word, splitting) or (word in lines and f"is on line {lines[word]} already"):
            raise TokenizerError(f"{path}: line {number}: expected one new word, but {word.decode()!r} {fault}")
        lines[word] = number
    if not lines:
        raise TokenizerError(f"{path}: there is no word in it; a vocabulary has one on each line")
    return list(lines)


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
