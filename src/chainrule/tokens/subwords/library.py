"""The `tokenizers` library: its byte-level pieces, how it learns, and which of its definitions are ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from chainrule.errors import TokenizerError
from chainrule.system.progress import Progress
from chainrule.system.signals import interruptible
from chainrule.tokens.base import Ids, lines_of
from chainrule.tokens.subwords.sections import LONGEST_PIECE, lines_to_cut, sections

if TYPE_CHECKING:
    import tokenizers

Algorithm: TypeAlias = Literal["bpe", "wordpiece", "unigram"]

UNKNOWN_PIECE = "<unk> "  # holds a space, which byte-level text never does: no text is mistaken for it
INSIDE = "## "  # before a WordPiece piece inside a word; holds a space for the same reason
LONGEST_WORD = 100
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
        "unk_token": UNKNOWN_PIECE,
        "continuing_subword_prefix": INSIDE,
        "max_input_chars_per_word": LONGEST_WORD,
    },
    "unigram": {"type": "Unigram", "byte_fallback": False},
}
"""The options of our models in a definition; one that a definition leaves out has this value in the library."""


@cache
def byte_characters() -> dict[int, str]:
    """Return the visible character of each byte: its own if that is visible, else the next from 256 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


@cache
def character_bytes() -> dict[str, int]:
    """Return the byte that each of the visible characters stands for."""
    return {character: byte for byte, character in byte_characters().items()}


def byte_level() -> Any:
    """Return the library's splitter of text into words with their leading space, in byte characters."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def library_tokenizer(definition: str) -> tokenizers.Tokenizer:
    """Make the library's tokenizer of a tokenizer.json."""
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(definition)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise TokenizerError(f"the tokenizers library cannot read this tokenizer: {error}") from error


def encode_batch(library: tokenizers.Tokenizer, block: bytes, eos: int) -> Ids:
    """Return the ids of a block of lines, each line ended by `eos`, as the library encodes them."""
    ids: list[int] = []
    for encoding in library.encode_batch_fast(
        block.removesuffix(b"\n").decode().split("\n"), add_special_tokens=False
    ):
        ids += encoding.ids
        ids.append(eos)
    return np.asarray(ids, dtype=np.uint32)


def section_lists(blocks: Iterable[bytes]) -> Iterator[list[str]]:
    """Yield the lines of each block, or their sections where a line or a piece of it is too long."""
    for block in blocks:
        lines = [line.decode() for line in lines_of(block)]
        if lines_to_cut(block, LONGEST_PIECE):
            lines = [section for line in lines for section in sections(line, LONGEST_PIECE, spans_of)]
        yield lines


def spans_of(text: str) -> list[tuple[int, int]]:
    """Return the pieces of a text, as the library splits it."""
    return [span for _, span in byte_level().pre_tokenize_str(text)]


def learn(
    lines: Iterator[list[str]], algorithm: Algorithm, size: int, min_count: int, progress: Progress
) -> tokenizers.Tokenizer:
    """Return the library's tokenizer, learned from lists of lines, with a vocabulary of `size` pieces."""
    from tokenizers import Tokenizer, decoders, models, trainers

    alphabet = sorted(byte_characters().values())
    trainer: Any
    options: dict[str, Any] = {"vocab_size": size, "initial_alphabet": alphabet, "show_progress": False}
    if algorithm == "bpe":
        library = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(min_frequency=min_count, **options)
    elif algorithm == "wordpiece":
        library = Tokenizer(models.WordPiece(unk_token=UNKNOWN_PIECE))
        # named first, so that every byte can follow every other, seen or not, and ids are the same in every run
        first = [UNKNOWN_PIECE, *(INSIDE + character for character in alphabet)]
        trainer = trainers.WordPieceTrainer(
            min_frequency=min_count, special_tokens=first, continuing_subword_prefix=INSIDE, **options
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
            unk_token=UNKNOWN_PIECE,
            max_input_chars_per_word=LONGEST_WORD,
            continuing_subword_prefix=INSIDE,
        )
    elif algorithm == "unigram":
        model = models.Unigram(_in_order(json.loads(library.to_str())["model"]["vocab"]))
    library = Tokenizer(model)  # a new one, without the special tokens of training
    library.pre_tokenizer = byte_level()
    library.decoder = decoders.ByteLevel()
    return library


def _in_order(vocabulary: list[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Sort pieces by score, and remove what differs from run to run: last digits, scores of unseen bytes."""
    if any(score is None for _, score in vocabulary):
        raise TokenizerError("unigram cannot be learned: there are no words in the text")
    scores = {piece: round(score, 6) for piece, score in vocabulary if score is not None}
    lowest = min(scores.values())
    for piece, score in scores.items():
        if len(piece) == 1 and score < lowest + 0.0257:  # the library spaces up to 256 unseen bytes by 0.0001
            scores[piece] = lowest
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def check_definition(definition: dict[str, Any], library: tokenizers.Tokenizer, algorithm: Algorithm) -> None:
    """Raise an error unless a file defines byte-level pieces with ids from 0 on, and nothing else."""
    steps = ("normalizer", "post_processor", "truncation", "padding")
    vocabulary = library.get_vocab()
    characters = set(byte_characters().values())
    model = definition.get("model") or {}
    splitter = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    inside = [INSIDE + character for character in characters] if algorithm == "wordpiece" else []
    sound = (
        not definition.get("added_tokens")
        and all(definition.get(step) is None for step in steps)
        and splitter.items() <= {"use_regex": True, **(definition.get("pre_tokenizer") or {})}.items()
        and _OPTIONS[algorithm].items() <= {**_OPTIONS[algorithm], **model}.items()
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
        and all(set(p.removeprefix(INSIDE)) <= characters for p in vocabulary if p != UNKNOWN_PIECE)
        and all(character in vocabulary for character in (*characters, *inside))  # any byte can be spelled
    )
    if not sound:
        raise TokenizerError("expected byte-level pieces numbered from 0, and no special tokens or further steps")
