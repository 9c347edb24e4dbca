"""Compiled kernels on disk: code that is older than any kernel's source is not used again."""

from __future__ import annotations

import os
import re
from pathlib import Path

from chainrule.ngram.store import compiled

ROOM = Path(compiled.__file__).parents[1]


def test_code_older_than_a_source_is_deleted(tmp_path: Path) -> None:
    sources = [tmp_path / "store" / "compiled.py", tmp_path / "sampling" / "walk_kernels.py"]
    indices = [path.parent / "__pycache__" / f"{path.stem}.f-1.py311.nbi" for path in sources]
    for path in (*sources, *indices):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "store" / "trie.py").touch()  # no kernel: it may be newer
    for path, when in zip((*sources, *indices), (100, 300, 200, 400), strict=True):
        os.utime(path, (when, when))
    compiled.drop_stale_caches(tmp_path)
    assert [path.exists() for path in indices] == [False, True]


def test_every_file_with_a_kernel_is_looked_at() -> None:
    files = [path for path in ROOM.rglob("*.py") if re.search(r"^@(njit|kernel|inner)\b", path.read_text(), re.M)]
    assert len(files) > 10
    assert [path for path in files if not any(path.match(name) for name in compiled._SOURCES)] == []
