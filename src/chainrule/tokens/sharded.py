"""A corpus as ids, shard by shard, by the workers of an executor: the same file as ids.py writes.

    shard   -> a file of its ids, or of numbers of its words with the words themselves      (one task for each)
    shard   -> its place in the file of all ids, with ids in place of numbers               (one task for each)

One more task reads all text in sequence, for its hash.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import CorpusError, EncodingError
from chainrule.system.disk import naming, scratch_file_at, scratch_folder
from chainrule.system.parallel import Executor, worth_a_kernel
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.shards import SHARD_BYTES, Shard, shards_of
from chainrule.tokens.base import Ids, Tokenizer, narrowest
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.learning import NANOSECONDS, merged_vocabulary
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.table import GivenTable, SlowTable, Table, WordTable

_NUMBERS: Any = np.dtype("<u4")


@dataclass(frozen=True)
class ShardedText:
    """What encoding a corpus by shards gave, beside the file."""

    dtype: np.dtype[Any]
    lines: int
    bytes: int
    unknown: int
    fingerprint: str


@dataclass(frozen=True)
class _Done:
    """A shard that was encoded to a file of its own."""

    path: Path
    size: int
    """How many ids or numbers the file has."""
    lines: int
    unknown: int
    losses: tuple[int, int]
    """What was replaced and what was skipped."""
    words: bytes = b""
    """The words in the order of their numbers, a line end after each; nothing where the ids are known."""
    counts: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class _Read:
    """All text, read in sequence."""

    bytes: int
    fingerprint: str


def encode_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    path: Path,
    executor: Executor,
    progress: Progress = SILENT,
    shard_bytes: int = SHARD_BYTES,
) -> ShardedText:
    """Write the ids of a corpus to `path`."""
    dtype: Any = np.dtype(tokenizer.id_dtype).newbyteorder("<")
    with scratch_folder(executor.folder) as folder:
        read, done = _first_round(corpus, _Encode(tokenizer, dtype, folder), executor, progress, shard_bytes)
        _second_round(done, [None] * len(done), dtype, dtype, folder / "ids", executor)
        shutil.move(folder / "ids", path)
    lines, unknown = sum(one.lines for one in done), sum(one.unknown for one in done)
    return ShardedText(dtype, lines, read.bytes, unknown, read.fingerprint)


def learn_and_encode_shards(
    corpus: Corpus,
    limit: Limit,
    splitting: Splitting,
    path: Path,
    executor: Executor,
    progress: Progress = SILENT,
    shard_bytes: int = SHARD_BYTES,
) -> tuple[list[bytes], ShardedText]:
    """The words of a vocabulary that is learned from a corpus, whose ids are written to `path`."""
    with scratch_folder(executor.folder) as folder:
        read, done = _first_round(corpus, _Learn(splitting, folder), executor, progress, shard_bytes)
        tables = [GivenTable(one.words.split(b"\n")[:-1], one.counts) for one in done]
        vocabulary = merged_vocabulary(tables, limit, splitting)
        dtype: Any = np.dtype(narrowest(3 + vocabulary.size)).newbyteorder("<")
        _second_round(done, vocabulary.ids, _NUMBERS, dtype, folder / "ids", executor)
        shutil.move(folder / "ids", path)  # a rename, unless it is on another disk
    text = ShardedText(dtype, vocabulary.lines, read.bytes, vocabulary.unknown, read.fingerprint)
    return vocabulary.spell(), text


def _first_round(
    corpus: Corpus, work: _Encode | _Learn, executor: Executor, progress: Progress, shard_bytes: int
) -> tuple[_Read, list[_Done]]:
    """Encode each shard to a file of its own, and read all text for its hash, which takes longest."""
    in_files, read = _in_files(corpus, work.folder)
    pieces: list[list[Shard] | tuple[int, Shard]] = [] if read else [shards_of(in_files, None)]
    pieces += list(enumerate(shards_of(in_files, shard_bytes)))
    done: list[_Done] = []
    try:
        with progress.task("encoding", len(pieces), "shards") as task:
            for _, found in executor.in_order(partial(_read_or_encode, work), pieces):
                task.advance(1)
                if isinstance(found, _Read):
                    read = found
                else:
                    done.append(found)
    except EncodingError:  # a worker knows the line in its shard only
        for _ in corpus.blocks():
            pass
        raise
    assert read is not None
    corpus.cleaning.begin()
    for one in done:
        corpus.cleaning.replaced += one.losses[0]
        corpus.cleaning.skipped += one.losses[1]
    corpus.note_losses(progress)
    if not sum(one.size for one in done):
        raise CorpusError(f"{corpus.name} is empty")
    return read, done


def _in_files(corpus: Corpus, folder: Path) -> tuple[Corpus, _Read | None]:
    """The corpus itself if all of it is in files; else a copy of it in a file that workers see, and its hash."""
    if corpus.is_in_files:
        return corpus, None
    path = folder / "text"
    with scratch_file_at(path) as file:
        read = _hash(corpus.blocks(), file)
    return Corpus(paths=(path,)), read


def _read_or_encode(work: _Encode | _Learn, piece: list[Shard] | tuple[int, Shard]) -> _Read | _Done:
    if isinstance(piece, list):
        return _hash(block for shard in piece for block in shard.blocks())
    return work(*piece)


def _hash(blocks: Iterable[bytes], copy: Any = None) -> _Read:
    """The bytes of a text and its hash, as `ids._write` has them; `copy` is a file to write the text to."""
    digest, read, unended = hashlib.sha256(), 0, False
    for block in blocks:
        text = b"\n" + block if unended else block
        digest.update(text)
        if copy is not None:
            copy.write(text)
        unended = not block.endswith(b"\n")
        read += len(block)
    return _Read(read, digest.hexdigest())


@dataclass(frozen=True)
class _Encode:
    """Encodes a shard with a tokenizer that is known."""

    tokenizer: Tokenizer
    dtype: Any
    folder: Path

    def __call__(self, number: int, shard: Shard) -> _Done:
        path, size, lines, unknown = self.folder / f"shard-{number}", 0, 0, 0
        shard.cleaning.begin()
        with scratch_file_at(path) as file:
            for block in shard.blocks():
                ids = self.tokenizer.encode_lines(block)
                file.write(ids.astype(self.dtype, copy=False).data)
                size += len(ids)
                lines += int(np.count_nonzero(ids == self.tokenizer.eos))
                unknown += 0 if self.tokenizer.unk is None else int(np.count_nonzero(ids == self.tokenizer.unk))
        return _Done(path, size, lines, unknown, (shard.cleaning.replaced, shard.cleaning.skipped))


@dataclass(frozen=True)
class _Learn:
    """Numbers and counts the words of a shard."""

    splitting: Splitting
    folder: Path

    def __call__(self, number: int, shard: Shard) -> _Done:
        path, size = self.folder / f"shard-{number}", 0
        large = worth_a_kernel(shard.path.stat().st_size, NANOSECONDS)
        table: Table = WordTable(self.splitting) if large else SlowTable(self.splitting)
        shard.cleaning.begin()
        with scratch_file_at(path) as file:
            for block in shard.blocks():
                numbers = table.learn(block)
                file.write(numbers.astype(_NUMBERS, copy=False).data)
                size += len(numbers)
        words = b"".join(word + b"\n" for word in table.words()[1:])
        losses = shard.cleaning.replaced, shard.cleaning.skipped
        return _Done(path, size, 0, 0, losses, words, np.asarray(table.counts()))


def _second_round(
    done: list[_Done], ids: list[Ids] | list[None], before: Any, dtype: Any, path: Path, executor: Executor
) -> None:
    """Put the ids of all shards into one file: through the arrays `ids` where their files have numbers."""
    starts = accumulate((one.size for one in done), initial=0)

    def put(piece: tuple[_Done, Ids | None, int]) -> None:
        one, table, start = piece
        numbers = np.fromfile(one.path, before)
        part = numbers if table is None else table.astype(dtype).take(numbers)
        with naming(path), path.open("r+b") as file:
            file.seek(start * np.dtype(dtype).itemsize)
            file.write(part.data)

    with naming(path), path.open("wb") as file:
        file.truncate(sum(one.size for one in done) * np.dtype(dtype).itemsize)
    for _ in executor.in_order(put, zip(done, ids, starts, strict=False)):
        pass
    for one in done:
        one.path.unlink()
