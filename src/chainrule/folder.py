"""The model folder: how a model lies on disk.

    manifest.json      format version, kind, configuration, context, provenance, checksums
    model.safetensors  every array of every family; memory-mapped, never pickled
    tokenizer.json     text <-> ids
    metrics.json       what was measured of it
    README.md          a model card

A folder is written under a temporary name, synced and renamed: it is there whole or not at all. One that it
replaces is first renamed to `.NAME-old-...` and removed last, so that a model is on disk at every moment. Files
never decide what code runs: the manifest names a kind, and only kinds that chainrule knows are loaded.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from chainrule.errors import DamagedFileError, FolderError, ForeignFileError
from chainrule.tokens.registry import FILE_NAME as TOKENIZER

FORMAT = "chainrule-model"
VERSION = 1
MANIFEST, TENSORS, METRICS, CARD = "manifest.json", "model.safetensors", "metrics.json", "README.md"
_BYTES_AT_ONCE = 64 << 20
_VERIFY_UP_TO = 256 << 20  # larger files are verified by `chainrule inspect` only: they must open at once

Tensors: TypeAlias = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ModelFolder:
    """The content of a model folder."""

    kind: str
    config: Mapping[str, Any]
    context: Literal["line", "stream"]
    tokenizer: str
    """The content of tokenizer.json."""
    tensors: Tensors
    provenance: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def tensor(self, name: str) -> np.ndarray:
        """One array, still on disk."""
        if name not in self.tensors:
            raise DamagedFileError(
                f"{self.path}: {TENSORS} has no array {name!r}, which the kind {self.kind!r} needs"
            )
        return np.asarray(self.tensors[name])


def write_folder(folder: str | Path, model: ModelFolder, *, overwrite: bool = False) -> None:
    """Write a model folder; one that exists is replaced only if it is a model folder and `overwrite` is set."""
    folder = Path(folder)
    check_destination(folder, overwrite=overwrite)
    with new_folder(folder) as temporary:
        _write_files(temporary, model)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the name of `folder` once it is filled, manifest included, and synced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        _make_as_readable_as_new_files(temporary)
        _put_in_place(temporary, folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(new: Path, folder: Path) -> None:
    """Give a finished folder its name; what has that name now goes away, or stays if this fails."""
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
    shutil.rmtree(old, ignore_errors=True)  # only now that the new one is there


def check_destination(folder: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a destination now rather than after an hour of training."""
    folder = Path(folder)
    if folder.name in ("", "..") or folder.resolve() == Path.cwd():
        raise FolderError(f"{folder} has no name of its own that a model could take; choose another --out")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        raise FolderError(f"{folder}: {above} is a file, not a folder; choose another --out")
    if not os.access(above, os.W_OK | os.X_OK):
        raise FolderError(f"{folder}: nothing can be written into {above}; choose another --out")
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        if not (folder / MANIFEST).is_file():
            raise FolderError(f"{folder} exists and is not a model folder; choose another one")
        if not overwrite:
            raise FolderError(
                f"{folder} exists; choose another folder, or overwrite it (--overwrite, overwrite=True)"
            )


def read_folder(folder: str | Path, *, verify: bool | None = None) -> ModelFolder:
    """Read a model folder; arrays stay on disk until they are used.

    Checksums are verified for files up to 256 MB, with verify=True for all, with verify=False for none.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    for name, entry in manifest["files"].items():
        if verify or name != CARD:  # whoever adds a note to it breaks nothing
            check_file(folder / name, entry, verify)
    return ModelFolder(
        kind=manifest["kind"],
        config=manifest["config"],
        context=manifest["context"],
        tokenizer=_read_text(folder / TOKENIZER),
        tensors=map_tensors(folder / TENSORS),
        provenance=manifest["provenance"],
        metrics=_read_metrics(folder / METRICS),
        path=folder,
    )


def megabytes(folder: str | Path) -> float:
    """The size of everything in a folder, in MB (10^6 bytes)."""
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6


# -- writing ----------------------------------------------------------------------------------------------


def _write_files(folder: Path, model: ModelFolder) -> None:
    write_tensors(folder / TENSORS, model.tensors)
    (folder / TOKENIZER).write_text(model.tokenizer, encoding="utf-8")
    (folder / METRICS).write_text(to_json(model.metrics, indent=2), encoding="utf-8")
    (folder / CARD).write_text(_card(model), encoding="utf-8")
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "kind": model.kind,
        "config": dict(model.config),
        "context": model.context,
        "provenance": dict(model.provenance),
        "files": files_in(folder),
    }
    (folder / MANIFEST).write_text(to_json(manifest, indent=2), encoding="utf-8")


def files_in(folder: Path) -> dict[str, Any]:
    """Size and checksum of each file, as a manifest has them; `check_file` compares."""
    return {file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())}


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON by the letter of its grammar: infinity is 1e999, which reads back as infinity, and NaN is null."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    standard = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}
    return _STRINGS_AND_CONSTANTS.sub(lambda found: standard.get(found[0], found[0]), text)


_STRINGS_AND_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')


def _card(model: ModelFolder) -> str:
    lines = [
        f"# A language model of kind `{model.kind}`",
        "",
        f"Made by chainrule; context: {model.context}.",
        "",
    ]
    for title, table in (
        ("Configuration", model.config),
        ("Measured", model.metrics),
        ("Provenance", model.provenance),
    ):
        if table:
            lines += [f"## {title}", "", "| | |", "| --- | --- |"]
            lines += [f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in table.items()]
            lines.append("")
    lines += [
        "Load it with `chainrule.load(folder)`, or use it with `chainrule generate` and `chainrule evaluate`.",
        "",
    ]
    return "\n".join(lines)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_as_readable_as_new_files(folder: Path) -> None:
    """mkdtemp makes folders private; the umask, as a file just written shows it, decides instead."""
    mode = (folder / MANIFEST).stat().st_mode & 0o666
    folder.chmod(mode | (mode & 0o444) >> 2)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, tensors: Tensors) -> None:
    """A safetensors file, an array after the other: the library's own writer first copies all of them."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    # wide types first, so that each array begins at a multiple of its width
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header, end = {}, 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            data = arrays[name].reshape(-1).view(np.uint8)
            for first in range(0, len(data), _BYTES_AT_ONCE):
                file.write(data[first : first + _BYTES_AT_ONCE].data)
                _give_back(data)


def _give_back(array: np.ndarray) -> None:
    """An array that is mapped from a file need not stay in memory once it was read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and hasattr(base._mmap, "madvise"):  # type: ignore[attr-defined]
            base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        base = base.base


# -- reading ----------------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise FolderError(f"{folder}: {'not a folder' if folder.exists() else 'no such model folder'}")
    path = folder / MANIFEST
    if not path.is_file():
        inside = sorted(manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}"))
        hint = f", but models in it: {', '.join(inside)}" if inside else ""
        raise FolderError(f"{folder}: not a model folder: it has no {MANIFEST}{hint}")
    content = _read_text(path)
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _what_it_is(path, f"not JSON ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ForeignFileError(f"{path}: not a manifest of chainrule (no format {FORMAT!r} in it)")
    if manifest.get("version") != VERSION:
        raise FolderError(
            f"{path}: format version {manifest.get('version')}; this chainrule reads version {VERSION}: "
            "use the chainrule that wrote it, or train the model again"
        )
    expected = {"kind": str, "config": dict, "context": str, "provenance": dict, "files": dict}
    for key, kind in expected.items():
        if not isinstance(manifest.get(key), kind):
            raise DamagedFileError(f"{path}: {key!r} is missing or is not {kind.__name__}")
    if manifest["context"] not in ("line", "stream"):
        raise DamagedFileError(f"{path}: the context should be line or stream, not {manifest['context']!r}")
    for name in (TENSORS, TOKENIZER):
        if name not in manifest["files"]:
            raise DamagedFileError(f"{path}: it does not list {name}")
    for name, entry in manifest["files"].items():
        # a name is never a way out of the folder
        if Path(name).name != name or not isinstance(entry, dict) or not isinstance(entry.get("bytes"), int):
            raise DamagedFileError(f"{path}: the entry of the file {name!r} is not valid")
    return manifest


def _read_metrics(path: Path) -> dict[str, Any]:
    try:
        metrics = json.loads(_read_text(path)) if path.exists() else {}
    except (ValueError, RecursionError) as error:
        raise _what_it_is(path, f"not JSON ({error})") from None
    if not isinstance(metrics, dict):
        raise DamagedFileError(f"{path}: expected an object, found {type(metrics).__name__}")
    return metrics


def check_file(path: Path, entry: Mapping[str, Any], verify: bool | None) -> None:
    """Refuse a file that is not what its entry of the manifest says."""
    if not path.is_file():
        raise DamagedFileError(f"{path}: missing; copy the whole folder again, or train the model again")
    size, written = path.stat().st_size, entry.get("bytes")
    if size != written:
        expected = f"{written:,}" if isinstance(written, int) else "another number"
        raise _what_it_is(path, f"{size:,} bytes where {expected} were written")
    if (size <= _VERIFY_UP_TO if verify is None else verify) and _sha256(path) != entry.get("sha256"):
        raise _what_it_is(path, "its checksum differs from what was written")


def _what_it_is(path: Path, problem: str) -> FolderError:
    """The error for a file that is not what was written: foreign if it shows what it is, else damaged."""
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


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _what_it_is(path, "not UTF-8") from None


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, memory-mapped and read-only."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # validates the header against the file
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, ValueError) as error:
        raise _what_it_is(path, str(error)) from None
    data = np.memmap(path, dtype=np.uint8, mode="r")[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _DTYPES:
            raise FolderError(f"{path}: {name} is of type {entry['dtype']}, which NumPy does not have")
        start, end = entry["data_offsets"]
        tensors[name] = data[start:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
