"""Model folders on disk: arrays in safetensors files, checksums, and the manifest that lists them.

tensors.py     arrays in safetensors files, memory-mapped when they are read
integrity.py   sizes and checksums, and errors for files that do not match them
manifest.py    `ModelFolder`: writing and reading it
"""

from __future__ import annotations

from chainrule.folder.integrity import check_file as check_file
from chainrule.folder.integrity import files_in as files_in
from chainrule.folder.manifest import CARD as CARD
from chainrule.folder.manifest import MANIFEST as MANIFEST
from chainrule.folder.manifest import METRICS as METRICS
from chainrule.folder.manifest import TENSORS as TENSORS
from chainrule.folder.manifest import TEXT as TEXT
from chainrule.folder.manifest import Context as Context
from chainrule.folder.manifest import ContextChoice as ContextChoice
from chainrule.folder.manifest import ModelFolder as ModelFolder
from chainrule.folder.manifest import brief as brief
from chainrule.folder.manifest import check_destination as check_destination
from chainrule.folder.manifest import megabytes as megabytes
from chainrule.folder.manifest import read_folder as read_folder
from chainrule.folder.manifest import write_folder as write_folder
from chainrule.folder.tensors import Tensors as Tensors
from chainrule.folder.tensors import map_tensors as map_tensors
from chainrule.folder.tensors import write_tensors as write_tensors
from chainrule.system.disk.checksums import to_json as to_json
