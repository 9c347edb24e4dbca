"""Allocation of the large arrays of an estimate: in memory, or, under a memory cap, in temporary files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chainrule.errors import ChainruleError, SettingsError
from chainrule.system.parallel import EMBEDDED, Executor

_ZEROS = 1 << 24
LEAST = 1 << 22
"""The fewest bytes that `Workspace.limited` gives."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Workspace:
    """Allocates arrays in memory, or memory-mapped in files that are unlinked once open: a crash leaves none.

    Where an executor has workers in other processes, files keep their names, by which those open them, until the
    array is not used any more.
    """

    def __init__(self, folder: Path | None = None, executor: Executor = EMBEDDED, cap: int | None = None) -> None:
        self.folder = folder
        """The folder that arrays are spilled to; None keeps them in memory."""
        self.executor = executor
        """Where the work on the arrays is done."""
        self.cap = cap
        """The most bytes to take; None: no limit."""
        self._spilled: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._lock = threading.Lock()  # workers add to the set while another thread goes through it

    @property
    def spills(self) -> bool:
        """True if arrays are allocated in files."""
        return self.folder is not None

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return a new array: zeros in a file, uninitialised in memory."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.folder is None or size == 0:
            return np.empty(shape, dtype=dtype)
        try:
            make: Any = partial(tempfile.TemporaryFile, prefix="chainrule-")
            if self.executor.is_remote:
                make = partial(tempfile.NamedTemporaryFile, prefix="array-", delete=False)
            with make(dir=self.folder) as file:
                # reserved now: writing to a mapped page when the disk has become full would kill the process
                _take_space(file, size)
                named: Any = file.name if self.executor.is_remote else file
                array: np.memmap[Any, Any] = np.memmap(named, dtype=dtype, mode="r+", shape=shape)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise ChainruleError(
                    f"{self.folder}: no space left to spill {size / 1e6:,.0f} MB to; free some, set TMPDIR to a "
                    f"larger disk, or give more memory (memory=...)"
                ) from None
            raise
        with self._lock:
            self._spilled.add(array._mmap)  # type: ignore[attr-defined]
        if self.executor.is_remote:
            weakref.finalize(array, Path(file.name).unlink, missing_ok=True)
        return array

    def limited(self, useful: int) -> int:
        """Return how many bytes may be in memory of what is worked on piece by piece: a quarter of the cap.

        `useful` is how many make the work fast.
        """
        return useful if self.cap is None else min(useful, max(self.cap // 4, LEAST))

    def in_order(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Result]]:
        """Yield each piece and the result of `work` for it, which the executor computes; release memory."""
        for number, step in enumerate(self.executor.in_order(work, pieces), start=1):
            yield step
            if number % 64 == 0:
                self.release()
        self.release()

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array as it is, or a copy of it in a file if this workspace spills."""
        if self.folder is None:
            return array
        moved = self.empty(array.shape, array.dtype)
        moved[...] = array
        self.release(moved)
        return moved

    def release(self, *arrays: NDArray[Any]) -> None:
        """Free the memory of spilled arrays, whose content stays in files; without arguments, of all of them."""
        mapped = [array._mmap for array in arrays if isinstance(array, np.memmap)]  # type: ignore[attr-defined]
        if not arrays:
            with self._lock:
                mapped = list(self._spilled)
        for spilled in mapped:
            spilled.madvise(mmap.MADV_DONTNEED)


def _take_space(file: IO[bytes], size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for first in range(0, size, _ZEROS):  # fallback: zeros take the space
        file.write(bytes(min(_ZEROS, size - first)))
    file.flush()


IN_MEMORY = Workspace()


def give_back_memory() -> None:
    """Return freed memory to the operating system: the C library keeps it for reuse."""
    with contextlib.suppress(AttributeError, OSError):  # without glibc, a no-op
        ctypes.CDLL(None).malloc_trim(0)


def parse_size(text: str) -> int:
    """Return the number of bytes that a text such as 4GB, 512MB or 1e9 means."""
    upper = text.strip().upper()
    unit = next((unit for unit in UNITS if upper.endswith(unit)), "")
    try:
        size = float(upper.removesuffix(unit)) * UNITS.get(unit, 1)
        if 0 < size < float("inf"):
            return int(size)
    except ValueError:
        pass
    raise SettingsError(f"memory should be a size such as 4GB or 512MB, not {text!r}")


def default_memory() -> int:
    """Return half of the machine's memory, in bytes; 4 GB where its size is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return 4 * 10**9
