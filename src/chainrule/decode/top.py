"""The largest few of each row, ties to the lowest place: on the device the array is on."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import Array


def top_k(values_BN: Array, k: int) -> tuple[Array, Array]:
    """The k largest of each row, largest first, and their places; fewer if a row has fewer."""
    if isinstance(values_BN, np.ndarray):
        places_BK = np.stack([_top_of_row(row, k) for row in values_BN])
    else:
        xp = array_namespace(values_BN)
        places_BK = xp.argsort(values_BN, axis=-1, descending=True, stable=True)[:, :k]
    return array_namespace(values_BN).take_along_axis(values_BN, places_BK, axis=-1), places_BK


def _top_of_row(row: np.ndarray, k: int) -> np.ndarray:
    """Linear in the row: only what reaches the k-th largest value is sorted."""
    if k >= len(row):
        return np.argsort(-row, kind="stable")
    least = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= least)
    return candidates[np.argsort(-row[candidates], kind="stable")[:k]]
