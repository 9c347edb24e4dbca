"""Sizes and checksums of files, and errors that say what a file is that fails them.

What is promised: a model is loaded only if every file that decides a score is, byte for byte, the file that was
written. Files of up to 256 MB are read and compared each time. Reading a larger one takes seconds, so it is
compared when it is first loaded, and again whenever the system says that it is another file or has changed since:
device, inode, size and the times of the last changes are kept in `.verified.json` beside it. `chainrule inspect`
reads all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from chainrule.errors import DamagedFileError, FolderError, ForeignFileError
from chainrule.system.disk import replaced_file

VERIFIED = ".verified.json"
"""What is known of large files that were found right."""
_VERIFY_UP_TO = 256 << 20  # larger files are not read each time they are loaded


def files_in(folder: Path) -> dict[str, Any]:
    """Size and checksum of each file of a folder, as a manifest lists them; `check_file` compares."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files}


def sha256(path: Path) -> str:
    """Return the checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, entry: Mapping[str, Any], verify: bool | None) -> None:
    """Refuse a file whose size or checksum is not the one its entry in the manifest gives.

    The checksum is computed for files up to 256 MB, and for larger ones that may have changed since they were found
    right; for all files if `verify` is True, for none if it is False.
    """
    if not path.is_file():
        raise DamagedFileError(f"{path}: missing; copy the whole folder again, or train the model again")
    size, written = path.stat().st_size, entry.get("bytes")
    if size != written:
        expected = f"{written:,}" if isinstance(written, int) else "another number"
        raise what_it_is(path, f"{size:,} bytes where {expected} were written")
    if verify is False:
        return
    if not is_large(path):
        known = None
    elif (known := _identity(path, entry)) == _known(path.parent).get(path.name) and verify is None:
        return
    if sha256(path) != entry.get("sha256"):
        raise what_it_is(path, "its checksum differs from what was written")
    if known is not None:  # as it was before it was read: a change during the reading is seen the next time
        _remember(path, known)


# -- large files that were found right --------------------------------------------------------------------


def remember(path: Path, entry: Mapping[str, Any]) -> None:
    """Note that a large file is right as it is now."""
    _remember(path, _identity(path, entry))


def _remember(path: Path, identity: list[Any]) -> None:
    """Note that a large file with this identity is right; a folder that cannot be written to is read each time."""
    known = {**_known(path.parent), path.name: identity}
    with suppress(OSError), replaced_file(path.parent / VERIFIED) as file:
        file.write(json.dumps(known).encode())


def is_large(path: Path) -> bool:
    """Return True if a file is so large that it is not read each time it is loaded."""
    return path.stat().st_size > _VERIFY_UP_TO


def _known(folder: Path) -> dict[str, Any]:
    try:
        known = json.loads((folder / VERIFIED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _identity(path: Path, entry: Mapping[str, Any]) -> list[Any]:
    """What changes when a file is replaced or written to, and the checksum that it should have."""
    found = path.stat()
    times = found.st_mtime_ns, found.st_ctime_ns
    return [found.st_dev, found.st_ino, found.st_size, *times, entry.get("sha256")]


def what_it_is(path: Path, problem: str) -> FolderError:
    """The error for a file that is not what was written: a known foreign format is named, else it is damaged."""
    with path.open("rb") as file:
        head = file.read(512)
    start = head.lstrip().lower()
    foreign = None
    if start.startswith((b"<!doctype html", b"<html")):
        foreign = "a web page, as failed downloads leave; download the file again"
    elif head.startswith(b"version https://git-lfs"):
        foreign = "a git-LFS pointer, not the file itself; run `git lfs pull`"
    elif head.startswith(b"\x80") and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        foreign = "a pickle, which chainrule never loads because loading one runs its code"
    elif head.startswith(b"PK\x03\x04"):
        foreign = "a zip archive (torch.save writes such pickles), which chainrule never loads"
    if foreign:
        return ForeignFileError(f"{path}: this is {foreign}")
    return DamagedFileError(f"{path}: damaged: {problem}; copy the folder again, or train the model again")
