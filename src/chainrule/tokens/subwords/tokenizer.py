"""Subwords as tokens: byte-level BPE, WordPiece and Unigram, learned and encoded by the `tokenizers` library.

All three work on bytes, spelled as the 256 visible characters GPT-2 chose for them. So every text can be spelled,
spaces belong to the tokens, and decoding gives back the text exactly; WordPiece alone says <unk>, for a "word" of
more than 100 bytes. Lines are encoded one by one: no token reaches over a line end. Very long pieces and lines are
cut (see sections.py).

BPE has a second, much faster encoder (see fast_encoder.py), used where it proves to give the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from chainrule.errors import TokenizerError
from chainrule.system.progress import SILENT, Progress
from chainrule.text.batches import cut_at_lines
from chainrule.tokens.base import Ids, Tokenizer, utf8
from chainrule.tokens.subwords.library import (
    INSIDE,
    UNKNOWN_PIECE,
    Algorithm,
    character_bytes,
    check_definition,
    encode_batch,
    learn,
    library_tokenizer,
    section_lists,
    spans_of,
)
from chainrule.tokens.subwords.sections import (
    LONGEST_PIECE,
    LONGEST_SECTION,
    SHORTEST_BOUND,
    lines_to_cut,
    sections,
    unstable_end,
)
from chainrule.tokens.vocabulary import Limit

if TYPE_CHECKING:
    from chainrule.tokens.subwords.fast_encoder import FastEncoder

DEFAULT_VOCAB_SIZE = 8192
_BATCH = 4 << 20  # bytes of lines and sections that are encoded at once


class SubwordTokenizer(Tokenizer):
    """Ids are those of the library's tokenizer, followed by <s> and </s>."""

    kind: ClassVar[str] = "subword"
    lossless: ClassVar[bool] = True

    def __init__(self, algorithm: Algorithm, definition: str, longest_piece: int | None = LONGEST_PIECE) -> None:
        """`definition` is the library's own tokenizer.json; it defines no special tokens: no text becomes one.

        `longest_piece` is the most characters of a piece, or None for tokenizers that cut none.
        """
        self.algorithm = self.name = algorithm
        self.definition, self.longest_piece = definition, longest_piece
        self.reference = library_tokenizer(definition)
        check_definition(json.loads(definition), self.reference, algorithm)
        size = self.reference.get_vocab_size()
        self.bos, self.eos, self.vocab_size = size, size + 1, size + 2
        self.unk = self.reference.token_to_id(UNKNOWN_PIECE)

    @classmethod
    def train(
        cls, blocks: Iterator[bytes], algorithm: Algorithm, limit: Limit, progress: Progress = SILENT
    ) -> SubwordTokenizer:
        """Learn a vocabulary of `limit.top` pieces from the text, the 256 bytes among them."""
        size = vocabulary_size(algorithm, limit)
        library = learn(section_lists(blocks), algorithm, size, max(2, limit.min_count), progress)
        return cls(algorithm, library.to_str())

    @cached_property
    def _piece_bytes(self) -> list[bytes]:
        """The bytes each id stands for."""
        pieces: list[str] = [self.reference.id_to_token(i) or "" for i in range(self.vocab_size - 2)]
        if self.algorithm == "wordpiece":
            pieces = [piece.removeprefix(INSIDE) for piece in pieces]
        byte_of = character_bytes()
        spelled = [b"<unk>" if p == UNKNOWN_PIECE else bytes(byte_of[c] for c in p) for p in pieces]
        return [*spelled, b"", b"\n"]

    @cached_property
    def _fast(self) -> FastEncoder | None:
        from chainrule.tokens.subwords.fast_encoder import fast_encoder

        return fast_encoder(self.definition, self.eos, self.encode_lines_by_library)

    def encode_lines(self, block: bytes) -> Ids:
        pieces: list[bytes] = []
        added: list[int] = []  # the numbers of line ends after sections, which are encoded as if they were lines
        position = lines = 0
        for start, end in lines_to_cut(block, self.longest_piece):
            parts = self.sections(block[start:end])
            lines += block.count(b"\n", position, start)
            added += range(lines, lines + len(parts) - 1)
            lines += len(parts) - 1
            pieces += [block[position:start], "\n".join(parts).encode()]
            position = end
        if not added:
            return self._encode_whole_lines(block)
        divided = b"".join([*pieces, block[position:]])
        # as many lines at once as is fast and does not take much memory
        ids = np.concatenate([self._encode_whole_lines(some) for some in cut_at_lines(divided, _BATCH)])
        return np.delete(ids, np.flatnonzero(ids == self.eos)[added])

    def merges(self) -> list[list[str]]:
        """Return the pairs of pieces that BPE merges, the first learned first."""
        pairs = json.loads(self.definition)["model"]["merges"]
        return [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]

    def sections(self, line: bytes) -> list[str]:
        """Return the sections of a line, each of which is encoded by itself; most lines are one."""
        return sections(line.decode(), self.longest_piece, spans_of)

    def _encode_whole_lines(self, block: bytes) -> Ids:
        """Return the ids of a block whose lines need not be cut, by the fastest encoder."""
        if self.algorithm == "bpe" and len(block) > 1 << 16 and self._fast is not None:
            ids = self._fast.encode_lines(block)
            if ids is not None:
                return ids
        return self.encode_lines_by_library(block)

    def encode_lines_by_library(self, block: bytes) -> Ids:
        """Return the ids of a block of lines, from the `tokenizers` library: the reference for the fast encoder."""
        return encode_batch(self.reference, block, self.eos)

    def encode_line(self, line: bytes) -> list[int]:
        encode = self.reference.encode
        return [i for part in self.sections(line) for i in encode(part, add_special_tokens=False).ids]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._piece_bytes[int(i)] for i in ids).decode(errors="replace")

    def token(self, token_id: int) -> str:
        if special := self.special(token_id):
            return special
        text = readable(self._piece_bytes[token_id])
        piece = self.reference.id_to_token(token_id) or ""
        return "##" + text if piece.startswith(INSIDE) else text

    def stable_ids(self, prompt: str) -> tuple[list[int], bytes]:
        """Return the ids before the last piece of the prompt's last line: no text after the prompt changes them.

        If that piece is very long, only its end is left out.
        """
        ids: list[int] = self.encode(prompt).tolist()
        text, least = utf8(prompt), len(utf8(unstable_end(prompt.rpartition("\n")[2], spans_of)))
        kept, start = len(ids), len(text)
        # as far back as needed to a token that begins where a character does, not at a later byte (10xxxxxx) of one
        while kept and (len(text) - start < least or (start < len(text) and text[start] & 0xC0 == 0x80)):
            kept -= 1
            start -= len(self._piece_bytes[ids[kept]])
        # <unk> does not spell the text that it stands for
        return (ids, b"") if self.unk in ids[kept:] else (ids[:kept], text[start:])

    def pieces(self) -> list[bytes]:
        special = {self.unk, self.bos, self.eos}
        return [b"" if i in special else piece for i, piece in enumerate(self._piece_bytes)]

    def to_json(self) -> dict[str, Any]:
        longest = {} if self.longest_piece is None else {"longest_piece": self.longest_piece}
        library = {"tokenizers": json.loads(self.definition)}
        return {"kind": self.kind, "algorithm": self.algorithm, **longest, **library}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SubwordTokenizer:
        if data["algorithm"] not in ("bpe", "wordpiece", "unigram"):
            raise TokenizerError(f"there is no algorithm {data['algorithm']!r}")
        longest = data.get("longest_piece")  # older tokenizers cut no piece
        if longest is not None and (
            type(longest) is not int or not SHORTEST_BOUND <= longest <= LONGEST_SECTION // 4
        ):
            raise TokenizerError(f"longest_piece should be a number of characters, not {longest!r}")
        return cls(data["algorithm"], json.dumps(data["tokenizers"], ensure_ascii=False), longest)


def vocabulary_size(algorithm: Algorithm, limit: Limit) -> int:
    """Return the number of pieces to learn, the 256 bytes among them; refuse a limit that is too small."""
    if limit.percent is not None:
        raise TokenizerError("a share of the words cannot bound a subword vocabulary: give a number")
    size = limit.top or DEFAULT_VOCAB_SIZE
    smallest = {"bpe": 256, "wordpiece": 513, "unigram": 257}[algorithm]
    if size < smallest:
        raise TokenizerError(f"{algorithm} needs a vocabulary of at least {smallest}: it holds every byte")
    return size


def readable(piece: bytes) -> str:
    """Return a piece for people to read: text where its bytes are whole characters, else the value of each byte."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in piece)
