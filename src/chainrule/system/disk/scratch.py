"""Temporary files and folders, in the system's folder for them (TMPDIR).

Each is locked while its process lives. Those of a killed process are removed by the next one that needs some.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

from chainrule.system.disk.atomic import naming
from chainrule.system.disk.locks import lock_open, locked, remove_abandoned

PREFIX = "chainrule-scratch-"

ScratchFile: TypeAlias = "tempfile._TemporaryFileWrapper[bytes]"

_files: weakref.WeakSet[ScratchFile] = weakref.WeakSet()


@contextmanager
def scratch_folder(below: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder that is removed after the block; it is made in `below`, or in TMPDIR."""
    sweep_scratch(below)
    with (
        tempfile.TemporaryDirectory(prefix=_own_prefix(), dir=below, ignore_cleanup_errors=True) as name,
        locked(Path(name)),
    ):
        yield Path(name)


def scratch_file(suffix: str = "") -> ScratchFile:
    """Return a temporary file, open for writing, which is removed with the returned object."""
    sweep_scratch()
    file = tempfile.NamedTemporaryFile(prefix=_own_prefix(), suffix=suffix)  # noqa: SIM115 (lives with its owner)
    _files.add(file)
    # the traceback of an error may keep the file in a cycle, whose parts are finalised in any order
    weakref.finalize(file, file.file.close).atexit = False
    with suppress(OSError):
        lock_open(file.fileno())
    return file


@contextmanager
def scratch_file_at(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file in a scratch folder, which gets its name when it is complete; it is not synced to disk.

    Two workers may write the same file, if one was taken for dead: until then each has a file of its own.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with naming(path, part), part.open("wb") as file:
        yield file
    part.replace(path)


def close_scratch_files() -> None:
    """Close the temporary files of this process, which removes them."""
    for file in list(_files):
        with suppress(OSError):
            file.close()
    # a signal may come after a file is made, and before it is known here
    for left in Path(tempfile.gettempdir()).glob(f"{_own_prefix()}*"):
        with suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def sweep_scratch(below: Path | None = None) -> None:
    """Remove the temporary files and folders of this user's killed processes."""
    try:
        found = [entry for entry in os.scandir(below or tempfile.gettempdir()) if entry.name.startswith(PREFIX)]
    except OSError:
        return
    user = os.getuid() if hasattr(os, "getuid") else None
    for entry in found:
        with suppress(OSError):  # another process removed it meanwhile
            is_own = user is None or entry.stat(follow_symlinks=False).st_uid == user
            if is_own and not _is_of_living(entry.name):
                remove_abandoned(Path(entry.path))


def _own_prefix() -> str:
    return f"{PREFIX}{os.getpid()}-"


def _is_of_living(name: str) -> bool:
    """Return True if the process that made a file lives: it unlocks the file a moment before it removes it."""
    number = name.removeprefix(PREFIX).partition("-")[0]
    if os.name != "posix" or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # signal 0 asks whether there is such a process
    except OSError:
        return False
    return True
