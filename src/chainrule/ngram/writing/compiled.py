"""How the kernels of this package are compiled."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

kernel: Any = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
"""Compiles a function that allocates no memory: without Numba's counting of references to each array it is passed.

That counting would take half of the time of these many small functions.
"""


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
