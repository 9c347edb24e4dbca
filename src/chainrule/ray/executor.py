"""`RayExecutor`: pieces of work as Ray tasks, several small ones in one task.

A worker that dies takes down only the task it had; Ray starts another one, and the task is done again, which gives
the same result (see `Executor`).
"""

from __future__ import annotations

import io
import mmap
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleError
from chainrule.system.parallel import Executor

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_RETRIES = 5
_TASK_SECONDS = 0.5  # a task takes about this long: starting one costs a few milliseconds
_MOST_PIECES = 256
_AHEAD = 2  # tasks for each worker that are started before their results are asked for


class RayExecutor(Executor):
    """The workers of the Ray cluster that this process is connected to (connection.py connects it)."""

    name = "ray"

    def __init__(self, folder: Path, workers: int) -> None:
        """`folder` is one that all workers see; `workers` is how many tasks run at a time."""
        self.folder = folder
        self.workers = max(workers, 1)

    def in_order(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Result]]:
        """Yield each piece and the result of `work` for it, in the order of the pieces."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_do)
        function = ray.put(packed(work))
        pieces = iter(pieces)
        waiting: deque[tuple[list[Piece], Any]] = deque()
        many = 1  # pieces for a task, until it is known how long one takes
        while True:
            while len(waiting) < _AHEAD * self.workers and (some := list(islice(pieces, many))):
                waiting.append((some, task.remote(function, packed(some))))
            if not waiting:
                return
            some, answer = waiting.popleft()
            results, seconds = _results(ray, answer)
            # it grows slowly, since first pieces may mislead
            many = max(1, min(int(_TASK_SECONDS * len(some) / max(seconds, 1e-6)), 4 * many, _MOST_PIECES))
            yield from zip(some, results, strict=True)


def _results(ray: Any, answer: Any) -> tuple[list[Any], float]:
    try:
        content, seconds, error = ray.get(answer)
    except ray.exceptions.RayError as lost:
        reason = str(lost).strip().split("\n")[-1]
        raise ChainruleError(f"a task of Ray was lost, {_RETRIES + 1} times: {reason}") from None
    if error is not None:
        raise unpacked(error)
    return unpacked(content), seconds


_last: tuple[Any, Any] = (None, None)


def _do(function: bytes, pieces: bytes) -> tuple[bytes, float, bytes | None]:
    """Do some pieces in a worker; return the results, the seconds that they took, and the error that ended them."""
    global _last  # noqa: PLW0603 (one process, one task at a time)
    began = time.perf_counter()
    try:
        if _last[0] != function:  # files stay mapped from task to task
            _last = (function, unpacked(function))
        results = [_last[1](piece) for piece in unpacked(pieces)]
    except Exception as error:
        return b"", time.perf_counter() - began, packed(error)
    return packed(results), time.perf_counter() - began, None


# -- functions and pieces as bytes for another process; mapped arrays are sent as the names of their files -------


def packed(value: Any) -> bytes:
    """Return a value as bytes, also functions inside functions; arrays of files become the names of the files."""
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, np.ndarray) and (place := _place(value)) is not None:
                return np.memmap, place
            return super().reducer_override(value)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def unpacked(content: bytes) -> Any:
    """Return the value that was packed; only bytes from this process or its own workers may be unpacked."""
    return pickle.loads(content)


def _place(array: NDArray[Any]) -> tuple[Any, ...] | None:
    """Return what np.memmap takes for an array in a named file; None if it is in none, or not in one piece."""
    whole: Any = array
    while isinstance(whole, np.ndarray) and not isinstance(whole, np.memmap):
        whole = whole.base
    if not isinstance(whole, np.memmap) or whole._mmap is None or whole.filename is None:  # type: ignore[attr-defined]
        return None
    if not array.flags.c_contiguous or array.size == 0:
        return None
    start = np.frombuffer(whole._mmap, np.uint8).ctypes.data  # type: ignore[attr-defined]
    # a mapping begins at a whole page, at or before the offset that was asked for
    skipped = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    mode = "r" if whole.mode == "r" else "r+"
    return str(whole.filename), array.dtype.str, mode, array.ctypes.data - start + skipped, array.shape
