"""How the kernels of this package are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

kernel: Any = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
"""Compiles a function that allocates no memory: without Numba's counting of references to each array it is passed.

That counting would take half of the time of these many small functions.
"""
