"""Work on all cores, and the decision whether compiled code is worth its start-up time.

Threads are enough on one machine: the work is done by NumPy, Numba and tokenizers, which release the interpreter
lock. Every thread pool of the package is here, so that an exception of a worker always reaches the caller. Work
that may go to other machines is given to an `Executor`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

SLOW_NANOSECONDS = 1 << 26
"""The time that plain code may take before importing and loading compiled code pays off: 67 ms."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Result]]:
    """Yield each piece and the result of `work` for it, in the order of the pieces; a thread for each core.

    Pieces are taken a few at a time, so that memory does not grow with their number.
    """
    workers = cores()
    pieces = iter(pieces)
    for piece in pieces:  # the first one alone, so that code is compiled and caches are filled only once
        yield piece, work(piece)
        break
    waiting: deque[tuple[Piece, Future[Result]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for piece in pieces:
            waiting.append((piece, pool.submit(work, piece)))
            if len(waiting) > workers:
                done, result = waiting.popleft()
                yield done, result.result()
        for done, result in waiting:
            yield done, result.result()


class Executor:
    """Where pieces of work are done: by the threads of this process, or (`RayExecutor`) by those of a Ray cluster.

    A piece may be done twice, by a worker that dies and by the one that takes over: the values that `work` writes
    into arrays must not depend on those that were there before.
    """

    name = "embedded"
    folder: Path | None = None
    """A folder that all workers see, for the arrays that they share; None where they share memory."""

    @property
    def is_remote(self) -> bool:
        """True if workers are other processes."""
        return self.folder is not None

    def in_order(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Result]]:
        """Yield each piece and the result of `work` for it, in the order of the pieces."""
        return in_order(work, pieces)


EMBEDDED = Executor()


def at_once(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """Return the result of `work` for each piece, in order; all pieces are started at once, on all cores."""
    if len(pieces) <= 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(min(len(pieces), cores())) as pool:
        return list(pool.map(work, pieces))


def stretches(size: int, number: int) -> list[tuple[int, int]]:
    """Cut the range [0, size) into `number` parts (first, last) of about equal size, or `size` parts if fewer."""
    number = max(1, min(number, size))
    return list(pairwise([size * i // number for i in range(number + 1)]))


class Background(Generic[Result]):
    """One thread beside the caller's, for one call at a time; leaving the block waits for the last call."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[Result] | None = None

    def __enter__(self) -> Background[Result]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self.result()  # raises the exception of a call whose result nobody asked for
        finally:
            self._pool.shutdown()

    def start(self, work: Callable[..., Result], *arguments: Any) -> None:
        """Wait for the call before, then start this one."""
        self.result()
        self._last = self._pool.submit(work, *arguments)

    def result(self) -> Result | None:
        """Return the result of the last call, whose exception is raised here; None if no call was started."""
        return None if self._last is None else self._last.result()


listeners: list[Callable[[str], None]] = []
"""Functions that are called with a message before unexpectedly long work; the command line shows it."""


def announce(message: str) -> None:
    """Call all listeners with a message."""
    for listener in listeners:
        listener(message)


def plain_up_to(nanoseconds: float) -> int:
    """Return the number of items, at `nanoseconds` each in plain code, from which compiled code pays off."""
    return int(SLOW_NANOSECONDS / nanoseconds)


def worth_a_kernel(amount: int, nanoseconds: float) -> bool:
    """Return True if `amount` items at `nanoseconds` each in plain code take longer than loading compiled code."""
    return amount * nanoseconds >= SLOW_NANOSECONDS


class Patience:
    """Counts the work done in plain code, until loading compiled code pays off."""

    def __init__(self, nanoseconds: float) -> None:
        """`nanoseconds` is the time that one item takes in plain code."""
        self._nanoseconds, self._done = nanoseconds, 0

    def count(self, amount: int) -> bool:
        """Count `amount` more items, and return True if loading compiled code now pays off."""
        self._done += amount
        return worth_a_kernel(self._done, self._nanoseconds)

    def end(self) -> None:
        """Let `count` return True from now on."""
        self._done = max(self._done, SLOW_NANOSECONDS)
