"""Work on many pieces at once, results in order; and when it is time for faster ways that take time to start."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Result]]:
    """Each piece and what `work` makes of it, in the order of the pieces, by as many threads as there are cores."""
    workers = cores()
    pieces = iter(pieces)
    for piece in pieces:  # the first one alone: what is made when it is first needed is made once
        yield piece, work(piece)
        break
    waiting: deque[tuple[Piece, Future[Result]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for piece in pieces:
            waiting.append((piece, pool.submit(work, piece)))
            if len(waiting) > workers:  # bounded, so that memory does not grow with the text
                done, result = waiting.popleft()
                yield done, result.result()
        for done, result in waiting:
            yield done, result.result()


class Patience:
    """Lets the slow way do up to so much work; whoever has more to do has the time to start the fast one."""

    def __init__(self, most: int) -> None:
        self._left = most

    def ends_with(self, amount: int) -> bool:
        """Whether so much more is too much."""
        self._left -= amount
        return self._left <= 0
