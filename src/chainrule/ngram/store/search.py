"""Binary search in many sorted ranges at once, for NumPy and torch; kernels.py has a faster search in Numba."""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace

from chainrule.arrays import Array


def find(code_at: Callable[[Array], Array], first: Array, last: Array, codes: Array) -> Array:
    """The position of each code, searched in its range [first, last) of ascending codes; -1 where it is missing.

    `code_at` returns the codes at an array of positions; where a range is empty, it is asked for position 0.
    """
    xp = array_namespace(first)
    longest = int(xp.max(last - first)) if first.shape[0] else 0
    if longest <= 0:
        return xp.full_like(first, -1)
    low, high = first, last
    for _ in range(longest.bit_length()):
        middle = (low + high) // 2
        is_open = low < high
        is_below = is_open & (code_at(xp.where(is_open, middle, 0)) < codes)
        low = xp.where(is_below, middle + 1, low)
        high = xp.where(is_open & ~is_below, middle, high)
    is_inside = low < last
    found = is_inside & (code_at(xp.where(is_inside, low, 0)) == codes)
    return xp.where(found, low, -1)
