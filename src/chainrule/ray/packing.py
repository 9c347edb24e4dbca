"""Functions and pieces of work as bytes for another process; mapped arrays are sent as the names of their files."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(value: Any) -> bytes:
    """Return a value as bytes, also functions inside functions; arrays of files become the names of the files."""
    buffer = io.BytesIO()
    _pickler()(buffer).dump(value)
    return buffer.getvalue()


def unpacked(content: bytes) -> Any:
    """Return the value that was packed; only bytes from this process or its own workers may be unpacked."""
    return pickle.loads(content)


def _pickler() -> Any:
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, np.ndarray) and (place := _place(value)) is not None:
                return _mapped, place
            return super().reducer_override(value)

    return Pickler


_Place = tuple[str, str, int, tuple[int, ...], str]
"""The file, the type, the offset in bytes, the shape, and the mode of a mapped array."""


def _place(array: NDArray[Any]) -> _Place | None:
    """Return the place of an array in a named file; None if it is in none, or not in one piece."""
    whole: Any = array
    while isinstance(whole, np.ndarray) and not isinstance(whole, np.memmap):
        whole = whole.base
    if not isinstance(whole, np.memmap) or whole._mmap is None or whole.filename is None:  # type: ignore[attr-defined]
        return None
    if not array.flags.c_contiguous or array.size == 0:
        return None
    start = np.frombuffer(whole._mmap, np.uint8).ctypes.data  # type: ignore[attr-defined]
    # a mapping begins at a whole page, at or before the offset that was asked for
    skipped = whole.offset - whole.offset % _granularity()
    return str(whole.filename), array.dtype.str, array.ctypes.data - start + skipped, array.shape, whole.mode


def _granularity() -> int:
    import mmap

    return mmap.ALLOCATIONGRANULARITY


def _mapped(file: str, dtype: str, offset: int, shape: tuple[int, ...], mode: str) -> NDArray[Any]:
    return np.memmap(file, np.dtype(dtype), "r" if mode == "r" else "r+", offset, shape)
