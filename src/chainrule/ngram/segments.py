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
    """Mark the ids of a text at which a sequence begins: the first id, and with line context those after `eos`."""
    xp = array_namespace(ids)
    starts = xp.zeros(ids.shape[0], dtype=xp.bool, device=device(ids))
    starts[:1] = True
    if context == "line":
        starts[1:] = ids[:-1] == eos
    return starts


def insert_starts(ids: Array, starts: Array, bos: int) -> tuple[Array, Array]:
    """Return the ids with `bos` inserted wherever `starts` is true, and the index of each id in the longer text."""
    xp = array_namespace(ids)
    shift = xp.cumulative_sum(xp.astype(starts, xp.int64))
    added = int(shift[-1]) if ids.shape[0] else 0
    places = xp.arange(ids.shape[0], dtype=xp.int64, device=device(ids)) + shift
    text = xp.full(ids.shape[0] + added, bos, dtype=ids.dtype, device=device(ids))
    text[places] = ids
    return text, places
