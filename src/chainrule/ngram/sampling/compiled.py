"""How the kernels of this package are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}

kernel: Any = njit(**_OPTIONS)
"""Compiles a function that allocates no memory: without Numba's counting of references to each array it is passed.

That counting would take half of the time of these many small functions.
"""

inner: Any = njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compiles a function that only kernels call, without the code by which Python would."""

ZERO: Any = np.int64(0)
"""Where a variable that is passed on begins at 0: for a Python integer, Numba would compile functions twice."""

NO: Any = np.bool_(False)
"""The same for False."""


def is_compiled(function: Any) -> bool:
    """Whether a kernel need not be compiled: it is loaded, or Numba kept it on disk in an earlier run."""
    kept = getattr(getattr(function, "_cache", None), "_cache_file", None)
    return bool(function.overloads) or (kept is not None and bool(kept._load_index()))


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Ask for an item of an array that is needed soon, and wait for nothing; any index is allowed."""

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
