"""Segments of arrays: sums over them, and <s> inserted before sequences; for NumPy and torch."""

from __future__ import annotations

import numpy as np
from array_api_compat import device, is_numpy_array

from chainrule.arrays import Array, array_namespace
from chainrule.folder import Context


def segment_sums(values: Array, begin: Array) -> Array:
    """Return the sum over each segment [begin[i], begin[i + 1]) of the values, in double precision."""
    xp = array_namespace(values)
    wide = xp.astype(values, xp.float64)
    if not is_numpy_array(wide):
        import torch

        return torch.segment_reduce(wide, "sum", offsets=begin, initial=0.0)
    begin = np.asarray(begin, dtype=np.int64)
    sums = np.zeros(len(begin) - 1)
    some = begin[1:] > begin[:-1]  # reduceat takes an empty segment for one of one element
    if some.any():
        sums[some] = np.add.reduceat(wide, begin[:-1][some])
    return sums


def sequence_starts(ids: Array, eos: int, context: Context) -> Array:
    """Return where a sequence begins in a text: at the first id, and with line context after each `eos`."""
    xp = array_namespace(ids)
    starts = xp.zeros(ids.shape[0], dtype=xp.bool, device=device(ids))
    starts[:1] = True
    if context == "line":
        starts[1:] = ids[:-1] == eos
    return xp.nonzero(starts)[0]


def insert_starts(ids: Array, starts: Array, bos: int) -> tuple[Array, Array]:
    """Return the ids with `bos` inserted before each index in `starts`, and the index of each id in that text."""
    xp = array_namespace(ids)
    shift = xp.zeros(ids.shape[0], dtype=xp.int64, device=device(ids))
    shift[starts] = 1
    places = xp.arange(ids.shape[0], dtype=xp.int64, device=device(ids)) + xp.cumulative_sum(shift)
    text = xp.full(ids.shape[0] + starts.shape[0], bos, dtype=ids.dtype, device=device(ids))
    text[places] = ids
    return text, places
