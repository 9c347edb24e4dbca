"""Single instructions of the processor that Python has no words for, for compiled loops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of an item of a contiguous array, which are the first two arguments."""
    held = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(held.data, [arguments[1]])


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Load an item of an array into the cache without waiting for it; any index is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(_place(context, builder, signature, arguments), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # for reading; kept in all caches; data
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def fetch_add(_: Any, array: Any, index: Any, amount: Any) -> Any:
    """Add to an item of an array of 64-bit integers, as one step that no other thread sees the middle of.

    Returns the item as it was. What a thread wrote before is seen by those that find its addition.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def at_address(_: Any, address: Any) -> Any:
    """Return the pointer of an address, for `numba.carray`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate
