"""Checkpoints: where a run stands, on disk, so that it can go on there bit by bit.

    step-000123/
      manifest.json        the size and checksum of the other files
      state.json           position, history, decisions; what the run is made of
      tensors.safetensors  weights, optimiser, averages, best weights, memories, states of chance

A folder is written under a temporary name, synced and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.errors import DamagedFileError, FolderError, TrainingError
from chainrule.folder import MANIFEST, check_file, files_in, map_tensors, new_folder, to_json, write_tensors
from chainrule.progress import Progress
from chainrule.training.runs import CHECKPOINTS, checkpoint_folders

FORMAT, VERSION = "chainrule-checkpoint", 2
STATE, TENSORS = "state.json", "tensors.safetensors"
KEPT = 2
_BFLOAT16 = ":bfloat16"  # marks arrays of a type that NumPy does not have; their bits are stored


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, progress: Progress) -> None:
        self.run, self.progress = run, progress

    def write(self, step: int, checkpoint: Checkpoint) -> Path:
        """Add one, and remove all but the newest."""
        folder = self.run / CHECKPOINTS / f"step-{step:06d}"
        self._sweep()
        with new_folder(folder) as temporary:
            write_tensors(temporary / TENSORS, to_arrays(checkpoint.tensors))
            (temporary / STATE).write_text(to_json(checkpoint.state), encoding="utf-8")
            manifest = {"format": FORMAT, "version": VERSION, "files": files_in(temporary)}
            (temporary / MANIFEST).write_text(to_json(manifest, indent=2), encoding="utf-8")
        for old in checkpoint_folders(self.run)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        return folder

    def newest(self) -> Checkpoint | None:
        """The newest that is whole; None if there is none at all."""
        folders = checkpoint_folders(self.run)
        for folder in folders:
            try:
                return _read(folder)
            except (FolderError, OSError) as error:
                self.progress.note(f"{error}; going back to the checkpoint before")
        if folders:
            raise TrainingError(f"{self.run / CHECKPOINTS}: no checkpoint is whole; begin anew (--overwrite)")
        return None

    def _sweep(self) -> None:
        """Remove what a run that was killed left half written."""
        for left in (self.run / CHECKPOINTS).glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)


def _read(folder: Path) -> Checkpoint:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise DamagedFileError(f"{path}: not a manifest of version {VERSION} of {FORMAT}")
        entries = {name: manifest["files"][name] for name in (STATE, TENSORS)}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path}: damaged: {error}") from None
    for name, entry in entries.items():
        check_file(folder / name, entry, verify=True)
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return Checkpoint(from_arrays(map_tensors(folder / TENSORS)), state)


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as arrays of NumPy, bit by bit."""
    arrays = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            name, tensor = name + _BFLOAT16, tensor.contiguous().view(torch.int16)
        arrays[name] = tensor.numpy()
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """What `to_arrays` was given, in memory of its own."""
    tensors = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(np.array(array))
        if name.endswith(_BFLOAT16):
            name, tensor = name.removesuffix(_BFLOAT16), tensor.view(torch.bfloat16)
        tensors[name] = tensor
    return tensors
