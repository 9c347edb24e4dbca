"""A corpus as ids in one memory-mapped file, written once and in parallel.

Each line's ids are followed by </s>. The file is the ids and nothing else, uint16 or uint32 by the size of the
vocabulary; what else is known of it is in `Encoded`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import CorpusError
from chainrule.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """The ids of a corpus, and what was counted on the way."""

    ids: NDArray[np.unsignedinteger]
    """Memory-mapped; one dimension, line after line, each ended by </s>."""
    lines: int
    bytes: int
    """UTF-8 bytes of the text, line ends included: what bits per byte divides by."""
    unknown: int
    """How many tokens are <unk>."""
    fingerprint: str
    """SHA-256 of the text."""

    @property
    def tokens(self) -> int:
        """How many events there are to predict: the ids, line ends included."""
        return len(self.ids)


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer, path: Path, progress: Progress = SILENT) -> Encoded:
    """Write the ids of a corpus to `path`."""
    dtype: Any = np.dtype(tokenizer.id_dtype).newbyteorder("<")
    tokens = lines = size = unknown = 0
    digest = hashlib.sha256()
    unended = False  # whether the last file ended without LF, so that its last line does not join the next one
    if path.resolve() in {source.resolve() for source in corpus.paths}:
        raise CorpusError(f"{path}: the ids would overwrite the text itself")
    with path.open("wb") as file, progress.task("encoding", corpus.size(), "B") as task:
        for block, part in _encoded_blocks(corpus, tokenizer, dtype):
            file.write(part.ids.data)
            digest.update(b"\n" + block if unended else block)
            unended = not block.endswith(b"\n")
            tokens += len(part.ids)
            lines += part.lines
            unknown += part.unknown
            size += len(block)
            task.advance(len(block))
    corpus.note_replaced(progress)
    if tokens == 0:
        raise CorpusError(f"{corpus.name}: empty: there is no text to count")
    return Encoded(
        np.memmap(path, dtype=dtype, mode="r", shape=(tokens,)), lines, size, unknown, digest.hexdigest()
    )


@dataclass(frozen=True)
class _Part:
    ids: NDArray[np.unsignedinteger]
    lines: int
    unknown: int


def _encode(tokenizer: Tokenizer, block: bytes, dtype: np.dtype[np.unsignedinteger]) -> _Part:
    ids = tokenizer.encode_lines(block)
    unknown = 0 if tokenizer.unk is None else int(np.count_nonzero(ids == tokenizer.unk))
    return _Part(ids.astype(dtype, copy=False), int(np.count_nonzero(ids == tokenizer.eos)), unknown)


def _encoded_blocks(
    corpus: Corpus, tokenizer: Tokenizer, dtype: np.dtype[np.unsignedinteger]
) -> Iterator[tuple[bytes, _Part]]:
    """Blocks and their ids in order, encoded by as many threads as there are cores."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    blocks = corpus.blocks()
    for block in blocks:  # the first one alone: tables that a tokenizer makes when it needs them are made once
        yield block, _encode(tokenizer, block, dtype)
        break
    waiting: deque[tuple[bytes, Future[_Part]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for block in blocks:
            waiting.append((block, pool.submit(_encode, tokenizer, block, dtype)))
            if len(waiting) > workers:  # bounded, so that memory does not grow with the corpus
                done, part = waiting.popleft()
                yield done, part.result()
        for done, part in waiting:
            yield done, part.result()
