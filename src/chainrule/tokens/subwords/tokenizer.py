"""Subwords as tokens: byte-level BPE, WordPiece and Unigram, learned and encoded by the `tokenizers` library.

All three work on bytes, spelled as the 256 visible characters GPT-2 chose for them. So every text can be spelled,
spaces belong to the tokens, and decoding gives back the text exactly; WordPiece alone says <unk>, for a "word" of
more than 100 bytes. Lines are encoded one by one: no token reaches over a line end. Very long pieces and lines are
cut (see sections.py).

BPE has a second, much faster encoder (see fast_encoder.py), used where it proves to give the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from chainrule.errors import TokenizerError
from chainrule.progress import SILENT, Progress
from chainrule.signals import interruptible
from chainrule.tokens.base import Ids, Tokenizer, lines_of
from chainrule.tokens.subwords.sections import (
    LONGEST_PIECE,
    LONGEST_SECTION,
    SHORTEST_BOUND,
    lines_to_cut,
    sections,
)
from chainrule.tokens.vocabulary import Limit

if TYPE_CHECKING:
    import tokenizers

    from chainrule.tokens.subwords.fast_encoder import FastEncoder

Algorithm: TypeAlias = Literal["bpe", "wordpiece", "unigram"]

DEFAULT_VOCAB_SIZE = 8192
_UNKNOWN_PIECE = "<unk> "  # holds a space, which byte-level text never does: no text is mistaken for it
_INSIDE = "## "  # before a WordPiece piece inside a word; holds a space for the same reason
_LONGEST_WORD = 100
_BATCH = 4 << 20  # bytes of sections that are encoded at once
_OPTIONS: dict[str, dict[str, Any]] = {
    "bpe": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "byte_fallback": False,
    },
    "wordpiece": {
        "type": "WordPiece",
        "unk_token": _UNKNOWN_PIECE,
        "continuing_subword_prefix": _INSIDE,
        "max_input_chars_per_word": _LONGEST_WORD,
    },
    "unigram": {"type": "Unigram", "byte_fallback": False},
}
"""What a definition says of its model, where it says anything: with other values the library does other things."""


class SubwordTokenizer(Tokenizer):
    """Ids are those of the library's tokenizer, followed by <s> and </s>."""

    kind: ClassVar[str] = "subword"
    lossless: ClassVar[bool] = True

    def __init__(self, algorithm: Algorithm, definition: str, longest_piece: int | None = LONGEST_PIECE) -> None:
        """`definition` is the library's own tokenizer.json; it defines no special tokens: no text becomes one.

        `longest_piece` is the most characters of a piece, or None for tokenizers that cut none.
        """
        import tokenizers

        self.algorithm = self.name = algorithm
        self.definition, self.longest_piece = definition, longest_piece
        try:
            self.reference = tokenizers.Tokenizer.from_str(definition)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise TokenizerError(f"the tokenizers library cannot read this tokenizer: {error}") from error
        _check_definition(json.loads(definition), self.reference, algorithm)
        size = self.reference.get_vocab_size()
        self.bos, self.eos, self.vocab_size = size, size + 1, size + 2
        self.unk = self.reference.token_to_id(_UNKNOWN_PIECE)

    @classmethod
    def train(
        cls, blocks: Iterator[bytes], algorithm: Algorithm, limit: Limit, progress: Progress = SILENT
    ) -> SubwordTokenizer:
        """Learn a vocabulary of `limit.top` pieces from the text, the 256 bytes among them."""
        if limit.percent is not None:
            raise TokenizerError("a share of the words cannot bound a subword vocabulary: give a number")
        size = limit.top or DEFAULT_VOCAB_SIZE
        smallest = {"bpe": 256, "wordpiece": 513, "unigram": 257}[algorithm]
        if size < smallest:
            raise TokenizerError(f"{algorithm} needs a vocabulary of at least {smallest}: it holds every byte")
        library = _train(section_lists(blocks), algorithm, size, max(2, limit.min_count), progress)
        return cls(algorithm, library.to_str())

    @cached_property
    def _piece_bytes(self) -> list[bytes]:
        """The bytes each id stands for."""
        pieces: list[str] = [self.reference.id_to_token(i) or "" for i in range(self.vocab_size - 2)]
        if self.algorithm == "wordpiece":
            pieces = [piece.removeprefix(_INSIDE) for piece in pieces]
        byte_of = {character: byte for byte, character in byte_characters().items()}
        spelled = [b"<unk>" if p == _UNKNOWN_PIECE else bytes(byte_of[c] for c in p) for p in pieces]
        return [*spelled, b"", b"\n"]

    @cached_property
    def _fast(self) -> FastEncoder | None:
        from chainrule.tokens.subwords.fast_encoder import fast_encoder

        return fast_encoder(self.definition, self.eos, self.encode_lines_by_library)

    def encode_lines(self, block: bytes) -> Ids:
        lines = lines_to_cut(block, self.longest_piece)
        cut = [(start, end, self._sections(block[start:end])) for start, end in lines]
        cut = [(start, end, parts) for start, end, parts in cut if len(parts) > 1]
        return self._encode_by_sections(block, cut) if cut else self._encode_whole_lines(block)

    def _sections(self, line: bytes) -> list[str]:
        return sections(line.decode(), self.longest_piece, _spans)

    def _encode_whole_lines(self, block: bytes) -> Ids:
        """The ids of a block whose lines need not be cut, by the fastest encoder."""
        if self.algorithm == "bpe" and len(block) > 1 << 16 and self._fast is not None:
            ids = self._fast.encode_lines(block)
            if ids is not None:
                return ids
        return self.encode_lines_by_library(block)

    def _encode_by_sections(self, block: bytes, cut: list[tuple[int, int, list[str]]]) -> Ids:
        """The ids of a block in which some lines, from a start to an end, are cut into sections.

        A section is encoded as if it were a line; the line ends that this adds are then removed.
        """
        batch, position = _Batch(self._encode_whole_lines, self.eos), 0
        for start, end, parts in cut:
            if start > position:
                batch.add(block[position : start - 1])
            for part in parts[:-1]:
                batch.add(part.encode(), ends_line=False)
            batch.add(parts[-1].encode())
            position = end + 1
        if position < len(block):
            batch.add(block[position:].removesuffix(b"\n"))
        return batch.ids()

    def encode_lines_by_library(self, block: bytes) -> Ids:
        """The ids of a block of lines, from the `tokenizers` library: the reference for the fast encoder."""
        encodings = self.reference.encode_batch_fast(
            block.removesuffix(b"\n").decode().split("\n"), add_special_tokens=False
        )
        ids: list[int] = []
        for encoding in encodings:
            ids += encoding.ids
            ids.append(self.eos)
        return np.asarray(ids, dtype=np.uint32)

    def encode_line(self, line: bytes) -> list[int]:
        encode = self.reference.encode
        return [i for part in self._sections(line) for i in encode(part, add_special_tokens=False).ids]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._piece_bytes[int(i)] for i in ids).decode(errors="replace")

    def token(self, token_id: int) -> str:
        if special := self.special(token_id):
            return special
        text = readable(self._piece_bytes[token_id])
        piece = self.reference.id_to_token(token_id) or ""
        return "##" + text if piece.startswith(_INSIDE) else text

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


class _Batch:
    """Texts that are encoded together, as many at once as is fast and does not take much memory."""

    def __init__(self, encode: Callable[[bytes], Ids], eos: int) -> None:
        self._encode, self._eos = encode, eos
        self._found: list[Ids] = []
        self._clear()

    def _clear(self) -> None:
        self._texts: list[bytes] = []
        self._added: list[int] = []  # the indices of the line ends that the text does not have
        self._size = self._ends = 0

    def add(self, text: bytes, *, ends_line: bool = True) -> None:
        """Add a line, or several, or a section after which no line ends."""
        self._texts.append(text)
        self._size += len(text)
        self._ends += text.count(b"\n") + 1
        if not ends_line:
            self._added.append(self._ends - 1)
        if self._size > _BATCH:
            self._flush()

    def _flush(self) -> None:
        ids = self._encode(b"\n".join(self._texts) + b"\n")
        self._found.append(np.delete(ids, np.flatnonzero(ids == self._eos)[self._added]))
        self._clear()

    def ids(self) -> Ids:
        """The ids of all texts."""
        if self._texts:
            self._flush()
        return np.concatenate(self._found)


def _check_definition(definition: dict[str, Any], library: tokenizers.Tokenizer, algorithm: Algorithm) -> None:
    """Raise an error unless a file defines byte-level pieces with ids from 0 on, and nothing else."""
    steps = ("normalizer", "post_processor", "truncation", "padding")
    vocabulary = library.get_vocab()
    characters = set(byte_characters().values())
    model = definition.get("model") or {}
    splitter = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    inside = [_INSIDE + character for character in characters] if algorithm == "wordpiece" else []
    sound = (
        not definition.get("added_tokens")
        and all(definition.get(step) is None for step in steps)
        and splitter.items() <= {"use_regex": True, **(definition.get("pre_tokenizer") or {})}.items()
        and _OPTIONS[algorithm].items() <= {**_OPTIONS[algorithm], **model}.items()
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
        and all(set(p.removeprefix(_INSIDE)) <= characters for p in vocabulary if p != _UNKNOWN_PIECE)
        and all(character in vocabulary for character in (*characters, *inside))  # any byte can be spelled
    )
    if not sound:
        raise TokenizerError("expected byte-level pieces numbered from 0, and no special tokens or further steps")


def readable(piece: bytes) -> str:
    """A piece for people to read: text where its bytes are whole characters, else the value of each byte."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in piece)


@cache
def byte_characters() -> dict[int, str]:
    """The visible character that stands for each byte: its own if that is visible, else the next from 256 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


def byte_level() -> Any:
    """The library's pre-tokenizer: it splits text into words with their leading space, in byte characters."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def section_lists(blocks: Iterable[bytes]) -> Iterator[list[str]]:
    """The lines of each block, or their sections where a line or a piece of it is too long."""
    for block in blocks:
        lines = [line.decode() for line in lines_of(block)]
        if lines_to_cut(block, LONGEST_PIECE):
            lines = [section for line in lines for section in sections(line, LONGEST_PIECE, _spans)]
        yield lines


def _spans(text: str) -> list[tuple[int, int]]:
    """The pieces of a text, as the library splits it."""
    return [span for _, span in byte_level().pre_tokenize_str(text)]


def _train(
    lines: Iterator[list[str]], algorithm: Algorithm, size: int, min_count: int, progress: Progress
) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, trainers

    alphabet = sorted(byte_characters().values())
    trainer: Any
    options: dict[str, Any] = {"vocab_size": size, "initial_alphabet": alphabet, "show_progress": False}
    if algorithm == "bpe":
        library = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(min_frequency=min_count, **options)
    elif algorithm == "wordpiece":
        library = Tokenizer(models.WordPiece(unk_token=_UNKNOWN_PIECE))
        # named first, so that every byte can follow every other, seen or not, and ids are the same in every run
        first = [_UNKNOWN_PIECE, *(_INSIDE + character for character in alphabet)]
        trainer = trainers.WordPieceTrainer(
            min_frequency=min_count, special_tokens=first, continuing_subword_prefix=_INSIDE, **options
        )
    else:
        library = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(special_tokens=[], **options)
    library.pre_tokenizer = byte_level()
    with progress.task(f"learning {algorithm}"):
        interruptible(lambda: library.train_from_iterator(lines, trainer))
    model = library.model
    if algorithm == "wordpiece":
        model = models.WordPiece(
            library.get_vocab(),
            unk_token=_UNKNOWN_PIECE,
            max_input_chars_per_word=_LONGEST_WORD,
            continuing_subword_prefix=_INSIDE,
        )
    elif algorithm == "unigram":
        model = models.Unigram(_in_order(json.loads(library.to_str())["model"]["vocab"]))
    library = Tokenizer(model)  # a new one, without the special tokens of training
    library.pre_tokenizer = byte_level()
    library.decoder = decoders.ByteLevel()
    return library


def _in_order(vocabulary: list[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Pieces and scores by rank, without what differs from run to run: last digits, and scores of unseen bytes."""
    if any(score is None for _, score in vocabulary):
        raise TokenizerError("unigram cannot be learned: there are no words in the text")
    scores = {piece: round(score, 6) for piece, score in vocabulary if score is not None}
    lowest = min(scores.values())
    for piece, score in scores.items():
        if len(piece) == 1 and score < lowest + 0.0257:  # the library spaces up to 256 unseen bytes by 0.0001
            scores[piece] = lowest
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
