"""Signals to stop: noted until a step is done, turned into an exit, handled during a long call of a library."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM stopped."""
EXIT_CODES = (128 + signal.SIGINT, EXIT_CODE)
"""The exit codes of a process that a signal stopped."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_SECONDS = 0.5
_WAIT_SECONDS = 0.1  # the longest that a signal waits to be handled
_QUICK_SECONDS = 0.1  # a stop that takes no longer is not announced


def interruptible(work: Callable[[], Result]) -> Result:
    """Return the result of one long call of a library, and handle signals during it.

    Python handles signals in the main thread, between its own instructions: so the main thread waits here, and the
    call runs in another one. If a signal raises an exception, the call is abandoned, and its thread ends with the
    process at the latest.
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


def end_process(code: int) -> NoReturn:
    """End the process at once, as after a signal, while threads of libraries may still work.

    At a normal end of Python such a thread could not return to it, and the C library would abort the process.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # closed, a pipe that nobody reads, or in use just now
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

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            return
        self.__exit__()
        signal.raise_signal(number)


class Acknowledgement:
    """Tells the user at once that a signal to stop was received, even while the main thread is busy.

    Python handles a signal only when the call of a library that the main thread is in has returned, and a training
    step or a checkpoint may take seconds after that. The handler in C writes to a pipe without delay; a thread that
    reads from the pipe calls `say`, unless the process ends right away.
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
        """Stop listening for signals."""
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
    """Raises SystemExit in the main thread on SIGTERM, and KeyboardInterrupt on SIGINT.

    Python drops an exception that is raised inside a destructor or a callback from C: it prints the exception, and
    the program goes on. So a timer checks twice a second whether the exception is being handled, by `finally` and
    `except` blocks that clean up, and raises it again if it is not.

    A library in C++ that is being imported may abort the process if its initialisation raises; so `at_once`, which
    ends the process, is called with the exit code in place of that, where it is given.
    """

    def __init__(self, at_once: Callable[[int], object] | None = None) -> None:
        self.received: int | None = None
        self._at_once = at_once
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # Python allows it only there
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._exit)
            # a shell may have set SIGINT to be ignored
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._exit)

    def end(self) -> None:
        """Restore the handlers; if a signal was received and its exception dropped, raise it now."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        self._raise()

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if hasattr(signal, "setitimer") and signal.SIGALRM not in self._before:
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda number, frame: self._raise())
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)
        if self._at_once is not None and _is_importing(frame):
            self._at_once(128 + number)
        raise _exception(number)

    def _raise(self) -> None:
        if self.received is not None and not _is_exiting():
            raise _exception(self.received)


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    """Return True if a module is being imported in a frame, or in one that called it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _is_exiting() -> bool:
    """Return True if the main thread is handling the exception of a signal, or one that followed from it."""
    error: BaseException | None = sys.exception()
    while error is not None:
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            return True
        error = error.__context__
    return False
