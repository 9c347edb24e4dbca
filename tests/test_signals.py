"""Tests that signals are acknowledged at once, also while a library keeps the main thread busy."""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from chainrule.system.signals import Acknowledgement, Interrupts, Termination


def busy(seconds: float) -> None:
    """Call a library several times; each call takes a while, in which Python handles no signal."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1_000_000)


def test_a_signal_is_acknowledged_before_the_work_is_done() -> None:
    said: list[float] = []
    acknowledgement = Acknowledgement(lambda: said.append(time.perf_counter()))
    sent: list[float] = []

    def send() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with Interrupts() as interrupts:
            threading.Timer(0.05, send).start()
            busy(0.5)
            done = time.perf_counter()
            assert interrupts.received == signal.SIGINT
    finally:
        acknowledgement.end()
    assert len(said) == 1
    assert sent[0] < said[0] < done


def test_a_process_that_ends_at_once_prints_nothing() -> None:
    said: list[None] = []
    acknowledgement = Acknowledgement(lambda: said.append(None))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    acknowledgement.end()
    time.sleep(0.2)  # twice as long as it would wait
    assert said == []


def test_other_signals_are_not_acknowledged() -> None:
    said: list[None] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    acknowledgement = Acknowledgement(lambda: said.append(None))
    try:
        signal.raise_signal(signal.SIGUSR1)
        time.sleep(0.2)
    finally:
        acknowledgement.end()
        signal.signal(signal.SIGUSR1, before)
    assert said == []
    assert signal.set_wakeup_fd(-1) == -1  # as it was


def test_a_signal_during_an_import_ends_the_process_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception there may be raised inside the initialisation of a library in C++, which aborts."""
    (tmp_path / "slow_to_import.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\n")
    monkeypatch.syspath_prepend(tmp_path)
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise ImportError("the process has ended")

    termination = Termination(end)
    try:
        with pytest.raises(ImportError, match="has ended"):
            importlib.import_module("slow_to_import")
        assert codes == [143]
        termination.received = None
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)  # outside of an import, blocks come to their ends
        assert codes == [143]
    finally:
        termination.received = None
        termination.end()


def test_a_process_ends_even_if_what_cleans_up_is_just_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error there would be dropped by code that tries imports, and the process would go on."""
    from chainrule.cli import main

    codes: list[int] = []
    monkeypatch.setattr(main, "end_process", codes.append)
    monkeypatch.setitem(sys.modules, "chainrule.system.disk.scratch", ModuleType("chainrule.system.disk.scratch"))
    main._stop_importing(143)
    assert codes == [143]
