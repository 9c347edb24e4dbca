"""SentencePiece: .model files, and the tokenizer.bin files that llama2.c makes of them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.errors import MissingExtraError, TokenizerError, importing
from chainrule.interop.vocabularies.definitions import added_token, bpe, definition_of, made, replace, steps
from chainrule.tokens.published import PublishedTokenizer

SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM, _BPE = 1, 2


@dataclass(frozen=True)
class Piece:
    """A piece of a vocabulary: its text, its score, and its type in a .model file."""

    text: str
    score: float
    type: int = _NORMAL


@dataclass(frozen=True)
class Pieces:
    """A vocabulary of SentencePiece."""

    pieces: Sequence[Piece]
    algorithm: int = _BPE
    bos: int = 1
    eos: int = 2
    charsmap: bytes = b""
    """The table of normalisations, in the library's own form."""
    adds_space: bool = True
    """True if a space is put before a text."""
    trims: bool = False
    """True if spaces at the ends are removed, and several made one."""


def sentencepiece_tokenizer(path: Path, size: int | None = None) -> PublishedTokenizer:
    """Return the tokenizer of a .model file of SentencePiece, by BPE or Unigram."""
    try:
        found = _parsed(path.read_bytes())
    except MissingExtraError:
        raise
    except Exception as error:  # protocol buffers have errors of their own
        raise TokenizerError(f"{path}: not a model of SentencePiece ({error})") from None
    if not found.pieces or found.algorithm not in (_UNIGRAM, _BPE):
        raise TokenizerError(f"{path}: expected a model of SentencePiece by BPE or Unigram")
    return _tokenizer(found, path, size)


def llama2c_tokenizer(path: Path, size: int) -> PublishedTokenizer:
    """Return the tokenizer of llama2.c's tokenizer.bin: a score, a length and the bytes of `size` tokens."""
    raw, place, pieces = path.read_bytes(), 4, []
    try:
        for number in range(size):
            score, length = struct.unpack_from("<fi", raw, place)
            text = raw[place + 8 : place + 8 + length].decode()
            kind = _CONTROL if number in (1, 2) else _UNKNOWN if number == 0 else _NORMAL
            kind = _BYTE if len(text) == 6 and text.startswith("<0x") else kind
            pieces.append(Piece(text.replace(" ", SPACE) if kind == _NORMAL else text.strip(), score, kind))
            place += 8 + length
    except (struct.error, UnicodeDecodeError):
        raise TokenizerError(f"{path}: expected {size} tokens of llama2.c, found {len(pieces)}") from None
    if place != len(raw):
        raise TokenizerError(f"{path}: more than {size} tokens of llama2.c: a tokenizer of another model")
    return _tokenizer(Pieces(pieces), path, size)


def _tokenizer(found: Pieces, path: Path, size: int | None) -> PublishedTokenizer:
    """Return the same vocabulary for the `tokenizers` library."""
    names = [piece.text for piece in found.pieces]
    has_bytes = any(piece.type == _BYTE for piece in found.pieces)
    unknown = next((i for i, piece in enumerate(found.pieces) if piece.type == _UNKNOWN), None)
    if found.algorithm == _BPE:
        options: dict[str, Any] = {"byte_fallback": has_bytes, "fuse_unk": True}
        options["unk_token"] = None if unknown is None else names[unknown]
        model = bpe({name: i for i, name in enumerate(names)}, _merges(found.pieces), **options)
    else:
        vocabulary = [[piece.text, piece.score] for piece in found.pieces]
        model = {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": has_bytes}
    control = [
        added_token(i, piece.text, special=piece.type != _USER)
        for i, piece in enumerate(found.pieces)
        if piece.type in (_UNKNOWN, _CONTROL, _USER)
    ]
    definition = definition_of(model, normalizer=_normalizer(found), decoder=_decoder(found), added=control)
    start, stop = (i if 0 <= i < len(names) else None for i in (found.bos, found.eos))
    if start is None and stop is None:
        raise TokenizerError(f"{path}: it has neither <s> nor </s>")
    return made(definition, path, size=size or len(names), start=stop if start is None else start, stop=stop)


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Return every way to make a piece of two others, in the order of merging: the highest score first."""
    scores = {piece.text: piece.score for piece in pieces if piece.type == _NORMAL}
    order = {piece.text: i for i, piece in enumerate(pieces)}
    found = [
        (-score, order[text], order[text[:cut]], order[text[cut:]], (text[:cut], text[cut:]))
        for text, score in scores.items()
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
    return [entry[-1] for entry in sorted(found)]


def _normalizer(found: Pieces) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if found.charsmap:
        parts.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(found.charsmap).decode()})
    if found.trims:
        parts += [{"type": "Strip", "strip_left": True, "strip_right": True}, replace({"Regex": " {2,}"}, " ")]
    if found.adds_space:
        parts.append({"type": "Prepend", "prepend": SPACE})
    parts.append(replace({"String": " "}, SPACE))
    return steps("normalizers", *parts)


def _decoder(found: Pieces) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [replace({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if found.adds_space:
        parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return steps("decoders", *parts)


def _parsed(raw: bytes) -> Pieces:
    """Read a .model file, which is a message of protocol buffers, by SentencePiece's own description of it."""
    with importing("sentencepiece", "interop", "a model of SentencePiece"):
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    model = ModelProto.FromString(raw)
    trained, normalised = model.trainer_spec, model.normalizer_spec
    return Pieces(
        [Piece(piece.piece, piece.score, piece.type) for piece in model.pieces],
        algorithm=trained.model_type,
        bos=trained.bos_id,
        eos=trained.eos_id,
        charsmap=normalised.precompiled_charsmap,
        adds_space=normalised.add_dummy_prefix,
        trims=normalised.remove_extra_whitespaces,
    )
