"""Another client beside what is tried: a small request again and again, and a stream, with the times of both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from benchmarks.serve.largest import LONGEST_GAP, stream_until
from benchmarks.serve.load import answer, request_bytes

TIMES_QUIET = 2.0
"""The canary's p99, and the longest gap of the stream, stay below so many times those of the quiet server."""
LEAST_P99 = 0.25
"""Seconds that the p99 may always have: a busy machine takes so long by itself."""
ATTEMPTS = 3
"""What is late this often, every time, is late: once may be the machine."""
_PAUSE = 0.005
Span = tuple[float, float]


class Beside:
    """A client in a thread of its own, while the block lasts: a canary, and a stream."""

    def __init__(self, port: int, canary: str, streaming: str) -> None:
        self._port, self._canary, self._streaming = port, canary, streaming
        self._asked: list[Span] = []
        self._pieces: list[float] = []
        self._quiet: list[Span] = []
        self._problem: str | None = None

    def __enter__(self) -> Beside:
        self._loop, self._done = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._both(),), daemon=True)
        self._thread.start()
        while not (self._asked and self._pieces) and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended by an error
            self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        if not self._thread.is_alive():
            self._loop.close()

    async def _both(self) -> None:
        try:
            await asyncio.gather(self._ask(), stream_until(self._port, self._streaming, self._done, self._pieces))
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self._problem = f"another client got {type(error).__name__}"

    async def _ask(self) -> None:
        request = request_bytes({"model": self._canary, "prompt": "we", "max_tokens": 2})
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not self._done.is_set():
            began = time.perf_counter()
            writer.write(request)
            status, _, _ = await answer(reader)
            self._asked.append((began, time.perf_counter()))
            if status != 200:
                self._problem = f"another client got {status}"
            await asyncio.sleep(_PAUSE)
        writer.close()

    def be_quiet(self, seconds: float) -> None:
        """Measure the two alone."""
        began = time.perf_counter()
        time.sleep(seconds)
        self._quiet.append((began, time.perf_counter()))

    def p99(self, spans: Iterable[Span]) -> float:
        """The p99 of the canary's times in these spans, in seconds."""
        waits = [wait for span in spans for wait in _within(span, self._asked)]
        return float(np.quantile(waits, 0.99)) if waits else 0.0

    def gap(self, spans: Iterable[Span]) -> float:
        """The longest time of these spans in which no piece of the stream came, in seconds."""
        pieces = [*self._pieces, time.perf_counter()]
        return max((gap for span in spans for gap in _within(span, pairwise(pieces))), default=0.0)

    def late(self, spans: list[Span]) -> str | None:
        """What was slower in these spans than it may be."""
        if self._problem:
            return self._problem
        p99, gap = self.p99(spans), self.gap(spans)
        if p99 > max(LEAST_P99, TIMES_QUIET * self.p99(self._quiet)):
            return f"another client had a p99 of {p99:.2f} s, {self.p99(self._quiet):.2f} s on the quiet server"
        if gap > max(LONGEST_GAP, TIMES_QUIET * self.gap(self._quiet)):
            return f"a stream stood still for {gap:.2f} s, on the quiet server for {self.gap(self._quiet):.2f} s"
        return None

    def during(self, act: Callable[[], str | None]) -> str | None:
        """Do something; say what went wrong, or that the two were late each time that it was done."""
        for _ in range(ATTEMPTS):
            began = time.perf_counter()
            problem = act()
            time.sleep(4 * _PAUSE)  # so that the canary was there even if it took no time
            late = self.late([(began, time.perf_counter())])
            if problem or not late:
                return problem
        return late


def _within(span: Span, times: Iterable[Span]) -> list[float]:
    """How long each of these times is that has a part in a span."""
    return [ended - began for began, ended in times if ended > span[0] and began < span[1]]
