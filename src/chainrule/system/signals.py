"""Signals to stop: noted until a step is done, turned into an exit, heard during a long call of a library."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that was told to stop by SIGTERM."""
EXIT_CODES = (128 + signal.SIGINT, EXIT_CODE)
"""The exit codes of a process that was told to stop."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_SECONDS = 0.5
_WAIT_SECONDS = 0.1  # the longest that a signal waits to be handled
_QUICK_SECONDS = 0.1  # a stop that takes no longer needs no announcement


def interruptible(work: Callable[[], Result]) -> Result:
    """Return the result of one long call of a library, during which signals are heard.

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


def end_process(code: int) -> None:
    """End the process at once, as after a signal: threads of libraries may be in the middle of their work.

    When Python ends in its usual way, such a thread cannot come back to it, and the C library aborts the process.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            stream.flush()
    os._exit(code)


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


class Acknowledgement:
    """Tells the user that a signal to stop was received, at once, whatever the main thread is doing.

    Python handles a signal only when the call of a library that the main thread is in has returned, and a training
    step or a checkpoint may take seconds after that. The handler in C, though, writes to a pipe without delay; a
    thread that reads from it calls `say`, unless the process ends right away.
    """

    def __init__(self, say: Callable[[], None]) -> None:
        self._say, self._ended = say, threading.Event()
        self._writer: int | None = None
        if threading.current_thread() is not threading.main_thread():  # Python allows it only there
            return
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(reader,), daemon=True).start()

    def end(self) -> None:
        """Stop listening: what comes now is said by whoever ends the process."""
        self._ended.set()
        if self._writer is not None:
            signal.set_wakeup_fd(self._before)
            os.close(self._writer)
            self._writer = None

    def _listen(self, reader: int) -> None:
        with open(reader, "rb", buffering=0) as pipe:
            while received := pipe.read(64):
                if set(received) & set(_SIGNALS) and not self._ended.wait(_QUICK_SECONDS):
                    self._say()


class Termination:
    """Turns SIGTERM into SystemExit and SIGINT into KeyboardInterrupt, raised in the main thread wherever it is.

    Python drops an exception that is raised inside a destructor, a callback from C, or the like: it prints it, and
    the program goes on. So a timer looks twice a second whether the exit is under way, and raises it once more if
    it is not. It is under way while `finally` and `except` blocks, which clean up, handle the exception.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # Python allows it only there
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._exit)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._exit)

    def end(self) -> None:
        """Leave signals as they were; if one was received and its exception dropped, raise it now."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        self._raise()

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if hasattr(signal, "setitimer") and signal.SIGALRM not in self._before:
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)
        raise _exception(number)

    def _look(self, number: int, frame: FrameType | None) -> None:
        self._raise()

    def _raise(self) -> None:
        if self.received is not None and not _is_exiting():
            raise _exception(self.received)


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _is_exiting() -> bool:
    """Return True if the exception of a signal is being handled in the main thread, or one that it led to."""
    error: BaseException | None = sys.exception()
    while error is not None:
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            return True
        error = error.__context__
    return False
