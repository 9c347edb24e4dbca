"""A byte-level BPE encoder many times as fast as the library's, used as long as it proves identical.

`gigatoken` reads the same merges. Before its ids are trusted for a tokenizer, it must reproduce the library's on a
text made to be difficult, and again on two samples of every block it is given; on any difference the library takes
over. (Figures: `python -m benchmarks tokens`, which with --whole compares every id.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.tokens.base import Ids

_PROOF_BYTES = 1 << 12

_DIFFICULT = (
    "don't DON'T we'll I'd he's they've I'm you're\n"
    "  two  spaces   three \t tab\ttab  \n"
    "trailing space \n\n \n"
    "1234567890 3.14 10,000 ½ ² ٣ ४\n"
    "naïve café œuvre Straße ΑΒΓ привет हिन्दी ภาษาไทย 漢字かな 한국어 עברית العربية\n"
    "e\u0301 \u200b\u200d\ufeff \u00a0nbsp\u3000wide \u2028sep \x85nel \x0bvt \x0cff \x1cfs\n"
    "🙂🏽👩‍👩‍👧 \U0001f1eb\U0001f1f7 \U00020000 \ufffd \u0000nul\x7f\n"
    "<s> </s> <unk> <|endoftext|> [UNK] <pad>\n"
    "$#!@%^&*()_+-=[]{}|;':\",./<>?`~ ... --- '' ''s 's\n"
    "snake_case CamelCase kebab-case http://a.b/c?d=e#f x==y!=z\n"
    + "a" * 300
    + "\n"
    + " " * 300
    + "x\n"
    + "ab" * 200
    + "!" * 50
).encode()


class FastEncoder:
    """gigatoken's encoder, with the `encode_lines` of our tokenizers."""

    def __init__(self, definition: str, eos: int, reference: Callable[[bytes], Ids]) -> None:
        """Make an encoder from the library's tokenizer.json; `reference` encodes lines with the library."""
        import gigatoken

        self._gigatoken = gigatoken
        self._encoder = gigatoken.Tokenizer.from_json(definition)
        self._eos = eos
        self._reference = reference
        self._disagreed = False

    def encode_lines(self, block: bytes) -> Ids | None:
        """Return the ids of a block of lines; None once the library has encoded a sample of a block differently."""
        if self._disagreed:
            return None
        middle = zlib.crc32(block) % len(block)  # anywhere, but the same position every time
        try:
            if self.agrees_on(_sample(block, 0)) and self.agrees_on(_sample(block, middle)):
                return self._encode(block)
        except Exception:  # whatever a library in beta raises, the reference takes over
            pass
        self._disagreed = True
        return None

    def agrees_on(self, block: bytes) -> bool:
        """Return True if this encoder and the library give the same ids for a block."""
        return np.array_equal(self._encode(block), self._reference(block))

    def _encode(self, block: bytes) -> Ids:
        if not block.endswith(b"\n"):
            block += b"\n"
        source = self._gigatoken.BytesSource(block, separator=b"\n")
        layout: Any = self._encoder.encode_batch(source).layout
        ids, offsets = np.asarray(layout.content.data), np.asarray(layout.offsets.data)
        # gigatoken skips empty lines, but each of them has an </s> to be predicted
        line_ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
        filled = np.diff(line_ends, prepend=-1) > 1
        ends = np.zeros(len(line_ends), dtype=np.int64)
        ends[filled] = np.diff(offsets)
        eos_places = np.cumsum(ends + 1) - 1
        out = np.full(len(ids) + len(line_ends), self._eos, dtype=np.uint32)
        is_id = np.ones(len(out), dtype=bool)
        is_id[eos_places] = False
        out[is_id] = ids
        return out


def _sample(block: bytes, start: int) -> bytes:
    """Return a sample of a block from byte `start` on, cut to whole characters; its lines need not be whole."""
    return block[start : start + _PROOF_BYTES].decode(errors="ignore").encode()


def fast_encoder(definition: str, eos: int, reference: Callable[[bytes], Ids]) -> FastEncoder | None:
    """Return the fast encoder for a BPE tokenizer; None where it is not installed or not identical."""
    try:
        encoder = FastEncoder(definition, eos, reference)
        return encoder if encoder.agrees_on(_DIFFICULT) else None
    except Exception:
        # a library in beta may refuse a tokenizer in any way it likes; the reference does not depend on it
        return None
