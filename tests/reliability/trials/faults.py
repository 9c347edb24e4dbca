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
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .writers import WRITERS, Writer

SOURCE = Path(__file__).with_name("fault_injection.c")
MODES = {"once": 1, "forever": 2, "short": 3, "killed": 4}


def run(most: int | None = None, names: Iterable[str] = (), control: str = "") -> Counter[str]:
    """All faults, or at most so many of each writer and mode, in a process in which the library is preloaded.

    `names` are those of some writers, and `control` is something to break in chainrule (controls.py).
    """
    found = compiler()
    if found is None:
        raise FileNotFoundError("a C compiler is needed to inject faults")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "fault_injection.so"
        subprocess.run([found, "-shared", "-fPIC", "-O1", SOURCE, "-o", library, "-ldl"], check=True)
        code = (
            "import json, sys; from reliability.trials import controls, faults\n"
            "with controls.broken(sys.argv[2]):\n"
            "    print(json.dumps(faults.inject(int(sys.argv[1]), sys.argv[3:])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(most or 10**9), control, *names],
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc")


def inject(most: int, names: Sequence[str] = ()) -> dict[str, int]:
    """How many faults of each writer and mode were tried, and problems under "wrong: ..."."""
    found = Counter[str]()
    for writer in (writer for writer in WRITERS if not names or writer.name in names):
        warm = Path(tempfile.mkdtemp())
        writer.write(warm, 0)
        writer.version(warm)
        shutil.rmtree(warm)
        for mode, number in MODES.items():
            total = _operations(writer)
            step = max(1, total // most)
            for at in range(1, total + 1, step):
                found[f"{writer.name}, {mode}"] += 1
                problem = _fault(writer, number, at)
                if problem:
                    found[f"wrong: {writer.name}, {mode}, operation {at}: {problem}"] += 1
    return dict(found)


def _operations(writer: Writer) -> int:
    """How many operations that can fail the writer has when it replaces a version."""
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
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
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
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
        library.fault_arm(mode, ctypes.c_long(at), errno.ENOSPC)
        writer.write(folder, 4)
        if mode == MODES["once"] and library.fault_name() == b"fsync":
            said = "success, though a sync failed"
    except OSError as error:
        code, said = 2, "" if error.filename else f"names no file: {error!r}"
    except ChainruleError as error:
        code, said = 2, "" if str(folder) in str(error) else f"names no file: {error!r}"
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
    expected = ((4,) if code == 0 else (2, 4)) if writer.name != "arpa" else (0,)
    if there not in expected:
        return f"exit code {code}, and {there} is there"
    try:
        writer.write(folder, 6)
    except Exception as error:
        return f"the next one fails: {type(error).__name__}: {error}"
    return None
