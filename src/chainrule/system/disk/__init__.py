"""Files on disk: written whole or not at all, owned by a living process or removed, named in errors.

atomic.py     files and folders that appear whole or not at all
locks.py      locks that end with their process, and folders that one process at a time writes to
scratch.py    temporary files and folders, and the removal of those that killed processes left
naming.py     errors of the system that name their file
checksums.py  JSON texts that hold their own checksum
tables.py     results as pandas frames and CSV files
"""

from __future__ import annotations

from chainrule.system.disk.atomic import (
    new_folder,
    recover,
    remove_folder,
    replaced_file,
    replaced_path,
    sweep,
)
from chainrule.system.disk.locks import LOCK, holding
from chainrule.system.disk.naming import naming
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
