"""The options by which kernels that allocate no memory are compiled, and functions that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

_ROOM = Path(__file__).parents[1]
_SOURCES = "*kernels.py", "compiled.py", "drafts.py"


def drop_stale_caches(room: Path = _ROOM) -> None:
    """Delete compiled code that is older than the newest kernel.

    Numba compares a kernel with its own file only: it would keep code that includes functions of another file as
    they were, and fail to read an index that names a class that is gone.
    """
    sources = (path for path in room.rglob("*.py") if any(path.match(name) for name in _SOURCES))
    newest = max(path.stat().st_mtime for path in sources)
    for index in room.rglob("__pycache__/*.nbi"):
        try:
            if index.stat().st_mtime < newest:
                index.unlink()
        except OSError:  # another process was faster, or the folder is not ours to change
            continue


drop_stale_caches()

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}

kernel: Any = njit(**_OPTIONS)
"""Compile a function that allocates no memory.

Numba then does not count references to arrays, which would take half of the time of these many small functions.
"""

inner: Any = njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compile a function that only kernels call, not Python."""

ZERO: Any = np.int64(0)
"""The first value of a variable that is passed on; for a Python integer, Numba would compile functions twice."""


def is_compiled(function: Any) -> bool:
    """Return True if a kernel is compiled: it is loaded, or Numba kept it on disk in an earlier run."""
    kept = getattr(getattr(function, "_cache", None), "_cache_file", None)
    return bool(function.overloads) or (kept is not None and bool(kept._load_index()))


def integers(names: str) -> np.dtype[np.void]:
    """Return the type of records of integers with these names, which kernels read by name."""
    return np.dtype([(name, np.int64) for name in names.split()], align=True)


@inner
def rank_of(values: Any, first: int, last: int, wanted: int) -> Any:
    """Return the index at which `wanted` belongs in the ascending values[first:last], by binary search."""
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first
