"""Checkpoints: the state of a run on disk, from which it can be continued bit for bit.

    step-000123/
      manifest.json        the size and checksum of the other files
      state.json           position, history, decisions; the identity of the run
      tensors.safetensors  weights, optimiser, averages, best weights, memories, states of random generators
      shards/              with parallel=fsdp: all of it that is divided among the processes, as torch writes it

A folder is written under a temporary name, synced and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.contract.data import TrainingData
from chainrule.errors import DamagedFileError, FolderError, TrainingError
from chainrule.folder import MANIFEST, check_file, files_in, map_tensors, to_json, write_tensors
from chainrule.networks.training_settings import HOW_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.system.disk import new_folder, remove_folder
from chainrule.system.progress import Progress
from chainrule.training.checkpoints.run_folder import CHECKPOINTS, checkpoint_folders, sweep_checkpoints
from chainrule.training.objectives import NextToken, Objective

FORMAT, VERSION = "chainrule-checkpoint", 2
STATE, TENSORS, SHARDS = "state.json", "tensors.safetensors", "shards"
KEPT = 2
"""How many checkpoints of a run are kept, the newest ones."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, Any]
    shards: Path | None = None
    """The folder of other arrays, which many processes have written; None: there are no others."""


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, progress: Progress) -> None:
        self.run, self.progress = run, progress

    def write(self, step: int, checkpoint: Checkpoint, save_shards: Callable[[Path], None] | None = None) -> Path:
        """Write a checkpoint and drop all but the newest; `save_shards` writes what processes have parts of."""
        folder = self.run / CHECKPOINTS / f"step-{step:06d}"
        sweep_checkpoints(self.run)
        with new_folder(folder) as temporary:
            write_tensors(temporary / TENSORS, checkpoint.arrays)
            sizes = {}
            if save_shards is not None:
                save_shards(temporary / SHARDS)
                sizes = {path.name: path.stat().st_size for path in (temporary / SHARDS).iterdir()}
            (temporary / STATE).write_text(to_json(checkpoint.state), encoding="utf-8")
            manifest = {"format": FORMAT, "version": VERSION, "files": files_in(temporary), SHARDS: sizes}
            (temporary / MANIFEST).write_text(to_json(manifest, indent=2), encoding="utf-8")
        for old in checkpoint_folders(self.run)[KEPT:]:
            with suppress(OSError):  # it goes with the next one
                remove_folder(old)
        return folder

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is undamaged; None if there is no checkpoint."""
        folders = checkpoint_folders(self.run)
        for folder in folders:
            try:
                return _read(folder)
            except (FolderError, OSError) as error:
                self.progress.note(f"{error}; going back to the checkpoint before")
        if folders:
            raise TrainingError(f"{self.run / CHECKPOINTS}: no checkpoint is whole; begin anew (--overwrite)")
        return None


def _read(folder: Path) -> Checkpoint:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise DamagedFileError(f"{path}: not a manifest of version {VERSION} of {FORMAT}")
        entries = {name: dict(manifest["files"][name]) for name in (STATE, TENSORS)}
        sizes = dict(manifest.get(SHARDS, {}))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path}: damaged: {error}") from None
    for name, entry in entries.items():
        check_file(folder / name, entry, verify=True)
    for name, size in sizes.items():  # whose checksums would take as long as reading them
        check_file(folder / SHARDS / name, {"bytes": size}, verify=False)
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    # older checkpoints have only one count, that of averaged weights
    state.setdefault("counts", {"average_count": state.get("average_count", 0)})
    return Checkpoint(map_tensors(folder / TENSORS), state, folder / SHARDS if sizes else None)


# -- the identity of a run: a checkpoint is resumed only by the training that wrote it ------------------


_WITHOUT_EFFECT = ("checkpoint_minutes", "sample_every", "logger", "tensorboard")
_CHANGEABLE = (
    *("learning_rate", "clip", "device_batch"),  # what error messages tell the user to change
    *HOW_COMPUTED,
    *HOW_LONG,
    *("parallel", "validate_every", "patience"),
)


def identity(
    shapes: Mapping[str, list[int]], settings: TrainingSettings, data: TrainingData, objective: Objective
) -> dict[str, Any]:
    """Return settings, network, objective and data of a run as plain values; `shapes` are those of its tensors."""
    return {
        "settings": {name: value for name, value in asdict(settings).items() if name not in _WITHOUT_EFFECT},
        "network": dict(shapes),
        "objective": {"name": objective.name},
        "data": {"context": data.context, "seed": data.seed},
        "fingerprints": data.fingerprints,
    }


_BEFORE = {"objective": {"name": NextToken.name}}
"""Values that older checkpoints lack, because there was only one possibility."""


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Return the names of the settings that differ; a difference that is not allowed raises a TrainingError."""
    was, is_now = dict(_leaves({**_BEFORE, **then})), dict(_leaves(json.loads(to_json(now))))
    if ("settings", "engine") in is_now:
        was.setdefault(("settings", "engine"), "torch")  # at first the only engine with checkpoints
    differing = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key)]
    refused = []
    for part, name in differing:
        if part == "fingerprints" and not ((part, name) in was and (part, name) in is_now):
            continue  # older checkpoints of taggers have fingerprints of sources too, the same as of the texts
        if part == "fingerprints":
            refused.append(f"another {name}")
        elif part != "settings" or name not in _CHANGEABLE:
            refused.append(f"{part} {name}: {was.get((part, name))} then, {is_now.get((part, name))} now")
    if refused:
        raise TrainingError(
            f"this is not the training that the checkpoint is of ({'; '.join(refused[:5])}); "
            "begin anew (--overwrite)"
        )
    return {name for _, name in differing}


def _leaves(identity: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    for part, values in identity.items():
        for name, value in values.items():
            yield (part, name), value
