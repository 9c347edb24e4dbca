"""The interface of every tokenizer: text to ids and back.

Special tokens exist only as ids: <s> (`bos`) starts every sequence and is never predicted, </s> (`eos`) is the
end of a line, <unk> (`unk`) stands for text that the vocabulary lacks. No text becomes a special token: the letters
"<s>" in a corpus are text like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import TokenizerError
from chainrule.system.parallel import at_once, cores
from chainrule.tokens.spelling import Spelling
from chainrule.tokens.words.splitting import Splitting

Ids = NDArray[np.uint32]

_WORTH_A_THREAD = 1 << 17  # bytes; a thread for less text would take longer to start than it saves
_NEARBY = 8  # preceding ids that can change how the next ones decode: the bytes of a character, a space


class Tokenizer(ABC):
    """Text to ids and back."""

    kind: ClassVar[str]
    lossless: ClassVar[bool]
    """True if decoding gives back the text exactly, unless something in it is <unk>."""
    ignores_case: ClassVar[bool] = False
    """True if upper-case letters are read as lower-case ones."""
    name: str
    """The tokenizer's name on the command line."""
    vocab_size: int
    """How many ids there are, special ones included."""
    bos: int
    eos: int
    splitting: Splitting | None = None
    """How text is split into words; None where tokens are not words."""
    spellings: list[bytes]
    """The words in UTF-8, in the order of their ids, for a tokenizer of words."""
    unk: int | None
    """The id of <unk>; None where every text can be encoded, as with bytes and byte-level BPE."""
    start: int | None = None
    """The token that a published model reads first; None: <s> or </s>, as the context says."""
    stop: int | None = None
    """The token with which a published model ends a text; None: there is none."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.vocab_size:,} tokens>"

    @abstractmethod
    def encode_lines(self, block: bytes) -> Ids:
        """Return the ids of a block of lines (clean UTF-8), each line ended by `eos`, the last one too."""

    @abstractmethod
    def encode_line(self, line: bytes) -> list[int]:
        """Return the ids of one line without its end: the slow, obvious reference for `encode_lines`."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; `eos` gives a line end, `bos` nothing. Exact where the tokenizer is lossless."""

    @abstractmethod
    def token(self, token_id: int) -> str:
        """Return one token as text for people to read; special tokens by name."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the JSON object from which `from_json` makes the tokenizer again."""

    # These methods have a default that serves every tokenizer; some tokenizers override it.

    def encode_text(self, block: bytes) -> Ids:
        """Return the ids of lines that are one text, for models whose context flows across lines.

        By default those of `encode_lines`; a published tokenizer may have tokens that reach over a line end.
        """
        return self.encode_lines(block)

    def stable_ids(self, prompt: str) -> tuple[list[int], bytes]:
        """Return the ids that a prompt keeps whatever text follows it, and the bytes of the prompt after them.

        By default all of its ids, which is right for tokens that do not depend on later text, such as characters.
        """
        return self.encode(prompt).tolist(), b""

    def settled(self, prompt: str) -> tuple[list[int], bytes]:
        """Do what `stable_ids` does, under its earlier name."""
        return self.stable_ids(prompt)

    def pieces(self) -> list[bytes] | None:
        """Return the bytes of each id, b"" for a special one; None if they depend on the ids around it."""
        return None

    def with_words(self, words: Iterable[bytes]) -> Self:
        """Return a copy of this tokenizer with more words after its own; an error unless its tokens are words."""
        raise TokenizerError(f"words can be added to word tokens, not to {self.name} tokens")

    @property
    def keeps_spaces(self) -> bool:
        """True if decoding gives back white space as it was."""
        return self.lossless

    # The methods below are the same for all tokenizers.

    @cached_property
    def spelling(self) -> Spelling | None:
        """The bytes of every token, and which tokens begin a text; None if `pieces` returns None."""
        pieces = self.pieces()
        return None if pieces is None else Spelling(pieces, joins=self.splitting is None)

    @cached_property
    def words(self) -> list[str]:
        """The words in the order of their ids, for a tokenizer of words; special tokens are none."""
        if self.splitting is None:
            raise TokenizerError(f"{self.name} tokens are no words: token(i) is the text of one")
        return decoded(self.spellings)

    def encode(self, text: str) -> Ids:
        """Return the ids of a text; line ends inside it are `eos`, and none is added at its end."""
        ids = self.encode_lines(utf8(text))
        return ids if text.endswith("\n") else ids[:-1]

    @property
    def id_dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return narrowest(self.vocab_size)

    def continuation(self, before: Sequence[int], new: Sequence[int]) -> str:
        """Return the text that the ids `new` add after the ids `before`."""
        nearby = list(before[-_NEARBY:])
        return self.decode([*nearby, *new])[len(self.decode(nearby)) :]

    def special(self, token_id: int) -> str | None:
        """Return the name of a special token; None for any other."""
        if token_id == self.bos:
            return "<s>"
        if token_id == self.eos:
            return "</s>"
        return "<unk>" if token_id == self.unk else None


def narrowest(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the narrowest type that holds every id of a vocabulary of this size."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def utf8(text: str) -> bytes:
    """Return the UTF-8 bytes of a text; refuse a lone surrogate (half a character), which a string can hold."""
    given: Any = text
    if not isinstance(given, str):
        hint = ": decode them first" if isinstance(given, (bytes, bytearray)) else ""
        raise TokenizerError(f"expected one text (str), found {type(given).__name__}{hint}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"character {error.start + 1} is a lone surrogate, which usually comes from bytes that are not UTF-8"
        ) from None


def decoded(words: list[bytes]) -> list[str]:
    """Decode words all at once: none has a line end in it, and a call per word takes several times as long."""
    return b"\n".join(words).decode().split("\n") if words else []


def lines_of(block: bytes) -> list[bytes]:
    """Return the lines of a block, without their ends; LF is the only line end."""
    return block.removesuffix(b"\n").split(b"\n")


def line_bounds(ids: NDArray[np.integer], eos: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index at which each line of ids begins, and one past its end; every line ends in `eos`."""
    ends = np.flatnonzero(ids == eos) + 1
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)], ends


def encode_lines_slowly(tokenizer: Tokenizer, block: bytes) -> Ids:
    """Return the ids of a block, encoded line by line: the reference for `tokenizer.encode_lines`."""
    ids: list[int] = []
    for line in lines_of(block):
        ids.extend(tokenizer.encode_line(line))
        ids.append(tokenizer.eos)
    return np.asarray(ids, dtype=np.uint32)


def encode_in_parallel(tokenizer: Tokenizer, block: bytes, *, as_text: bool = False) -> Ids:
    """Return the same ids as `tokenizer.encode_lines` gives, but each core encodes some lines of a long block.

    `as_text`: as `encode_text` gives, where that is something else.
    """
    if as_text and type(tokenizer).encode_text is not Tokenizer.encode_text:
        return tokenizer.encode_text(block)
    parts = cut_lines(block)
    if len(parts) == 1:
        return tokenizer.encode_lines(block)
    return np.concatenate(at_once(tokenizer.encode_lines, parts))


def cut_lines(block: bytes) -> list[bytes]:
    """Cut a block into parts of whole lines: one for each core, fewer if it is short."""
    parts = min(cores(), len(block) // _WORTH_A_THREAD)
    edges = {0, len(block)} | {block.find(b"\n", i * len(block) // parts) + 1 for i in range(1, parts)}
    return [block[first:last] for first, last in pairwise(sorted(edges))] or [block]
