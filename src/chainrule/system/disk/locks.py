"""Locks on files and folders, which the system releases when their process ends, however it ends.

A locked file has a living owner; a file that can be locked is abandoned. On a system without such locks (Windows,
some network file systems) no file counts as abandoned, so that none is removed.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from chainrule.errors import FolderError

try:
    import fcntl
except ModuleNotFoundError:  # as on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_FRESH_SECONDS = 60.0  # a younger file or folder that is empty may be about to be locked


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock a file or a folder for as long as the block lasts.

    Raises BlockingIOError if a process has locked it, and another OSError if it cannot be locked.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock_open(descriptor)
        yield
    finally:
        os.close(descriptor)


def lock_open(descriptor: int) -> None:
    """Lock an open file or folder until it is closed."""
    if fcntl is None:
        raise OSError("this system has no such locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file or a folder for as long as the block lasts, if the system can."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(exclusive(path))
        yield


def is_abandoned(path: Path) -> bool:
    """Return True if no living process has locked a file or a folder; False if that is not known."""
    try:
        with exclusive(path):
            return True
    except OSError:
        return False


def remove_abandoned(path: Path) -> None:
    """Remove a file or a folder, unless a living process has locked it or may be about to lock it."""
    # an OSError: it is locked, another process removed it, or it belongs to another user
    with suppress(OSError), exclusive(path):
        if not _may_be_new(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _may_be_new(path: Path) -> bool:
    """Return True if this is new and empty: a process may have made it, and not locked it yet."""
    found = path.stat()
    is_empty = not any(path.iterdir()) if path.is_dir() else found.st_size == 0
    return is_empty and abs(time.time() - found.st_mtime) < _FRESH_SECONDS


# -- folders for one process at a time --------------------------------------------------------------------

_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder inside the block; FolderError names one that already does.

    Blocks for one folder may be nested. The folder is created if it is missing, and removed if it is still empty
    at the end.
    """
    folder = folder.absolute()
    if folder in _held.get():
        yield
        return
    is_new = not folder.exists()
    if not is_new and not folder.is_dir():
        raise FolderError(f"{folder} is a file, where a folder is wanted")
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _take(folder)
    token = _held.set(_held.get() | {folder})
    try:
        yield
    finally:
        _held.reset(token)
        if descriptor is not None:
            with suppress(OSError):
                (folder / LOCK).unlink()
            os.close(descriptor)
        if is_new:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def _take(folder: Path) -> int | None:
    """Lock the lock file of a folder, and write its owner into it; return None if the system has no locks."""
    path = folder / LOCK
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            return None  # a read-only folder: writing to it raises the error
        try:
            lock_open(descriptor)
        except BlockingIOError:
            owner = os.read(descriptor, 1000).decode(errors="replace").strip()
            os.close(descriptor)
            raise FolderError(
                f"{folder} is in use by {owner or 'another process'}: wait until it ends, stop it, or choose "
                "another folder"
            ) from None
        except OSError:
            os.close(descriptor)
            return None
        # the previous owner may have removed the file after it was opened here
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                with suppress(OSError):  # the disk is full or broken: the lock works without a name
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, _owner().encode())
                return descriptor
        os.close(descriptor)


def _owner() -> str:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv and sys.argv[0] else ["python"]
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {platform.node()} since {since} ({shlex.join(words)[:200]})"
