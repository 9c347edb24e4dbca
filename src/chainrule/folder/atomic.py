"""Files and folders that appear whole or not at all.

Content is written under a temporary name beside the final one, synced to disk, and then renamed. A folder that is
replaced is first renamed to `.NAME-old-...` and removed last, so that one of the two is on disk at every moment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replaced_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file, open for writing, that takes the place of `path` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with _new_file(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _new_file(path: Path) -> IO[bytes]:
    return path.open("xb")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty temporary folder, which takes the name of `folder` when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        for path in temporary.rglob("*"):
            sync(path)
        sync(temporary)
        _make_as_readable_as_new_files(temporary)
        _put_in_place(temporary, folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(new: Path, folder: Path) -> None:
    """Rename a finished folder to its final name. A folder of that name is removed, or stays on failure."""
    if not folder.exists():
        new.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        new.rename(folder)
    except BaseException:
        (old / folder.name).rename(folder)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)  # only now that the new folder is in place


def _make_as_readable_as_new_files(folder: Path) -> None:
    """Give the folder the permissions that the umask implies: mkdtemp makes folders private."""
    mode = next(path for path in folder.iterdir() if path.is_file()).stat().st_mode & 0o666
    folder.chmod(mode | (mode & 0o444) >> 2)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
