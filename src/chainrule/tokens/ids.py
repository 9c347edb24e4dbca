"""A corpus as ids in one memory-mapped file, written in parallel.

Each line's ids are followed by </s>. The file is the ids and nothing else, uint16 or uint32 by the size of the
vocabulary; `Encoded` holds the counts that belong to it.

In one process, the blocks of the text are encoded by threads and written in sequence. An executor whose workers are
other processes writes the same file shard by shard:

    shard   -> a file of its ids, or of numbers of its words with the words themselves      (one task for each)
    shard   -> its place in the file of all ids, with ids in place of numbers               (one task for each)

One more task reads all text in sequence, for its hash.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import CorpusError, EncodingError
from chainrule.system.disk import naming, scratch_file_at, scratch_folder
from chainrule.system.parallel import EMBEDDED, Background, Executor, in_order, worth_a_kernel
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.overlap import Hashes, LineSketch
from chainrule.text.shards import SHARD_BYTES, Shard, shards_of
from chainrule.tokens.base import Ids, Tokenizer, narrowest
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.learning import NANOSECONDS, Vocabulary, WordLearner, merged_vocabulary
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.table import SlowTable, WordTable
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
    ends: bool = True
    """True if the text has a line end at its end; the ids have one in any case."""
    sketch: Hashes | None = field(default=None, compare=False, repr=False)
    """A sample of its long lines (text/overlap.py)."""

    @property
    def tokens(self) -> int:
        """The number of tokens to predict, line ends included."""
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
    check_ids_file(path, corpus)
    dtype = _file_type(tokenizer.vocab_size)

    def encode(block: bytes) -> tuple[UnsignedIds, NDArray[np.int64]]:
        ids = tokenizer.encode_text(block) if as_text else tokenizer.encode_lines(block)
        unknown = 0 if tokenizer.unk is None else np.count_nonzero(ids == tokenizer.unk)
        return ids.astype(dtype, copy=False), np.asarray([np.count_nonzero(ids == tokenizer.eos), unknown])

    if executor.is_remote and not as_text:
        with scratch_folder(executor.folder) as folder:
            work = partial(_encode_shard, folder, encode)
            text, done = _encode_shards(corpus, work, folder, executor, progress)
            _put_together(done, [None] * len(done), dtype, folder / "ids", path, executor)
        notes = [one.note for one in done]
    else:
        text, _, notes = _write(corpus, encode, path, progress)
    lines, unknown = np.sum(notes, axis=0).tolist()
    return text.encoded(path, dtype, lines, unknown)


def learn_and_encode(
    corpus: Corpus,
    limit: Limit,
    splitting: Splitting,
    path: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
) -> tuple[WordTokenizer, Encoded]:
    """Return what `WordTokenizer.train` and `encode_corpus` return, after one pass over the text instead of two.

    The file first holds the numbers that the learner's tables give to words; when the vocabulary is known, ids
    replace them.
    """
    check_ids_file(path, corpus)
    if executor.is_remote:
        with scratch_folder(executor.folder) as folder:
            work = partial(_learn_shard, folder, splitting)
            text, done = _encode_shards(corpus, work, folder, executor, progress)
            counted = [([b"\n", *words.split(b"\n")[:-1]], counts) for words, counts in (one.note for one in done)]
            vocabulary = merged_vocabulary(counted, limit, splitting)
            dtype = _file_type(3 + vocabulary.size)
            _put_together(done, vocabulary.ids, dtype, folder / "ids", path, executor)
        words = vocabulary.spell()
    else:
        learner = WordLearner(splitting)
        text, sizes, tables = _write(corpus, learner.learn, path, progress)
        vocabulary = learner.vocabulary(limit)
        dtype = _file_type(3 + vocabulary.size)
        with Background[list[bytes]]() as background:
            background.start(vocabulary.spell)
            _replace_numbers(path, sizes, tables, vocabulary, dtype)
            words = background.result() or []
    return WordTokenizer(words, splitting), text.encoded(path, dtype, vocabulary.lines, vocabulary.unknown)


def _file_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype(narrowest(vocab_size)).newbyteorder("<")


def check_ids_file(path: Path, corpus: Corpus) -> None:
    """Raise an error if the file of ids is one of the files of the text."""
    if path.resolve() in {source.resolve() for source in corpus.paths}:
        raise CorpusError(f"{path}: the ids would overwrite the text itself")


@dataclass(frozen=True)
class _Text:
    """The size and the hash of a text, whether it has a line end at its end, and a sample of its lines."""

    bytes: int
    fingerprint: str
    ends: bool
    sketch: Hashes

    def encoded(self, path: Path, dtype: np.dtype[Any], lines: int, unknown: int) -> Encoded:
        ids = np.memmap(path, dtype=dtype, mode="r")
        return Encoded(ids, lines, self.bytes, unknown, self.fingerprint, self.ends, self.sketch)


class _Reader:
    """Reads the blocks of a text for its hash and for the sample of its lines."""

    def __init__(self) -> None:
        self.digest, self.sketch, self.read = hashlib.sha256(), LineSketch(), 0
        self.unended = False  # the previous file ended without LF, which the hash then needs: lines do not join

    def take(self, block: bytes) -> bytes:
        """Read a block; return it with the line end that is missing before it."""
        text = b"\n" + block if self.unended else block
        self.digest.update(text)
        self.sketch.update(block)
        self.unended = not block.endswith(b"\n")
        self.read += len(block)
        return text

    @property
    def text(self) -> _Text:
        return _Text(self.read, self.digest.hexdigest(), not self.unended, self.sketch.hashes)


# -- in this process --------------------------------------------------------------------------------------


def _write(
    corpus: Corpus, encode: Callable[[bytes], tuple[UnsignedIds, Note]], path: Path, progress: Progress
) -> tuple[_Text, list[int], list[Note]]:
    """Write the ids that `encode` returns for each block to `path`; return how many, and the notes."""
    reader = _Reader()
    sizes: list[int] = []
    notes: list[Note] = []
    with (
        naming(path),
        path.open("wb") as file,
        Background[bytes]() as hashing,
        progress.task("encoding", corpus.size(), "B") as task,
    ):
        for block, (ids, note) in in_order(encode, corpus.blocks()):
            hashing.start(reader.take, block)
            file.write(ids.data)
            sizes.append(len(ids))
            notes.append(note)
            task.advance(len(block))
        hashing.result()
    corpus.note_losses(progress)
    if not sizes:
        raise CorpusError(f"{corpus.name} is empty")
    return reader.text, sizes, notes


def _replace_numbers(
    path: Path, sizes: list[int], tables: list[int], vocabulary: Vocabulary, dtype: np.dtype[Any]
) -> None:
    """Replace the tables' numbers by ids, in place: ids are no wider, so writing never overtakes reading."""
    ids_of = [ids.astype(dtype) for ids in vocabulary.ids]
    starts = accumulate(sizes, initial=0)

    def ids(block: tuple[int, int, int]) -> UnsignedIds:
        start, size, table = block
        numbers = np.fromfile(path, _NUMBERS, size, offset=start * _NUMBERS.itemsize)
        return ids_of[table].take(numbers)

    # a buffer writes all that it is given, or raises an error; without one, a write may stop half-way in silence
    with naming(path), path.open("r+b") as file:
        for _, part in in_order(ids, zip(starts, sizes, tables, strict=False)):
            file.write(part.data)
        file.truncate()


# -- by the workers of an executor --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Done:
    """A shard that was encoded to a file of its own."""

    path: Path
    size: int
    """How many ids or numbers the file has."""
    note: Any
    """The lines and the unknown tokens; for a shard whose words were learned, the words and their counts."""
    losses: tuple[int, int]
    """How many bytes were replaced and how many records were skipped."""


def _encode_shard(
    folder: Path, encode: Callable[[bytes], tuple[UnsignedIds, Any]], number: int, shard: Shard
) -> _Done:
    """Write the ids that `encode` returns for each block of a shard to a file, and add up the notes it returns."""
    path, size, note = folder / f"shard-{number}", 0, np.zeros(2, np.int64)
    shard.cleaning.begin()
    with scratch_file_at(path) as file:
        for block in shard.blocks():
            ids, found = encode(block)
            file.write(ids.data)
            size += len(ids)
            note += found
    return _Done(path, size, note, (shard.cleaning.replaced, shard.cleaning.skipped))


def _learn_shard(folder: Path, splitting: Splitting, number: int, shard: Shard) -> _Done:
    """Write numbers of the words of a shard to a file, and note the words and their counts."""
    large = worth_a_kernel(shard.path.stat().st_size, NANOSECONDS)
    table = WordTable(splitting) if large else SlowTable(splitting)
    done = _encode_shard(folder, lambda block: (table.learn(block).astype(_NUMBERS, copy=False), 0), number, shard)
    words = b"".join(word + b"\n" for word in table.words()[1:])  # one object travels faster than many
    return replace(done, note=(words, table.counts()))


def _encode_shards(
    corpus: Corpus,
    work: Callable[[int, Shard], _Done],
    folder: Path,
    executor: Executor,
    progress: Progress,
) -> tuple[_Text, list[_Done]]:
    """Encode each shard to a file of its own, and read all text for its hash, which takes longest."""
    text: _Text | None = None
    in_files = corpus
    if not corpus.is_in_files:  # workers read a copy of it
        path = folder / "text"
        with scratch_file_at(path) as file:
            text = _hash(corpus.blocks(), file)
        in_files = Corpus(paths=(path,))
    pieces: list[list[Shard] | tuple[int, Shard]] = [] if text else [shards_of(in_files, None)]
    pieces += list(enumerate(shards_of(in_files, SHARD_BYTES)))

    def read_or_encode(piece: list[Shard] | tuple[int, Shard]) -> _Text | _Done:
        if isinstance(piece, list):
            return _hash(block for shard in piece for block in shard.blocks())
        return work(*piece)

    done: list[_Done] = []
    try:
        with progress.task("encoding", len(pieces), "shards") as task:
            for _, found in executor.in_order(read_or_encode, pieces):
                task.advance(1)
                if isinstance(found, _Text):
                    text = found
                else:
                    done.append(found)
    except EncodingError:  # a worker knows the line in its shard only
        for _ in corpus.blocks():
            pass
        raise
    assert text is not None
    corpus.cleaning.begin()
    corpus.cleaning.replaced += sum(one.losses[0] for one in done)
    corpus.cleaning.skipped += sum(one.losses[1] for one in done)
    corpus.note_losses(progress)
    if not sum(one.size for one in done):
        raise CorpusError(f"{corpus.name} is empty")
    return text, done


def _hash(blocks: Iterable[bytes], copy: Any = None) -> _Text:
    """Return the size and the hash of a text, as `_write` does; `copy` is a file to write the text to."""
    reader = _Reader()
    for block in blocks:
        text = reader.take(block)
        if copy is not None:
            copy.write(text)
    return reader.text


def _put_together(
    done: list[_Done],
    ids: list[Ids] | list[None],
    dtype: np.dtype[Any],
    joined: Path,
    path: Path,
    executor: Executor,
) -> None:
    """Put the ids of all shards into the file `joined`, and move it to `path`.

    Where the files of the shards have numbers, the arrays `ids` map them to ids.
    """
    starts = accumulate((one.size for one in done), initial=0)

    def put(piece: tuple[_Done, Ids | None, int]) -> None:
        one, table, start = piece
        part = np.fromfile(one.path, dtype if table is None else _NUMBERS)
        part = part if table is None else table.astype(dtype).take(part)
        with naming(joined), joined.open("r+b") as file:
            file.seek(start * dtype.itemsize)
            file.write(part.data)

    with naming(joined), joined.open("wb") as file:
        file.truncate(sum(one.size for one in done) * dtype.itemsize)
    for _ in executor.in_order(put, zip(done, ids, starts, strict=False)):
        pass
    shutil.move(joined, path)  # a rename, unless it is on another disk
