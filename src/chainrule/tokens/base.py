"""What a tokenizer is: text to ids and back.

Special tokens exist only as ids: <s> (`bos`) starts every sequence and is never predicted, </s> (`eos`) is the
end of a line, <unk> (`unk`) stands for what the vocabulary lacks. No text becomes a special token: the letters
"<s>" in a corpus are text like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import TokenizerError
from chainrule.parallel import cores

Ids = NDArray[np.uint32]

_WORTH_A_THREAD = 1 << 17  # bytes
_NEARBY = 8  # ids before a place that can change how what follows is spelled: the bytes of a character, a space


class Tokenizer(ABC):
    """Text to ids and back."""

    kind: ClassVar[str]
    lossless: ClassVar[bool]
    """Whether decoding gives back the text exactly, unless something in it is <unk>."""
    name: str
    """What it is called on the command line."""
    vocab_size: int
    """How many ids there are, special ones included."""
    bos: int
    eos: int
    unk: int | None
    """None where every text can be spelled: bytes and byte-level BPE."""

    @abstractmethod
    def encode_lines(self, block: bytes) -> Ids:
        """The ids of a block of lines (clean UTF-8), each line ended by `eos`, the last one too."""

    @abstractmethod
    def encode_line(self, line: bytes) -> list[int]:
        """The ids of one line without its end: the slow, obvious reference for `encode_lines`."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; `eos` is a line end, `bos` nothing. Exact where the tokenizer loses nothing."""

    @abstractmethod
    def token(self, token_id: int) -> str:
        """One token for people to read."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs to make it again."""

    # What follows is the same for all; no tokenizer overrides it.

    def encode(self, text: str) -> Ids:
        """The ids of a text; line ends inside it are `eos`, and none is added at its end."""
        ids = self.encode_lines(utf8(text))
        return ids if text.endswith("\n") else ids[:-1]

    @property
    def id_dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return narrowest(self.vocab_size)

    def continuation(self, before: Sequence[int], new: Sequence[int]) -> str:
        """The text that `new` ids add behind those before."""
        nearby = list(before[-_NEARBY:])
        return self.decode([*nearby, *new])[len(self.decode(nearby)) :]

    def special(self, token_id: int) -> str | None:
        """The name of a special token; None for any other."""
        if token_id == self.bos:
            return "<s>"
        if token_id == self.eos:
            return "</s>"
        return "<unk>" if token_id == self.unk else None


def narrowest(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The type that holds the ids of so large a vocabulary."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def utf8(text: str) -> bytes:
    """The bytes of a text; half a character, which Python's strings can hold, is not text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        place = f"character {error.start + 1} is half a character"
        raise TokenizerError(f"this is not text: {place}, as bytes that are not UTF-8 become") from None


def lines_of(block: bytes) -> list[bytes]:
    """The lines of a block, without their ends; LF is the only line end."""
    return block.removesuffix(b"\n").split(b"\n")


def line_bounds(ids: NDArray[np.integer], eos: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the lines of a text begin, and one past their ends; each ends in `eos`."""
    ends = np.flatnonzero(ids == eos) + 1
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)], ends


def encode_lines_slowly(tokenizer: Tokenizer, block: bytes) -> Ids:
    """What `encode_lines` must equal: line by line."""
    ids: list[int] = []
    for line in lines_of(block):
        ids.extend(tokenizer.encode_line(line))
        ids.append(tokenizer.eos)
    return np.asarray(ids, dtype=np.uint32)


def encode_in_parallel(tokenizer: Tokenizer, block: bytes) -> Ids:
    """What `encode_lines` gives; of a long text, each core encodes some lines."""
    parts = cut_lines(block)
    if len(parts) == 1:
        return tokenizer.encode_lines(block)
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate(list(pool.map(tokenizer.encode_lines, parts)))


def cut_lines(block: bytes) -> list[bytes]:
    """The block in parts of whole lines: one for each core, fewer if it is short."""
    parts = min(cores(), len(block) // _WORTH_A_THREAD)
    edges = {0, len(block)} | {block.find(b"\n", i * len(block) // parts) + 1 for i in range(1, parts)}
    return [block[first:last] for first, last in pairwise(sorted(edges))] or [block]
