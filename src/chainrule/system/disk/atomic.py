"""Files and folders that are written whole or not at all.

Content is written under a temporary name beside the final one, synced to disk, and then given its final name. An
existing folder is replaced by exchanging the two names in one step. If the system cannot do that, the old folder is
first renamed; `recover` puts it back if the process is killed before the new one has its name.

    .NAME.part-1a2b3c4d    being written; locked while its process lives
    .NAME.old-1a2b3c4d     being replaced, where names cannot be exchanged
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from chainrule.system.disk.locks import is_abandoned, locked, remove_abandoned

_PART, _OLD = ".part-", ".old-"
_LEGACY_OLD = "-old-"  # earlier versions moved the folder that they replaced to `.NAME-old-12345678/NAME`

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Linux's names


@contextmanager
def naming(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Let OSErrors inside the block name `path` unless they name a file; a full disk is reported without a name.

    A temporary name, of a file or of the folder that it is in, is replaced by the final one.
    """
    try:
        yield
    except OSError as error:
        named = str(path) if error.filename is None else str(error.filename)
        if temporary is not None and (named == str(temporary) or named.startswith(f"{temporary}{os.sep}")):
            named = str(path) + named.removeprefix(str(temporary))
        if named == str(error.filename) or (error.errno is None and type(error) is not OSError):
            raise
        # NumPy reports a file that it could not write whole by a plain OSError without a number
        reason = error.strerror or f"could not be written whole ({error}); is the disk full?"
        raise OSError(error.errno or errno.EIO, reason, named) from error


@contextmanager
def replaced_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, open for writing, that takes the place of `path` when the block ends without an error."""
    with replaced_path(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def replaced_path(path: Path) -> Iterator[Path]:
    """Yield the name of a new, empty file that takes the place of `path` when the block ends without an error.

    A pipe or a device, such as /dev/stdout, is written to as it is.
    """
    if path.exists() and not path.is_file():
        with naming(path):
            yield path
        return
    if path.is_symlink():
        path = path.resolve()  # the file that it points to is replaced, not the link
    sweep(path)
    temporary = _temporary(path, _PART)
    with naming(path, temporary):
        temporary.open("xb").close()
        try:
            with locked(temporary):
                yield temporary
                sync(temporary)
                temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder, which takes the name of `folder` when the block ends without an error."""
    if folder.is_symlink():
        folder = folder.resolve()
    temporary = _temporary(folder, _PART)
    with naming(folder, temporary):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        temporary.mkdir()
        try:
            with locked(temporary):
                yield temporary
                for path in temporary.rglob("*"):
                    sync(path)
                sync(temporary)
                _put_in_place(temporary, folder)
                sync(folder.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def remove_folder(folder: Path) -> None:
    """Rename a folder and remove it, so that no part of it is ever taken for the whole."""
    nameless = _temporary(folder, _PART)
    folder.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)


def _put_in_place(new: Path, folder: Path) -> None:
    """Give a finished folder its final name. An older folder of that name is removed, but kept if that fails."""
    if not folder.exists():
        new.rename(folder)
    elif _exchange(new, folder):
        shutil.rmtree(new, ignore_errors=True)  # the old one, which has this name now
    else:
        old = _temporary(folder, _OLD)
        with locked(folder):  # so that no other process removes it as abandoned
            folder.rename(old)
            try:
                new.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; return False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


# -- remains of killed processes --------------------------------------------------------------------------


def sweep(path: Path) -> None:
    """Remove the temporary files of killed processes that wrote `path`; those of living processes stay."""
    recover(path)
    for left in _leftovers(path, _PART, *((_OLD, _LEGACY_OLD) if path.exists() else ())):
        remove_abandoned(left)


def recover(folder: Path) -> None:
    """Put back a folder if a process was killed while it replaced the folder, between two renames."""
    if os.path.lexists(folder):
        return
    legacy = _leftovers(folder, _LEGACY_OLD)
    for old in [*_leftovers(folder, _OLD), *(place / folder.name for place in legacy)]:
        if is_abandoned(old):
            with suppress(OSError):  # another process was faster, or the folder is read-only
                old.rename(folder)
                return


def _temporary(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}{what}{secrets.token_hex(4)}")


def _leftovers(path: Path, *what: str) -> list[Path]:
    """Return the files and folders beside `path` that have a temporary name of it."""
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 (much faster than iterdir in a folder of many files)
    except OSError:
        return []
    starts = tuple(f".{path.name}{one}" for one in what)
    return [path.with_name(name) for name in names if name[:-8] in starts]


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
