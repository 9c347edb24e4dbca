"""Files on disk: written whole or not at all, and removed if the process that wrote them was killed.

atomic.py     files and folders that are written whole or not at all; errors that name their file
locks.py      locks that end with their process, and folders for one process at a time
scratch.py    temporary files and folders, and the removal of those of killed processes
checksums.py  strict JSON texts, and texts with a checksum of themselves
tables.py     results as pandas frames and CSV files
"""

from __future__ import annotations

from chainrule.system.disk.atomic import (
    naming,
    new_folder,
    recover,
    remove_folder,
    replaced_file,
    replaced_path,
    sweep,
)
from chainrule.system.disk.locks import LOCK, holding
from chainrule.system.disk.scratch import scratch_file, scratch_file_at, scratch_folder

__all__ = [
    "LOCK",
    "holding",
    "naming",
    "new_folder",
    "recover",
    "remove_folder",
    "replaced_file",
    "replaced_path",
    "scratch_file",
    "scratch_file_at",
    "scratch_folder",
    "sweep",
]
