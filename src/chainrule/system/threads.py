"""How many threads matrix products use: the number that is fastest on a machine that other programs use too.

A product that two threads share ends when the slower one does. If another program holds one of two cores, every
product waits until the scheduler gives the core back: small products then take 10 to 50 times as long with two
threads as with one. So a run that is limited by the clock measures which number is faster, and measures again now
and then. The number of threads can change the last bits of a sum; a run of a given number of steps keeps it fixed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

_TRIED = 5  # steps with each number of threads in a trial
_MUCH = 2.0  # a number of threads that is this many times slower than another is no longer tried
_SLOWER = 3.0  # a step that takes this many times the usual means that something has changed
_AGAIN = 10.0  # seconds from one trial to the next
_PRODUCTS = 30  # of the first measurement: a few milliseconds, or tenths of a second on a busy machine


@contextmanager
def paying_threads(*, on: bool = True) -> Iterator[None]:
    """Use, in the block, the number of threads that makes a product of usual size fastest now; then all again."""
    most = most_threads()
    if not on or most == 1:
        yield
        return
    try:
        use_threads(min((most, 1), key=_seconds_of_products))
        yield
    finally:
        use_threads(most)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in the block, for times that other programs disturb little; all of them again after it."""
    try:
        use_threads(1)
        yield
    finally:
        use_threads(most_threads())


class ThreadChoice:
    """All threads or one, whichever takes the shorter steps.

    >>> choice = ThreadChoice(most=2, use=lambda threads: None)
    >>> for _ in range(20):
    ...     choice.step_took(0.1 if choice.threads == 2 else 0.02)
    >>> choice.threads
    1
    """

    def __init__(self, most: int | None = None, use: Callable[[int], None] | None = None) -> None:
        self.most = most_threads() if most is None else most
        self.threads = threads_now() if most is None else most
        self._use = use_threads if use is None else use
        self._times: dict[int, list[float]] = {}
        """The seconds of the steps of this trial, by the number of threads."""
        self._waiting: list[int] | None = None
        """Numbers that this trial has still to try; None between trials."""
        self._usual = self._usual_for = 0.0
        self._begin_trial()

    def step_took(self, seconds: float) -> None:
        """Take the time of a step into account; `threads` is what the next step uses."""
        if self.most == 1:
            return
        if self._waiting is None:
            self._usual_for += seconds
            if self._usual_for >= _AGAIN or seconds > _SLOWER * self._usual:
                self._begin_trial()
            return
        times = self._times.setdefault(self.threads, [])
        times.append(seconds)
        others = [min(found) for threads, found in self._times.items() if threads != self.threads]
        if len(times) < _TRIED and not (others and seconds > _MUCH * min(others)):
            return
        if self._waiting:
            self._set(self._waiting.pop())
        else:
            medians = {threads: statistics.median(found) for threads, found in self._times.items()}
            best = min(medians, key=lambda threads: medians[threads])
            self._waiting, self._usual, self._usual_for = None, medians[best], 0.0
            self._set(best)

    def _begin_trial(self) -> None:
        self._times = {}
        self._waiting = [1 if self.threads > 1 else self.most]  # tried after the present number

    def _set(self, threads: int) -> None:
        if threads != self.threads:
            self.threads = threads
            self._use(threads)


@cache
def _libraries() -> tuple[list[Any], int]:
    """Return the libraries of NumPy's products, and the threads that they used at first."""
    found: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found, max((library.num_threads for library in found), default=1)


def most_threads() -> int:
    """Return the number of threads that products use where nothing else is chosen."""
    return _libraries()[1]


def threads_now() -> int:
    """Return the number of threads that products use now."""
    return max((library.num_threads for library in _libraries()[0]), default=1)


def use_threads(threads: int) -> None:
    """Set the threads of NumPy's products, and of torch where it is loaded."""
    for library in _libraries()[0]:
        library.set_num_threads(threads)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)


def _seconds_of_products(threads: int) -> float:
    use_threads(threads)
    left, right = np.ones((64, 256), np.float32), np.ones((256, 1024), np.float32)
    began = time.perf_counter()
    for _ in range(_PRODUCTS):
        left @ right
    return time.perf_counter() - began
