"""The files of a name on the command line, which is that of a file, a pattern, or a folder."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from chainrule.errors import CorpusError
from chainrule.text.builtin import BUILTIN

Source: TypeAlias = str | Path
"""A file, a folder, a pattern such as "books/*.txt", an address such as "s3://bucket/book.txt" (remote.py),
"-" for standard input, or the name of a text that comes with the package, such as "builtin:shakespeare"."""

_MARKS = ("manifest.json", "compare.json")  # files of folders of chainrule, with _MARK near their start
_MARK = b'"chainrule-'


def find_files(source: Source, patterns: Sequence[str] = ()) -> list[Path]:
    """Return the files of a source; `patterns` select files of a folder."""
    if not str(source):
        raise CorpusError("the name of a file is empty")
    if str(source).startswith("builtin:"):
        raise CorpusError(f"there is no text {str(source)!r}; there is {', '.join(BUILTIN)}")
    path = Path(source)
    if path.is_dir():
        return _files_of_folder(path, patterns)
    if path.exists():
        return [path]
    if glob.has_magic(str(source)):
        found = sorted(p for p in map(Path, glob.glob(str(source), recursive=True)) if p.is_file())  # noqa: PTH207
        if found:
            return found
        raise CorpusError(f"no file matches {str(source)!r}")
    raise CorpusError(f"{path}: no such file")


def _files_of_folder(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of a folder and its subfolders, by name, without hidden ones, models and runs."""
    if _is_ours(folder):
        what = "the folder of a training run" if folder.suffix == ".run" else "a model folder"
        raise CorpusError(f"{folder} is {what}, not a text")
    every = sorted(_walk(folder), key=lambda path: path.relative_to(folder).parts)
    if not every:
        raise CorpusError(f"{folder}: there is no file in this folder (hidden files and models are not counted)")
    chosen = [path for path in every if matches(path.relative_to(folder).as_posix(), patterns)]
    if not chosen:
        wanted = " or ".join(map(repr, patterns))
        counts = Counter(path.suffix or "no ending" for path in every).most_common(5)
        endings = ", ".join(f"{ending}: {count:,}" for ending, count in counts)
        raise CorpusError(f"{folder}: none of its {len(every):,} files matches {wanted} (they have {endings})")
    return chosen


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise CorpusError(f"{error.filename}: {error.strerror}")

    for root, folders, files in os.walk(folder, onerror=refuse):
        here = Path(root)
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_ours(here / name)]
        for name in files:
            if not name.startswith(".") and (here / name).is_file():  # no pipe, no device, no link to nowhere
                yield here / name


def _is_ours(folder: Path) -> bool:
    """Return True if a folder is that of a model, a comparison or a training run."""
    for name in _MARKS:
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                if _MARK in file.read(256):
                    return True
    return folder.suffix == ".run" and (folder / "metrics.jsonl").exists()


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return True if the path of a file matches a pattern; a pattern without a slash is for the last part."""
    last = name.rpartition("/")[2]
    return not patterns or any(fnmatch.fnmatchcase(name if "/" in one else last, one) for one in patterns)
