"""A corpus as ids in one memory-mapped file, written in parallel.

Each line's ids are followed by </s>. The file is the ids and nothing else, uint16 or uint32 by the size of the
vocabulary; `Encoded` holds the counts that belong to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import CorpusError
from chainrule.system.disk import naming
from chainrule.system.parallel import EMBEDDED, Background, Executor, in_order
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer, narrowest
from chainrule.tokens.sharded import ShardedText, encode_shards, learn_and_encode_shards
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.learning import Vocabulary, WordLearner
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.tokenizer import WordTokenizer

Note = TypeVar("Note")
UnsignedIds = NDArray[np.unsignedinteger]
_NUMBERS: Any = np.dtype("<u4")


@dataclass(frozen=True)
class Encoded:
    """The ids of a corpus, with counts and a hash of its text."""

    ids: UnsignedIds
    """Memory-mapped; one dimension, line after line, each ended by </s>."""
    lines: int
    bytes: int
    """UTF-8 bytes of the text, line ends included: the divisor of bits per byte."""
    unknown: int
    """How many tokens are <unk>."""
    fingerprint: str
    """SHA-256 of the text."""

    @property
    def tokens(self) -> int:
        """How many events there are to predict: the ids, line ends included."""
        return len(self.ids)


def encode_corpus(
    corpus: Corpus,
    tokenizer: Tokenizer,
    path: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
    *,
    as_text: bool = False,
) -> Encoded:
    """Write the ids of a corpus to `path`, and return them memory-mapped, with their counts.

    `as_text`: by `encode_text`, block by block, for a model whose context flows across lines.
    """
    if executor.is_remote and not as_text:
        check_ids_file(path, corpus)
        return _encoded(path, encode_shards(corpus, tokenizer, path, executor, progress))
    dtype: Any = np.dtype(tokenizer.id_dtype).newbyteorder("<")

    def encode(block: bytes) -> tuple[UnsignedIds, tuple[int, int]]:
        ids = tokenizer.encode_text(block) if as_text else tokenizer.encode_lines(block)
        unknown = 0 if tokenizer.unk is None else int(np.count_nonzero(ids == tokenizer.unk))
        return ids.astype(dtype, copy=False), (int(np.count_nonzero(ids == tokenizer.eos)), unknown)

    written = _write(corpus, encode, path, progress)
    lines, unknown = (sum(column) for column in zip(*written.notes, strict=True))
    return Encoded(_mapped(path, dtype), lines, written.bytes, unknown, written.fingerprint)


def learn_and_encode(
    corpus: Corpus,
    limit: Limit,
    splitting: Splitting,
    path: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
) -> tuple[WordTokenizer, Encoded]:
    """The results of `WordTokenizer.train` and `encode_corpus`, in one pass over the text instead of two.

    The file first holds the numbers that the learner's tables give to words; when the vocabulary is known, ids
    replace them.
    """
    if executor.is_remote:
        check_ids_file(path, corpus)
        words, text = learn_and_encode_shards(corpus, limit, splitting, path, executor, progress)
        return WordTokenizer(words, splitting), _encoded(path, text)
    learner = WordLearner(splitting)
    written = _write(corpus, learner.learn, path, progress)
    vocabulary = learner.vocabulary(limit)
    dtype: Any = np.dtype(narrowest(3 + vocabulary.size)).newbyteorder("<")
    with Background[list[bytes]]() as background:
        background.start(vocabulary.spell)
        _replace_numbers(path, written, vocabulary, dtype)
        tokenizer = WordTokenizer(background.result() or [], splitting)
    encoded = Encoded(
        _mapped(path, dtype), vocabulary.lines, written.bytes, vocabulary.unknown, written.fingerprint
    )
    return tokenizer, encoded


def _encoded(path: Path, text: ShardedText) -> Encoded:
    return Encoded(_mapped(path, text.dtype), text.lines, text.bytes, text.unknown, text.fingerprint)


def check_ids_file(path: Path, corpus: Corpus) -> None:
    """Refuse to write ids over the text that they are of."""
    if path.resolve() in {source.resolve() for source in corpus.paths}:
        raise CorpusError(f"{path}: the ids would overwrite the text itself")


@dataclass(frozen=True)
class _Written:
    """A file of ids: the size and the note of each block, and the bytes and hash of the text."""

    sizes: list[int]
    notes: list[Any]
    bytes: int
    fingerprint: str


def _write(
    corpus: Corpus, encode: Callable[[bytes], tuple[UnsignedIds, Note]], path: Path, progress: Progress
) -> _Written:
    """Write the ids that `encode` returns for each block to `path`, and collect the notes it returns with them."""
    digest = hashlib.sha256()
    sizes: list[int] = []
    notes: list[Note] = []
    read = 0
    check_ids_file(path, corpus)
    with (
        naming(path),
        path.open("wb") as file,
        Background[None]() as hashing,
        progress.task("encoding", corpus.size(), "B") as task,
    ):
        unended = False  # whether the previous file ended without LF, which the hash then needs: lines do not join
        for block, (ids, note) in in_order(encode, corpus.blocks()):
            hashing.start(digest.update, b"\n" + block if unended else block)
            unended = not block.endswith(b"\n")
            file.write(ids.data)
            sizes.append(len(ids))
            notes.append(note)
            read += len(block)
            task.advance(len(block))
        hashing.result()
    corpus.note_losses(progress)
    if not sizes:
        raise CorpusError(f"{corpus.name} is empty")
    return _Written(sizes, notes, read, digest.hexdigest())


def _replace_numbers(path: Path, written: _Written, vocabulary: Vocabulary, dtype: np.dtype[Any]) -> None:
    """Replace the tables' numbers by ids, in place in the file.

    Ids are no wider than numbers, so writing never overtakes reading.
    """
    ids_of = [ids.astype(dtype) for ids in vocabulary.ids]
    starts = accumulate(written.sizes, initial=0)

    def ids(block: tuple[int, int, int]) -> UnsignedIds:
        start, size, table = block
        numbers = np.fromfile(path, _NUMBERS, size, offset=start * _NUMBERS.itemsize)
        return ids_of[table].take(numbers)

    # a buffer writes all that it is given, or raises an error; without one, a write may stop half-way in silence
    with naming(path), path.open("r+b") as file:
        for _, part in in_order(ids, zip(starts, written.sizes, written.notes, strict=False)):
            file.write(part.data)
        file.truncate()


def _mapped(path: Path, dtype: np.dtype[Any]) -> UnsignedIds:
    return np.memmap(path, dtype=dtype, mode="r")
