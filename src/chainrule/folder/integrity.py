"""Sizes and checksums of files, and errors that name the format of a file that does not match them.

A model is loaded only if every file that affects a score is, byte for byte, the file that was written. Files of up
to 256 MB are read and compared each time. Reading a larger one takes seconds, so it is compared when it is first
loaded, and again when its device, inode, size or times of change differ from those kept in `.verified.json` beside
it. `chainrule inspect` compares all files.
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
"""The file that keeps the identities of verified large files."""
_VERIFY_UP_TO = 256 << 20  # larger files are not read each time they are loaded

_FOREIGN: tuple[tuple[tuple[bytes, ...], str], ...] = (
    ((b"<!doctype html", b"<html"), "a web page, as failed downloads leave; download the file again"),
    ((b"version https://git-lfs",), "a git-LFS pointer, not the file itself; run `git lfs pull`"),
    (
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "a pickle, which chainrule never loads because loading one runs its code",
    ),
    ((b"PK\x03\x04",), "a zip archive (torch.save writes such pickles), which chainrule never loads"),
)
"""How files of other formats begin, in small letters where letters do not matter, and what they are."""


def files_in(folder: Path) -> dict[str, Any]:
    """Return the size and checksum of each file of a folder, as a manifest lists them."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files}


def sha256(path: Path) -> str:
    """Return the checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, entry: Mapping[str, Any], verify: bool | None) -> None:
    """Refuse a file whose size or checksum differs from its entry in the manifest.

    The checksum is computed for files up to 256 MB, and for larger ones that may have changed since they were
    verified; for all files if `verify` is True, for none if it is False.
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
    elif (known := identity(path, entry)) == _known(path.parent).get(path.name) and verify is None:
        return
    if sha256(path) != entry.get("sha256"):
        raise what_it_is(path, "its checksum differs from what was written")
    if known is not None:  # the identity before reading: a change during the reading is noticed the next time
        remember(path, known)


# -- large files that were verified -----------------------------------------------------------------------


def remember(path: Path, of_file: list[Any]) -> None:
    """Note the identity of a verified file; in a read-only folder it is not noted, and verified each time."""
    known = {**_known(path.parent), path.name: of_file}
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


def identity(path: Path, entry: Mapping[str, Any]) -> list[Any]:
    """Return values that change when a file is replaced or written to, and its expected checksum."""
    found = path.stat()
    times = found.st_mtime_ns, found.st_ctime_ns
    return [found.st_dev, found.st_ino, found.st_size, *times, entry.get("sha256")]


def what_it_is(path: Path, problem: str) -> FolderError:
    """Return the error for a file that is not the one that was written; it names a known foreign format."""
    with path.open("rb") as file:
        head = file.read(512)
    for starts, foreign in _FOREIGN:
        if head.startswith(starts) or head.lstrip().lower().startswith(starts):
            return ForeignFileError(f"{path}: this is {foreign}")
    return DamagedFileError(f"{path}: damaged: {problem}; copy the folder again, or train the model again")
