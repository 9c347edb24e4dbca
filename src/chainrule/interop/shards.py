"""Weights in safetensors files, one or several with an index, read one by one as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from chainrule.errors import ForeignFileError
from chainrule.interop.vocabularies.files import read_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class Shards(Mapping[str, Tensor]):
    """The weights of a folder by name. All files are opened, and their headers read, before any weight is."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        listed = _listed(folder)
        self._files: dict[str, Any] = {}
        for path in _files(folder, sorted(set(listed.values()))):
            try:
                file = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ForeignFileError(f"{path}: not a safetensors file: {error}") from None
            self._files |= dict.fromkeys(file.keys(), file)  # type: ignore[no-untyped-call]
        for name, place in listed.items():
            if name not in self._files:
                raise ForeignFileError(f"{folder / place}: there is no {name!r} in it, which {INDEX} lists")

    def __getitem__(self, name: str) -> Tensor:
        weight: Tensor = self._files[name].get_tensor(name)
        return weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def header(self, name: str) -> tuple[list[int], str]:
        """Return the shape of a weight and its type (F32, BF16, I8, ...), from the header of its file."""
        found = self._files[name].get_slice(name)
        return list(found.get_shape()), str(found.get_dtype())


def _listed(folder: Path) -> dict[str, str]:
    """Return the file of each weight, as the index says; empty where there is none."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return {}
    listed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise ForeignFileError(f"{folder / INDEX}: it has no weight_map")
    return listed


def _files(folder: Path, names: list[str]) -> list[Path]:
    """Return the one file of weights, or those of the index."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if names:
        missing = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
        if missing:
            raise ForeignFileError(f"{folder}: {len(missing)} of {len(names)} shards are missing: {missing[0]}")
        return [folder / name for name in names]
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise ForeignFileError(
            f"{folder}: its weights are pickled ({pickled[0]}), which could run any code: only safetensors are read"
        )
    if any(folder.glob("*.safetensors")):
        raise ForeignFileError(f"{folder}: it has shards of weights, but no {INDEX} that lists them")
    raise ForeignFileError(f"{folder}: there are no weights in it: neither {WEIGHTS} nor {INDEX}")
