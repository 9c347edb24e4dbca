"""Model folders on disk: arrays in safetensors files, checksums, and the manifest that lists them.

tensors.py     arrays in safetensors files, memory-mapped when they are read
integrity.py   sizes and checksums, and errors for files that do not match them
manifest.py    `ModelFolder`: writing and reading it
"""

from __future__ import annotations

from chainrule.folder.integrity import check_file, files_in
from chainrule.folder.manifest import (
    CARD,
    MANIFEST,
    METRICS,
    TENSORS,
    TEXT,
    Context,
    ContextChoice,
    ModelFolder,
    brief,
    check_destination,
    megabytes,
    read_folder,
    write_folder,
)
from chainrule.folder.tensors import Tensors, map_tensors, write_tensors
from chainrule.system.disk.checksums import to_json

__all__ = [
    "CARD",
    "MANIFEST",
    "METRICS",
    "TENSORS",
    "TEXT",
    "Context",
    "ContextChoice",
    "ModelFolder",
    "Tensors",
    "brief",
    "check_destination",
    "check_file",
    "files_in",
    "map_tensors",
    "megabytes",
    "read_folder",
    "to_json",
    "write_folder",
    "write_tensors",
]
