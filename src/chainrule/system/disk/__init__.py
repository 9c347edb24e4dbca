"""Files on disk: written whole or not at all, and removed if the process that wrote them was killed.

atomic.py     files and folders that are written whole or not at all; errors that name their file
locks.py      locks that end with their process, and folders for one process at a time
scratch.py    temporary files and folders, and the removal of those of killed processes
checksums.py  strict JSON texts, and texts with a checksum of themselves
tables.py     results as pandas frames and CSV files
"""

from __future__ import annotations

from chainrule.system.disk.atomic import naming as naming
from chainrule.system.disk.atomic import new_folder as new_folder
from chainrule.system.disk.atomic import recover as recover
from chainrule.system.disk.atomic import remove_folder as remove_folder
from chainrule.system.disk.atomic import replaced_file as replaced_file
from chainrule.system.disk.atomic import replaced_path as replaced_path
from chainrule.system.disk.atomic import sweep as sweep
from chainrule.system.disk.locks import LOCK as LOCK
from chainrule.system.disk.locks import holding as holding
from chainrule.system.disk.scratch import scratch_file as scratch_file
from chainrule.system.disk.scratch import scratch_file_at as scratch_file_at
from chainrule.system.disk.scratch import scratch_folder as scratch_folder
