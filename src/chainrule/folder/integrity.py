"""Sizes and checksums of files, and errors that say what a file is that fails them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainrule.errors import DamagedFileError, FolderError, ForeignFileError

_VERIFY_UP_TO = 256 << 20  # larger files are verified by `chainrule inspect` only: they must open at once


def files_in(folder: Path) -> dict[str, Any]:
    """Size and checksum of each file of a folder, as a manifest lists them; `check_file` compares."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files}


def sha256(path: Path) -> str:
    """The checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, entry: Mapping[str, Any], verify: bool | None) -> None:
    """Refuse a file whose size or checksum is not the one its entry in the manifest gives.

    The checksum is computed for files up to 256 MB; for all files if `verify` is True, for none if it is False.
    """
    if not path.is_file():
        raise DamagedFileError(f"{path}: missing; copy the whole folder again, or train the model again")
    size, written = path.stat().st_size, entry.get("bytes")
    if size != written:
        expected = f"{written:,}" if isinstance(written, int) else "another number"
        raise what_it_is(path, f"{size:,} bytes where {expected} were written")
    if (size <= _VERIFY_UP_TO if verify is None else verify) and sha256(path) != entry.get("sha256"):
        raise what_it_is(path, "its checksum differs from what was written")


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
