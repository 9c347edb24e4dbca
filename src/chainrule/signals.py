"""Signals to stop: noted until a step is done, turned into an exit, heard during a long call of a library."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that was told to stop."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_SECONDS = 0.5
_WAIT_SECONDS = 0.1  # the longest that a signal waits to be handled


def interruptible(work: Callable[[], Result]) -> Result:
    """The result of one long call of a library, during which signals are heard.

    Python handles signals between its own instructions, in the main thread: that one waits here. If a signal raises
    an exception, the call is given up: its thread ends with the process at the latest.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_WAIT_SECONDS)
    if errors:
        raise errors[0]
    return results[0]


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


class Termination:
    """Turns SIGTERM into SystemExit, raised in the main thread wherever it is.

    Python drops an exception that is raised inside a destructor, a callback from C, or the like: it prints it, and
    the program goes on. So a timer looks twice a second whether the exit is under way, and raises it once more if
    it is not. It is under way while `finally` and `except` blocks, which clean up, handle the SystemExit.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # Python allows it only there
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._exit)

    def end(self) -> None:
        """Leave signals as they were; if SIGTERM was received and dropped, exit now."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        if self.received and not _is_exiting():
            sys.exit(EXIT_CODE)

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        if hasattr(signal, "setitimer") and signal.SIGALRM not in self._before:
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)
        sys.exit(EXIT_CODE)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if not _is_exiting():
            sys.exit(EXIT_CODE)


def _is_exiting() -> bool:
    """Whether a SystemExit is being handled in the main thread, or an exception that one led to."""
    error: BaseException | None = sys.exception()
    while error is not None:
        if isinstance(error, SystemExit):
            return True
        error = error.__context__
    return False
