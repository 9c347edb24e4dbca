"""The example plug-in, as if it were installed: its code and its entry points, read from its pyproject.toml."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"


def install(folder: Path, code: Path = PLUGIN) -> None:
    """Write the metadata that pip would write for a package, and put it and the package on the path."""
    project = tomllib.loads((code / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    sys.path[:0] = [str(folder), str(code)]
