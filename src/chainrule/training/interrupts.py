"""Signals to stop, deferred to the end of a step."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A block in which the first SIGINT or SIGTERM is only noted in `received`; a second one acts as usual.

    With `on=False`, or outside the main thread, signals are left alone.
    """

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.received: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if self.on and threading.current_thread() is threading.main_thread():  # Python allows it only there
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            return
        self.__exit__(None, None, None)
        signal.raise_signal(number)
