"""ARPA files written block by block, so that a model need not fit in memory.

A file is written under a temporary name in the same folder, synced and renamed: it is complete or absent.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ArpaError
from chainrule.ngram.arpa.numbers import write_number
from chainrule.system.disk import replaced_file
from chainrule.system.parallel import worth_a_kernel
from chainrule.system.progress import SILENT, Progress

ArpaBlock: TypeAlias = tuple[NDArray[np.integer], NDArray[np.floating], NDArray[np.floating] | None]
"""Some n-grams of one length: ids [K, n], ln p [K] and ln backoff [K], which is None if all are 0."""

_ROWS_AT_ONCE = 1 << 16
_NANOSECONDS = 3300  # to write an n-gram in Python
_COMPRESSION = 4  # gzip level; 9 takes several times as long for a few percent
_ROUNDING = 1e-5  # how far above 0 rounding may push a log-probability
_WIDEST_NUMBER = 16  # bytes of -1.23456789e-12 and a separator
_NOT_IN_WORDS = re.compile(rb"[\0 \t\n\v\f\r]")  # bytes that some reader takes for a separator


def write_arpa(
    path: str | Path,
    words: Sequence[bytes],
    levels: Iterable[Iterable[ArpaBlock]],
    sizes: Sequence[int],
    progress: Progress = SILENT,
    overwrite: bool = False,
) -> None:
    """Write a model: `levels` yields the blocks of each length from 1 on, `sizes` says how many n-grams they hold.

    Every word has one unigram. Backoffs are written for all lengths but the longest. A name that ends in .gz makes
    a compressed file.
    """
    path = Path(path)
    check_target(path, overwrite=overwrite)
    writer = _Writer(words, fast=worth_a_kernel(sum(sizes), _NANOSECONDS))
    try:
        with (
            replaced_file(path) as raw,
            _packed(raw, path) as file,
            progress.task(f"writing {path.name}", sum(sizes)) as task,
        ):
            file.write(
                b"\\data\\\n%b\n" % b"".join(b"ngram %d=%d\n" % level for level in enumerate(sizes, start=1))
            )
            for n, (size, blocks) in enumerate(zip(sizes, levels, strict=True), start=1):
                file.write(b"\\%d-grams:\n" % n)
                written = 0
                for block in _checked(blocks, n, size, len(words)):
                    file.write(writer.lines(block, with_backoff=n < len(sizes)))
                    written += len(block[0])
                    task.advance(len(block[0]))
                if written != size:
                    raise ValueError(f"there should be {size} {n}-grams, but {written} came")
                file.write(b"\n")
            file.write(b"\\end\\\n")
    except OSError as error:
        raise ArpaError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Raise if a file cannot be written to `path`, before the work rather than after it."""
    if path.is_dir():
        raise ArpaError(f"{path} is a folder; choose a file")
    if not path.parent.is_dir():
        raise ArpaError(f"{path}: there is no folder {path.parent}; make it, or choose another file")
    if path.exists() and not overwrite:
        raise ArpaError(f"{path} exists; choose another file, or overwrite it (--overwrite, overwrite=True)")


def _packed(raw: IO[bytes], path: Path) -> AbstractContextManager[Any]:
    """Return a file that compresses what is written to `raw` if the name ends in .gz; else `raw`."""
    # no name and no time in the header: the same model always makes the same file
    is_packed = path.suffix.lower() == ".gz"
    return gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) if is_packed else nullcontext(raw)


def _checked(blocks: Iterable[ArpaBlock], n: int, size: int, vocab_size: int) -> Iterator[ArpaBlock]:
    """Yield the blocks in at most `_ROWS_AT_ONCE` rows; raise ValueError for values that no reader would accept."""
    if n == 1 and size != vocab_size:
        raise ValueError(f"every word has one unigram: {vocab_size} words, but {size} unigrams")
    listed = np.zeros(vocab_size if n == 1 else 0, dtype=bool)
    for ids, log_prob, log_backoff in blocks:
        if ids.shape != (len(log_prob), n) or (log_backoff is not None and len(log_backoff) != len(log_prob)):
            raise ValueError(f"a block of {n}-grams has the shapes [K, {n}], [K], [K]")
        if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
            raise ValueError(f"ids go from 0 to {vocab_size - 1}: found {ids.min()} to {ids.max()}")
        if not (log_prob <= _ROUNDING).all():  # NaN compares false
            raise ValueError(f"a log-probability of the {n}-grams is NaN or above 0")
        if log_backoff is not None and not (log_backoff < np.inf).all():
            raise ValueError(f"a backoff of the {n}-grams is NaN or infinite")
        if n == 1:
            if listed[ids].any() or len(np.unique(ids)) < len(ids):
                raise ValueError("every word has one unigram: one came twice")
            listed[ids] = True
        for first in range(0, len(ids), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            yield ids[rows], log_prob[rows], None if log_backoff is None else log_backoff[rows]


class _Writer:
    """The formatter of n-grams over given words: by Numba kernels if `fast`, else in Python."""

    def __init__(self, words: Sequence[bytes], fast: bool) -> None:
        _check_words(words)
        self.words, self.fast = words, fast
        if fast:
            self.pool = np.frombuffer(b"".join(words), dtype=np.uint8)
            self.widths = np.array([len(word) for word in words], dtype=np.int64)
            self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.widths)])

    def lines(self, block: ArpaBlock, with_backoff: bool) -> bytes:
        """Return the text of a block: a line for each n-gram."""
        ids, log_prob, log_backoff = block
        with np.errstate(over="ignore"):  # below float32's range becomes minus infinity, -99 in the file
            floats = np.minimum(log_prob, 0).astype(np.float32)
            backoffs = np.zeros_like(floats) if log_backoff is None else log_backoff.astype(np.float32)
        if not self.fast:
            return b"".join(self._line(*row, with_backoff) for row in zip(ids, floats, backoffs, strict=True))
        from chainrule.ngram.arpa.kernels import write_lines

        ids = np.ascontiguousarray(ids, dtype=np.int64)
        most = int(self.widths[ids].sum()) + ids.size + len(ids) * (2 * _WIDEST_NUMBER + 1)
        out, lines, row = np.empty(most, dtype=np.uint8), [], 0
        while row < len(ids):
            row, size = write_lines(row, ids, floats, backoffs, with_backoff, self.starts, self.pool, out)
            lines.append(out[:size].tobytes())
            if row < len(ids):  # the kernel is not certain of its digits
                lines.append(self._line(ids[row], floats[row], backoffs[row], with_backoff))
                row += 1
        return b"".join(lines)

    def _line(
        self, ids: NDArray[np.integer], log_prob: np.float32, log_backoff: np.float32, with_backoff: bool
    ) -> bytes:
        """Return the line of one n-gram, in Python: the reference for the kernel."""
        fields = [write_number(float(log_prob)), b" ".join(self.words[i] for i in ids)]
        if with_backoff:
            fields.append(write_number(float(log_backoff)))
        return b"\t".join(fields) + b"\n"


def _check_words(words: Sequence[bytes]) -> None:
    """Raise if a word would not be read back from the file as it is."""
    seen = set()
    for word in words:
        if not word or _NOT_IN_WORDS.search(word):
            raise ArpaError(f"ARPA files separate words by white space: the word {word!r} cannot be written")
        try:
            word.decode()
        except UnicodeDecodeError:
            raise ArpaError(f"ARPA files are UTF-8, which the word {word!r} is not: it cannot be written") from None
        if word in seen:
            raise ArpaError(f"ARPA files know words by their letters: two that are {word!r} cannot be written")
        seen.add(word)
