"""`PublishedTokenizer`: the tokenizer of a published model, with the ids that its makers gave the tokens.

It is defined by a tokenizer.json of the `tokenizers` library, and encodes a text as that library does: a line end
is a token of the vocabulary like any other, and a token may reach over several of them. Where lines are read one
by one, each is encoded by itself and ended by the token of a line end, which is `eos` here.

A published model gives every one of its tokens a probability. So <s>, which is never predicted, is an id of its own
after all others. Such a model first reads `start`, the token with which its makers began a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from chainrule.errors import TokenizerError
from chainrule.tokens.base import Ids, Tokenizer, utf8
from chainrule.tokens.subwords.library import character_bytes, encode_batch, library_tokenizer
from chainrule.tokens.subwords.tokenizer import readable


class PublishedTokenizer(Tokenizer):
    """Ids are those of a published model; <s> follows them."""

    kind: ClassVar[str] = "published"
    lossless: ClassVar[bool] = True
    name = "published"
    start: int
    mask: int | None
    """The token that stands for a hidden one in the vocabulary of a masked model; None: it has none."""
    before: int | None
    """The token before a source in the vocabulary of an encoder-decoder; None: there is none."""

    def __init__(
        self,
        definition: str,
        *,
        size: int | None = None,
        start: int,
        stop: int | None = None,
        mask: int | None = None,
        before: int | None = None,
        closes: bool = False,
    ) -> None:
        """`size` is the number of ids of the model, if that is more than the tokenizer has; `stop` ends a text.

        `closes`: `stop` also ends a line, as in models of single sentences; otherwise the token of a line end does.
        """
        self.definition = definition
        self.reference = library_tokenizer(definition)
        self.reference.no_padding()
        self.reference.no_truncation()
        self.reference.encode_special_tokens = True  # as text: no text becomes a special token
        known = max(self.reference.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.size = max(known, size or 0)
        for name, token in (("start", start), ("stop", stop), ("mask", mask), ("before", before)):
            if token is not None and not 0 <= token < self.size:
                raise TokenizerError(f"the token {name}={token} should be below {self.size}")
        self.start, self.stop, self.mask, self.before, self.closes = start, stop, mask, before, closes
        self.bos, self.vocab_size = self.size, self.size + 1
        model = json.loads(definition)["model"]
        unk = model.get("unk_token")
        self.unk = None if unk is None or model.get("byte_fallback") else self.reference.token_to_id(unk)
        ends = [] if closes else self.reference.encode("\n", add_special_tokens=False).ids[-1:]
        end = ends[0] if ends and self.reference.decode(ends) == "\n" else stop
        if end is None:
            raise TokenizerError("the vocabulary has no token for a line end, nor one that ends a text")
        self.eos = end

    @cached_property
    def is_byte_level(self) -> bool:
        """True if tokens are spelled in the characters that stand for bytes."""
        decoder = json.loads(self.definition).get("decoder") or {}
        steps = decoder.get("decoders", [decoder])
        return any(step.get("type") == "ByteLevel" for step in steps)

    def encode(self, text: str) -> Ids:
        """Return the ids of a text as a whole, line ends included; none is added at its end."""
        utf8(text)  # refuses half a character
        return np.asarray(self.reference.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def encode_text(self, block: bytes) -> Ids:
        return self.encode(block.decode() if block.endswith(b"\n") else block.decode() + "\n")

    def encode_lines(self, block: bytes) -> Ids:
        return encode_batch(self.reference, block, self.eos)

    def encode_line(self, line: bytes) -> list[int]:
        ids: list[int] = self.reference.encode(line.decode(), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self.reference.decode([i for i in map(int, ids) if i != self.bos], skip_special_tokens=True)
        return text

    def token(self, token_id: int) -> str:
        if special := self.special(token_id):
            return special
        piece = self.reference.id_to_token(token_id)
        if piece is None:
            return f"<{token_id}>"  # a row of the table that no token has
        spelled = self._bytes(piece) if self.is_byte_level else None
        return piece if spelled is None else readable(spelled)

    def pieces(self) -> list[bytes] | None:
        if not self.is_byte_level:
            return None  # the first token of a text is spelled without its space
        added = self.reference.get_added_tokens_decoder()
        names = [None if i in added else self.reference.id_to_token(i) for i in range(self.vocab_size)]
        spelled = [b"" if name is None else self._bytes(name) or b"" for name in names]
        return [b"" if i in (self.eos, self.unk) else piece for i, piece in enumerate(spelled)]

    @staticmethod
    def _bytes(piece: str) -> bytes | None:
        """Return the bytes of a piece that is spelled in byte characters; None for any other piece."""
        byte_of = character_bytes()
        return bytes(map(byte_of.__getitem__, piece)) if byte_of.keys() >= set(piece) else None

    def to_json(self) -> dict[str, Any]:
        library = {"tokenizers": json.loads(self.definition)}
        described = {"kind": self.kind, "size": self.size, "start": self.start, "stop": self.stop}
        # decoders have no use for these, and leave them out
        more = {"mask": self.mask, "before": self.before, "closes": self.closes or None}
        return {**described, **{name: value for name, value in more.items() if value is not None}, **library}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PublishedTokenizer:
        definition = json.dumps(data["tokenizers"], ensure_ascii=False)
        more = {name: data[name] for name in ("mask", "before", "closes") if name in data}
        return cls(definition, size=data["size"], start=data["start"], stop=data["stop"], **more)
