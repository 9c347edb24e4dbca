"""`RayExecutor`: pieces of work as Ray tasks, several small ones in one task.

A worker that dies takes down only the task it had; Ray starts another one, and the task is done again, which gives
the same result (see `Executor`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from chainrule.errors import ChainruleError
from chainrule.ray.packing import packed, unpacked
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
            many = _pieces_for_a_task(seconds / len(some), many)
            yield from zip(some, results, strict=True)


def _pieces_for_a_task(seconds: float, before: int) -> int:
    """Return how many pieces of this duration make a task; it grows slowly, since first pieces may mislead."""
    wanted = int(_TASK_SECONDS / max(seconds, 1e-6))
    return max(1, min(wanted, 4 * before, _MOST_PIECES))


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
