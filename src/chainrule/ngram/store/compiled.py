"""The options by which kernels that allocate no memory are compiled, and functions that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

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


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Load an item of an array into the cache without waiting for it; any index is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(held.data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # for reading; kept in all caches; data
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
