"""Arrays in safetensors files: written one by one, memory-mapped when they are read."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from chainrule.errors import FolderError
from chainrule.folder.integrity import what_it_is
from chainrule.system.disk import naming

Tensors: TypeAlias = Mapping[str, np.ndarray]

_BYTES_AT_ONCE = 64 << 20
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def write_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file array by array; the library's own writer first copies all arrays into memory."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    # wide types first, so that each array begins at a multiple of its width
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with naming(path), path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            data = arrays[name].reshape(-1).view(np.uint8)
            for first in range(0, len(data), _BYTES_AT_ONCE):
                file.write(data[first : first + _BYTES_AT_ONCE].data)
                _free_pages(data)


def _free_pages(array: np.ndarray) -> None:
    """Free the memory of an array that is mapped from a file, once it is copied."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and hasattr(base._mmap, "madvise"):  # type: ignore[attr-defined]
            base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        base = base.base


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file, memory-mapped and read-only."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # validates the header against the file
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, ValueError, OverflowError, RecursionError) as error:
        raise what_it_is(path, str(error)) from None
    data = np.memmap(path, dtype=np.uint8, mode="r")[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _DTYPES:
            raise FolderError(f"{path}: {name} is of type {entry['dtype']}, which NumPy does not have")
        start, end = entry["data_offsets"]
        try:
            tensors[name] = data[start:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        except (ValueError, OverflowError, TypeError) as error:  # such as a shape whose product overflows
            raise what_it_is(path, f"the shape of {name} is {entry['shape']} ({error})") from None
    return tensors
