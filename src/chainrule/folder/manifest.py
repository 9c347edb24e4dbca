"""The model folder: a model on disk.

    manifest.json      format version, kind, configuration, context, provenance, checksums, its own among them
    model.safetensors  the arrays of the model; memory-mapped, never pickled
    tokenizer.json     text <-> ids; a further tokenizer is NAME.tokenizer.json
    metrics.json       measurements of the model
    README.md          a model card
    parts/NAME/        models that this one is made of, each a model folder of its own

Files never decide what code runs: the manifest names a kind, and only kinds that chainrule knows are loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from chainrule.errors import DamagedFileError, FolderError, ForeignFileError
from chainrule.folder.integrity import check_file, files_in, identity, is_large, remember, sha256, what_it_is
from chainrule.folder.tensors import Tensors, map_tensors, write_tensors
from chainrule.system.disk import naming, new_folder, recover, sweep
from chainrule.system.disk.checksums import CHECKSUM, UNSIGNED, is_signed, signed, to_json
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import FILE_NAME as TOKENIZER
from chainrule.tokens.registry import parse_tokenizer

Entry = TypeVar("Entry")
Context: TypeAlias = Literal["line", "stream"]
"""Where a sequence ends: at each line, or never (then a line end is one more token to predict)."""

ContextChoice: TypeAlias = Literal["auto", "line", "stream"]
"""A context, or the one that suits the text."""

FORMAT = "chainrule-model"
VERSION = 2
_UNSIGNED_VERSION = 1  # whose manifest has no checksum of itself
MANIFEST, TENSORS, METRICS, CARD, PARTS = "manifest.json", "model.safetensors", "metrics.json", "README.md", "parts"
TEXT = "text"
"""The name of the tokenizer of a model that has one."""
_DEEPEST = 8  # folders inside folders; a link in a circle would never end


@dataclass(frozen=True)
class ModelFolder:
    """The content of a model folder."""

    kind: str
    config: Mapping[str, Any]
    context: Context | None
    """None for a model that is not a language model."""
    tokenizers: Mapping[str, str]
    """The content of each tokenizer file, by name."""
    tensors: Tensors
    provenance: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, ModelFolder] = field(default_factory=dict)
    """The models that this one is made of, by name."""
    path: Path | None = None
    is_signed: bool = True
    """True if the manifest has a checksum of itself; in format version 1 it has none."""

    @property
    def tokenizer(self) -> str:
        """The content of tokenizer.json, for a model with one tokenizer."""
        return self._needed(self.tokenizers, TEXT, f"it has no {TOKENIZER}")

    def parsed_tokenizer(self, name: str = TEXT) -> Tokenizer:
        """Return one of the tokenizers."""
        missing = f"it has no {TOKENIZER}" if name == TEXT else f"it has no tokenizer {name!r}"
        return parse_tokenizer(self._needed(self.tokenizers, name, missing), str(self.path))

    def tensor(self, name: str) -> np.ndarray:
        """Return one array, still on disk."""
        return np.asarray(self._needed(self.tensors, name, f"{TENSORS} has no array {name!r}"))

    def part(self, name: str) -> ModelFolder:
        """Return one of the models that this one is made of."""
        return self._needed(self.parts, name, f"it has no part {name!r}")

    def _needed(self, entries: Mapping[str, Entry], name: str, missing: str) -> Entry:
        if name not in entries:
            raise DamagedFileError(f"{self.path}: {missing}, which the kind {self.kind!r} needs")
        return entries[name]


def write_folder(folder: str | Path, model: ModelFolder, *, overwrite: bool = False) -> None:
    """Write a model folder. An existing one is replaced only if it is a model folder and `overwrite` is set."""
    folder = Path(folder)
    check_destination(folder, overwrite=overwrite)
    with new_folder(folder) as temporary:
        _write_files(temporary, model)


def check_destination(folder: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a destination now rather than after an hour of training.

    Remains of a killed process are put back or removed.
    """
    folder = Path(folder)
    sweep(folder)
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

    `check_file` verifies checksums: of all files if `verify` is True, of none if it is False. If the folder is
    replaced meanwhile, it is read once more.
    """
    folder = Path(folder)
    recover(folder)
    failure: Exception | None = None
    for _ in range(2):
        before, failure = _identity(folder), None
        try:
            content = _read_folder(folder, verify, _DEEPEST)
        except (FolderError, OSError) as error:
            if before == _identity(folder):
                raise
            failure = error
        else:
            if before == _identity(folder):
                return content
    raise FolderError(f"{folder}: it is being replaced while it is read; try again") from failure


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return values that change when a folder is replaced by a new one."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read_folder(folder: Path, verify: bool | None, deepest: int) -> ModelFolder:
    if deepest == 0:
        raise FolderError(f"{folder}: model folders inside model folders, more than {_DEEPEST} deep")
    manifest = _read_manifest(folder)
    for name, entry in manifest["files"].items():
        if verify or name != CARD:  # a note that a user adds to the card breaks nothing
            check_file(folder / name, entry, verify)
    return ModelFolder(
        kind=manifest["kind"],
        config=manifest["config"],
        context=manifest["context"],
        tokenizers={
            name: _read_text(folder / file)
            for file in manifest["files"]
            if (name := _tokenizer_name(file)) is not None
        },
        tensors=map_tensors(folder / TENSORS),
        provenance=manifest["provenance"],
        metrics=_read_metrics(folder / METRICS),
        parts={
            name: _read_part(folder / PARTS / name, entry, verify, deepest - 1)
            for name, entry in manifest.get("parts", {}).items()
        },
        path=folder,
        is_signed=manifest["version"] != _UNSIGNED_VERSION,
    )


def _read_part(folder: Path, entry: Mapping[str, Any], verify: bool | None, deepest: int) -> ModelFolder:
    part = _read_folder(folder, verify, deepest)
    # the manifest of the part has the checksums of its files, so its own checksum covers the whole part
    if sha256(folder / MANIFEST) != entry.get("manifest_sha256"):
        raise what_it_is(folder / MANIFEST, "its checksum differs from what was written")
    return part


def megabytes(folder: str | Path) -> float:
    """Return the size of everything in a folder, or of a file, in MB (10^6 bytes)."""
    return sum(file.stat().st_size for file in (Path(folder), *Path(folder).rglob("*")) if file.is_file()) / 1e6


# -- writing ----------------------------------------------------------------------------------------------


def _write_files(folder: Path, model: ModelFolder) -> None:
    parts = {}
    for name, part in model.parts.items():
        if not _is_plain_name(name):
            raise ValueError(f"the name of a part should be a plain file name, not {name!r}")
        (folder / PARTS / name).mkdir(parents=True)
        _write_files(folder / PARTS / name, part)
        parts[name] = {"manifest_sha256": sha256(folder / PARTS / name / MANIFEST)}
    write_tensors(folder / TENSORS, model.tensors)
    for name, tokenizer in model.tokenizers.items():
        _write(folder / (TOKENIZER if name == TEXT else f"{name}.{TOKENIZER}"), tokenizer.encode())
    _write(folder / METRICS, to_json(model.metrics, indent=2).encode())
    _write(folder / CARD, _card(model).encode())
    files = files_in(folder)
    manifest = {
        CHECKSUM: UNSIGNED,
        "format": FORMAT,
        "version": VERSION,
        "kind": model.kind,
        "config": dict(model.config),
        "context": model.context,
        "provenance": dict(model.provenance),
        "files": files,
        **({"parts": parts} if parts else {}),
    }
    _write(folder / MANIFEST, signed(to_json(manifest, indent=2)))
    if is_large(folder / TENSORS):  # it was read a moment ago, for its checksum
        remember(folder / TENSORS, identity(folder / TENSORS, files[TENSORS]))


def _write(path: Path, content: bytes) -> None:
    with naming(path):
        path.write_bytes(content)


def _tokenizer_name(file: str) -> str | None:
    """Return the name of the tokenizer that a file holds; None for other files."""
    if file == TOKENIZER:
        return TEXT
    return file.removesuffix(f".{TOKENIZER}") if file.endswith(f".{TOKENIZER}") else None


def brief(value: Any) -> str:
    """Return a measurement as text; a list of records, or a long code, only as its length."""
    if isinstance(value, str) and len(value) > 500 and " " not in value:
        return f"{len(value):,} characters (manifest.json has them)"
    if isinstance(value, list) and value and all(isinstance(record, dict) for record in value):
        return f"{len(value)} records ({METRICS} has them)"
    return str(value)


def _card(model: ModelFolder) -> str:
    lines = [
        f"# A model of kind `{model.kind}`",
        "",
        f"Made by chainrule{f'; context: {model.context}' if model.context else ''}.",
        "",
    ]
    for title, table in (
        ("Configuration", model.config),
        ("Measured", model.metrics),
        ("Provenance", model.provenance),
        ("Parts", {name: part.kind for name, part in model.parts.items()}),
    ):
        if table:
            lines += [f"## {title}", "", "| | |", "| --- | --- |"]
            lines += [f"| {key} | {brief(value).replace('|', chr(92) + '|')} |" for key, value in table.items()]
            lines.append("")
    lines += [
        "Load it with `chainrule.load(folder)`, or use it with `chainrule generate` and `chainrule evaluate`.",
        "",
    ]
    return "\n".join(lines)


# -- reading ----------------------------------------------------------------------------------------------


def _resume_hint(run: Path) -> str:
    """Return a hint if there is a stopped training, which has a run.json, instead of a model."""
    return f"; its training was stopped: chainrule resume {run}" if (run / "run.json").is_file() else ""


def _read_manifest(folder: Path) -> dict[str, Any]:
    if folder.exists() and not folder.is_dir():
        hint = "a verb takes the model first, then the text"
        if folder.name.removesuffix(".gz").endswith((".arpa", ".lm")):
            hint = f"of an ARPA file, chainrule convert {folder} DIR makes a model folder"
            hint += " (in Python, load_arpa reads it)"
        raise FolderError(f"{folder}: a file, where a model folder was expected; {hint}")
    if not folder.exists():
        hint = _resume_hint(folder.with_name(f"{folder.name}.run"))
        raise FolderError(f"{folder}: no such model folder{hint}")
    path = folder / MANIFEST
    if not path.is_file():
        inside = sorted(manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}"))
        hint = f", but models in it: {', '.join(inside)}" if inside else _resume_hint(folder)
        raise FolderError(f"{folder}: not a model folder: it has no {MANIFEST}{hint}")
    manifest = _read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ForeignFileError(f"{path}: not a manifest of chainrule (no format {FORMAT!r} in it)")
    if manifest.get("version") not in (_UNSIGNED_VERSION, VERSION):
        raise FolderError(
            f"{path}: format version {manifest.get('version')}; this chainrule reads versions {_UNSIGNED_VERSION} "
            f"and {VERSION}: use the chainrule that wrote it, or train the model again"
        )
    if manifest["version"] != _UNSIGNED_VERSION and not is_signed(path.read_bytes()):
        raise what_it_is(path, "its checksum differs from what was written")
    _check_manifest(manifest, path)
    return manifest


def _check_manifest(manifest: dict[str, Any], path: Path) -> None:
    """Refuse a manifest whose entries are missing or of another type."""
    expected = {"kind": str, "config": dict, "provenance": dict, "files": dict}
    for key, kind in expected.items():
        if not isinstance(manifest.get(key), kind):
            raise DamagedFileError(f"{path}: {key!r} is missing or is not {kind.__name__}")
    if "context" not in manifest or manifest["context"] not in ("line", "stream", None):
        raise DamagedFileError(f"{path}: the context should be line or stream, not {manifest.get('context')!r}")
    if TENSORS not in manifest["files"]:
        raise DamagedFileError(f"{path}: it does not list {TENSORS}")
    if not any(_tokenizer_name(name) for name in manifest["files"]):
        raise DamagedFileError(f"{path}: it does not list {TOKENIZER}")
    for name, entry in manifest["files"].items():
        # a name is never a way out of the folder
        if not _is_plain_name(name) or not isinstance(entry, dict) or not isinstance(entry.get("bytes"), int):
            raise DamagedFileError(f"{path}: the entry of the file {name!r} is not valid")
    parts = manifest.get("parts", {})
    if not isinstance(parts, dict) or not all(
        _is_plain_name(name) and isinstance(entry, dict) for name, entry in parts.items()
    ):
        raise DamagedFileError(f"{path}: 'parts' is not a list of models by plain names")


def _is_plain_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", ".", "..")


def _read_metrics(path: Path) -> dict[str, Any]:
    metrics = _read_json(path) if path.exists() else {}
    if not isinstance(metrics, dict):
        raise DamagedFileError(f"{path}: expected an object, found {type(metrics).__name__}")
    return metrics


def _read_json(path: Path) -> Any:
    text = _read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise what_it_is(path, f"not JSON ({error})") from None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise what_it_is(path, "not UTF-8") from None
