"""Signals and plug-ins, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainrule.system import signals

SWALLOWING = """
import sys, time
from chainrule.cli import main as cli_main

class Bad:
    def __del__(self):
        print("ready", flush=True)
        time.sleep({seconds})  # SystemExit raised here is printed and dropped

def work():
    Bad()
    for _ in range(int({after} * 100)):
        time.sleep(0.01)

import click
cli_main.cli.add_command(click.command("work")(work))
cli_main.main(["work"])
"""


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("after", [0, 20], ids=["at the end", "in the middle"])
def test_a_signal_that_a_destructor_swallows_still_ends_the_process(
    after: int, number: signal.Signals, exit_code: int
) -> None:
    code = SWALLOWING.format(seconds=3, after=after)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(number)
        began = time.monotonic()
        process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert time.monotonic() - began < 10


WRAPPING = """
import os, signal, sys, time
from chainrule.cli import main as cli_main

def work():
    try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(5)
    except BaseException as error:
        raise RuntimeError("some code turns every exception into one of its own") from error

import click
cli_main.cli.add_command(click.command("work")(work))
cli_main.main(["work"])
"""


@pytest.mark.parametrize(("name", "exit_code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_that_becomes_another_exception_still_is_a_stop(name: str, exit_code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRAPPING.format(name=name)], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (exit_code, b"")


CLEANING = """
import sys, time
from chainrule.cli import main as cli_main

def work():
    try:
        print("ready", flush=True)
        time.sleep(30)
    finally:
        time.sleep(2)  # the timer looks here several times
        print("clean", flush=True)

import click
cli_main.cli.add_command(click.command("work")(work))
cli_main.main(["work"])
"""


def test_cleaning_up_is_not_disturbed() -> None:
    with subprocess.Popen([sys.executable, "-c", CLEANING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (signals.EXIT_CODE, b"clean\n")


def test_temporary_files_go_with_a_sigterm(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a line of text\n" * 300_000)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "chainrule", "train", "anygram", "--tokenizer", "word", "a.txt", "--out", "m"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while not list((tmp_path / "tmp").iterdir()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == signals.EXIT_CODE
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "m").exists()


def test_a_long_call_is_given_up_when_a_signal_raises() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            signals.interruptible(lambda: time.sleep(5))
        assert time.monotonic() - began < 3
    finally:
        signal.signal(signal.SIGALRM, before)
    assert signals.interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        signals.interruptible(lambda: 1 // 0)
