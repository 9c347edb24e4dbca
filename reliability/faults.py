"""Every operation on files of each writer that fails, once, from then on or half-way, or at which it is killed.

The operations are those of the C library (fault_injection.c), counted one by one. Afterwards the old version is
there or the new one, whole; a writer that reported success wrote the new one, and synced it; an error names a file;
and the writer succeeds once the disk is well again.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .controls import broken
from .frame import FAST, Trial
from .writers import COMMANDS, NOTES, WRITERS, Writer

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).with_name("fault_injection.c")
SMALL = ["model folder", "mixture", "checkpoint", "ids of words", "arpa", "report", "spill"]
"""The writers of a small run."""
MODES = {"once": 1, "forever": 2, "short": 3, "killed": 4}


def run(trial: Trial) -> None:
    """Inject faults in a process in which the library is preloaded; `count` is the most of each writer and mode."""
    seconds = trial.ends - time.monotonic()
    told = {"most": trial.count, "only": [*trial.only], "control": trial.control, "seconds": min(seconds, 1e9)}
    told["small"] = trial.small
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "fault_injection.so"
        subprocess.run([str(compiler()), "-shared", "-fPIC", "-O1", SOURCE, "-o", library, "-ldl"], check=True)
        done = subprocess.run(
            [sys.executable, "-m", "reliability.faults", json.dumps(told)],
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    tries, lost = json.loads(done.stdout.splitlines()[-1])
    trial.tries.update(tries)
    trial.lost.update(lost)


def needs() -> str | None:
    """Why faults cannot be injected here."""
    return None if compiler() else "it needs a C compiler"


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc")


def inject(trial: Trial) -> None:
    """Let each operation of each writer fail in each way, in this process's children."""
    writers = {writer.name: writer for writer in [*WRITERS, *COMMANDS]}
    for name in trial.chosen(SMALL if trial.small and not trial.only else list(writers)):
        writer = writers[name]
        _operations(writer)  # the first time there is more to do: what is compiled or cached
        total = _operations(writer)
        for mode, number in MODES.items():
            places = range(1, total + 1, max(1, total // trial.count))
            for at in places:
                if trial.is_over:
                    return
                trial.note(f"{name}, {mode}", _fault(writer, number, at))


def _operations(writer: Writer) -> int:
    """How many operations that can fail the writer has when it replaces a version."""
    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=FAST))
    writer.write(folder, 2)
    library = ctypes.CDLL(None)
    library.fault_count.restype = ctypes.c_long
    library.fault_arm(MODES["once"], ctypes.c_long(10**9), 0)
    writer.write(folder, 4)
    count = int(library.fault_count())
    library.fault_arm(0, ctypes.c_long(0), 0)
    shutil.rmtree(folder)
    return count


def _fault(writer: Writer, mode: int, at: int) -> str | None:
    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=FAST))
    try:
        writer.write(folder, 2)
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            _write_with_fault(writer, folder, mode, at, send)
        os.close(send)
        said = b""
        while piece := os.read(receive, 1 << 16):
            said += piece
        os.close(receive)
        _, status = os.waitpid(child, 0)
        return _judged(writer, folder, os.waitstatus_to_exitcode(status), said.decode())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_with_fault(writer: Writer, folder: Path, mode: int, at: int, send: int) -> None:
    from chainrule.errors import ChainruleError

    library = ctypes.CDLL(None)
    library.fault_name.restype = ctypes.c_char_p
    code, said = 0, ""
    try:
        library.fault_arm(mode, ctypes.c_long(at), (errno.ENOSPC, errno.EIO)[at % 2])
        writer.write(folder, 4)
        is_told = any("could not be written" in note for note in NOTES)
        if mode == MODES["once"] and library.fault_name() == b"fsync" and not is_told:
            said = "success, though a sync failed"
    except OSError as error:
        code, said = 2, "" if error.filename else f"names no file: {error!r}"
    except ChainruleError as error:
        is_named = any(place in str(error) for place in (str(folder), tempfile.gettempdir()))
        code, said = 2, "" if is_named else f"names no file: {error!r}"
    except BaseException as error:
        code, said = 1, repr(error)
    library.fault_arm(0, ctypes.c_long(0), 0)
    os.write(send, said.encode())
    os._exit(code)


def _judged(writer: Writer, folder: Path, code: int, said: str) -> str | None:
    if code not in (0, 2, -signal.SIGKILL) or said:
        return f"exit code {code}: {said}"
    try:
        there = writer.version(folder)
    except Exception as error:
        return f"exit code {code}, then {type(error).__name__}: {error}"
    if there not in [writer.shown(number) for number in ((4,) if code == 0 else (2, 4))]:
        return f"exit code {code}, and {there} is there"
    try:
        writer.write(folder, 6)
    except Exception as error:
        return f"the next one fails: {type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    injected = Trial(asked["most"], seconds=asked["seconds"], small=asked["small"], only=asked["only"])
    with broken(asked["control"]):
        inject(injected)
    print(json.dumps([injected.tries, injected.lost]))
