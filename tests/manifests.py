"""Manifests with changed content and a correct checksum, such as a faulty program would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chainrule.system.disk.checksums import CHECKSUM, UNSIGNED, signed


def read_manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return content


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    if CHECKSUM in manifest:
        manifest = {**manifest, CHECKSUM: UNSIGNED}
    (folder / "manifest.json").write_bytes(signed(json.dumps(manifest)))
